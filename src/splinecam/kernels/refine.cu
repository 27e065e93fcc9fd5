/* Cut the faces of a planar subdivision along the zero sets of functions in general position: what
 * refine.c does, in steps for a GPU.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small a step
 * gives up, and the caller uses its robust method.
 */
#include "refine_run.h"

/* -- edges ---------------------------------------------------------------------------------- */

DEVICE u64 changes(const run_t *r, i64 e, i64 w) {
    i64 a = r->edge[2 * e] * r->words + w, b = r->edge[2 * e + 1] * r->words + w;
    return (r->positive[a] & r->negative[b]) | (r->negative[a] & r->positive[b]);
}

STEP(count_changes, e) {
    i64 count = 0;
    for (i64 w = 0; w < r->words; w++) {
        i64 a = r->edge[2 * e] * r->words + w, b = r->edge[2 * e + 1] * r->words + w;
        u64 zero = ~((r->positive[a] | r->negative[a]) & (r->positive[b] | r->negative[b]));
        if (64 * (w + 1) > r->units) zero &= ((u64)1 << (r->units & 63)) - 1;
        for (; zero; zero &= zero - 1)
            if (r->wanted[64 * w + LOWEST_BIT(zero)]) give_up(r);
        count += POPCOUNT(changes(r, e, w));
    }
    r->first[e + 1] = count;
    if (e == 0) r->first[0] = 0;
}

STEP(count_sides, c) {
    i64 e = r->corner[c] >> 1;
    r->side_first[c + 1] = r->first[e + 1] - r->first[e];
    if (c == 0) r->side_first[0] = 0;
}

STEP(count_faces, f) {
    i64 begin = r->offset[f], end = r->offset[f + 1], row = r->faces + 1;
    i64 marks = r->side_first[end] - r->side_first[begin], chords = marks / 2;
    if (r->selected)
        chords = selected_before(r, f + 1) - selected_before(r, f);
    else if (marks & 1)
        give_up(r);
    i64 touched = marks > 0 || chords > 0;
    AT_LEAST(r->status + 1, 2 * chords);
    r->face_sums[f + 1] = touched;
    r->face_sums[row + f + 1] = chords;
    r->face_sums[2 * row + f + 1] = touched ? end - begin + marks : 0;
    r->face_sums[3 * row + f + 1] = touched ? 0 : end - begin;
    if (f == 0)
        for (int k = 0; k < 4; k++) r->face_sums[k * row] = 0;
}

/* Find the new vertices of one word of the signs of an edge. */
STEP(find_points, item) {
    i64 e = item / r->words, last = item % r->words, at = r->first[e];
    u64 bits = changes(r, e, last);
    if (!bits) return;
    for (i64 w = 0; w < last; w++) at += POPCOUNT(changes(r, e, w));
    const double *p = r->z + r->edge[2 * e] * r->units, *q = r->z + r->edge[2 * e + 1] * r->units;
    for (; bits; bits &= bits - 1, at++) {
        i64 unit = 64 * last + LOWEST_BIT(bits);
        double change = p[unit] - q[unit];
        r->raw_t[at] = p[unit] / change;
        r->raw_change[at] = fabs(change);
        r->raw_unit[at] = unit;
        r->raw_edge[at] = e;
    }
}

STEP(sort_points, i) {
    if (i >= r->first[r->edges]) return;
    i64 e = r->raw_edge[i], at = r->first[e];
    double t = r->raw_t[i];
    for (i64 k = r->first[e]; k < r->first[e + 1]; k++)
        at += r->raw_t[k] < t || (r->raw_t[k] == t && r->raw_unit[k] < r->raw_unit[i]);
    r->point_t[at] = t;
    r->change[at] = r->raw_change[i];
    r->point_unit[at] = r->raw_unit[i];
    r->point_edge[at] = e;
}

STEP(place_point, g) {
    i64 e = r->point_edge[g], unit = r->point_unit[g];
    i64 a = r->edge[2 * e], b = r->edge[2 * e + 1];
    const double *p = r->uv + a * r->width, *q = r->uv + b * r->width;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), t = r->point_t[g];
    double t_error = r->error[unit] / r->change[g], reach = t_error + r->uv_error / length;
    if (!((t < 1 - t ? t : 1 - t) * length > r->uv_error)) give_up(r);
    if (g > r->first[e]) {
        double other = r->error[r->point_unit[g - 1]] / r->change[g - 1] + r->uv_error / length;
        if (!(t - r->point_t[g - 1] > r->safety * (other + reach))) give_up(r);
    }
    between(p, q, t, r->width, r->point_uv + g * r->width);
    r->position_error[2 * g] = x * t_error;
    r->position_error[2 * g + 1] = y * t_error;
    r->point_slope_change[g] = r->change[g] * r->slope_difference[unit];
    r->point_start[g] = a;
    r->point_end[g] = b;
    r->point_index[g] = g;
}

/* -- chords --------------------------------------------------------------------------------- */

STEP(find_marks, m) {
    i64 c = row_of(r->side_first, r->corners, m), e = r->corner[c] >> 1, k = m - r->side_first[c];
    i64 g = r->corner[c] & 1 ? r->first[e + 1] - 1 - k : r->first[e] + k;
    r->mark_point[m] = g;
    r->mark_unit[m] = r->point_unit[g];
    r->mark_corner[m] = c;
    r->mark_face[m] = row_of(r->offset, r->faces, c);
}

STEP(find_partners, m) {
    i64 f = r->mark_face[m], unit = r->mark_unit[m], partner = m, count = 0;
    i64 end = r->side_first[r->offset[f + 1]];
    for (i64 k = r->side_first[r->offset[f]]; k < end; k++)
        if (k != m && r->mark_unit[k] == unit) {
            partner = k;
            count++;
        }
    if (count != 1) give_up(r);
    r->partner[m] = partner;
    r->lower_before[m + 1] = partner > m;
    if (m == 0) r->lower_before[0] = 0;
}

/* Half-edge k of the divided side after a corner. */
DEVICE i64 half_of(const run_t *r, i64 c, i64 k) {
    i64 e = r->corner[c] >> 1, back = r->corner[c] & 1;
    i64 piece = back ? r->first[e + 1] - r->first[e] - k : k;
    return 2 * (piece == 0 ? e : r->edges + r->first[e] + piece - 1) + back;
}

STEP(place_corner, c) {
    i64 f = row_of(r->offset, r->faces, c), begin = r->offset[f];
    if (!is_touched(r, f)) return;
    i64 at = places_of(r, f)[0] + c - begin + r->side_first[c] - r->side_first[begin];
    /* Without selected chords, place_mark places the new vertices. */
    i64 sides = r->selected ? r->side_first[c + 1] - r->side_first[c] : 0;
    for (i64 k = 0; k <= sides; k++, at++) {
        r->half[at] = half_of(r, c, k);
        r->ends[at] = -1;
    }
}

STEP(place_mark, m) {
    i64 other = r->partner[m], c = r->mark_corner[m], f = r->mark_face[m], begin = r->offset[f];
    i64 chord = r->lower_before[m < other ? m : other];
    i64 at = places_of(r, f)[0] + c - begin + 1 + m - r->side_first[begin];
    r->half[at] = half_of(r, c, m - r->side_first[c] + 1);
    r->ends[at] = 2 * chord + (m > other);
    (m < other ? r->low : r->high)[chord] = at;
    i64 g = r->mark_point[m], at_error = 4 * chord + 2 * (m > other);
    (m < other ? r->start : r->stop)[chord] = r->vertices + g;
    r->end_error[at_error] = r->position_error[2 * g];
    r->end_error[at_error + 1] = r->position_error[2 * g + 1];
    r->chord_face[chord] = f;
    r->chord_unit[chord] = r->mark_unit[m];
}

/* The coordinates of an old vertex, or of a new one on an edge. */
DEVICE const double *place_of(const run_t *r, i64 v) {
    return v < r->vertices ? r->uv + v * r->width : r->point_uv + (v - r->vertices) * r->width;
}

/* Find the line of a chord, and count the other chords that it crosses. */
STEP(count_crossings, i) {
    const double *p = place_of(r, r->start[i]), *q = place_of(r, r->stop[i]);
    const double *error = r->end_error + 4 * i;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), *line = r->line + 6 * i;
    if (!(length > r->uv_error)) give_up(r);
    /* The errors of both ends bound the error of the line. The bound is better the more steeply the
     * line meets the edge, so the smaller one is taken. */
    double one = fabs(error[0] * y - error[1] * x), two = fabs(error[2] * y - error[3] * x);
    line[0] = p[0];
    line[1] = p[1];
    line[2] = x;
    line[3] = y;
    line[4] = length;
    line[5] = (one < two ? one : two) / length + r->uv_error;
    const i64 *chords = chords_of(r, r->chord_face[i]);
    i64 low = r->low[i], high = r->high[i], later = 0, earlier = 0;
    for (i64 j = i + 1; j < chords[1] && r->low[j] < high; j++) later += r->high[j] > high;
    for (i64 j = chords[0]; j < i; j++) earlier += r->high[j] > low && r->high[j] < high;
    r->slots[i + 1] = later;
    r->slots[r->chords + 1 + i + 1] = later + earlier;
    r->slots_taken[i] = later;
    if (i == 0) r->slots[0] = r->slots[r->chords + 1] = 0;
}

/* -- crossings ------------------------------------------------------------------------------ */

STEP(find_pairs, i) {
    i64 last = chords_of(r, r->chord_face[i])[1], high = r->high[i], k = r->slots[i];
    for (i64 j = i + 1; j < last && r->low[j] < high; j++)
        if (r->high[j] > high) {
            r->one[k] = i;
            r->two[k++] = j;
        }
}

STEP(find_crossing, k) {
    i64 i = r->one[k], j = r->two[k];
    const i64 *first = slots_of(r, 0);
    const double *p = r->line + 6 * i, *q = r->line + 6 * j;
    double gx = q[0] - p[0], gy = q[1] - p[1], area = p[2] * q[3] - p[3] * q[2];
    /* Line i crosses a strip of width w around line j over a length of |dj| / |area| * w. */
    double strip = (p[5] + q[5]) / fabs(area);
    i64 at = first[i] + k - r->slots[i], then = first[j] + ADD_ONE(r->slots_taken + j);
    if (area == 0) give_up(r);
    r->raw_along[at] = (gx * q[3] - gy * q[2]) / area;
    r->raw_reach[at] = strip * q[4];
    r->raw_crossing[at] = 2 * k;
    r->raw_chord[at] = i;
    r->raw_along[then] = (gx * p[3] - gy * p[2]) / area;
    r->raw_reach[then] = strip * p[4];
    r->raw_crossing[then] = 2 * k + 1;
    r->raw_chord[then] = j;
}

STEP(sort_slots, k) {
    i64 i = r->raw_chord[k];
    const i64 *first = slots_of(r, i);
    i64 at = first[0];
    double s = r->raw_along[k];
    for (i64 j = first[0]; j < first[1]; j++)
        at += r->raw_along[j] < s || (r->raw_along[j] == s && j < k);
    r->slot_t[at] = s;
    r->reach[at] = r->raw_reach[k];
    r->slot_crossing[at] = r->raw_crossing[k];
    r->slot_chord[at] = i;
    r->slot[r->raw_crossing[k]] = at;
}

DEVICE void write_edge(const run_t *r, i64 e, i64 a, i64 b, i64 layer, i64 unit) {
    r->made_edge[2 * e] = a;
    r->made_edge[2 * e + 1] = b;
    r->made_edge_layer[e] = layer;
    r->made_edge_unit[e] = unit;
}

/* The vertex before a slot, or before the end of a chord. */
DEVICE i64 vertex_before(const run_t *r, i64 i, i64 k) {
    if (k == slots_of(r, i)[0]) return r->start[i];
    return r->vertices + r->points + (r->slot_crossing[k - 1] >> 1);
}

/* Check a slot, and write the piece of its chord that ends there, and the slope change. */
STEP(write_slot, k) {
    i64 i = r->slot_chord[k], other = r->slot_chord[r->slot[r->slot_crossing[k] ^ 1]];
    i64 unit = r->chord_unit[other], n = r->units;
    double s = r->slot_t[k], reach = r->reach[k], end = r->uv_error / r->line[6 * i + 4];
    if (!((s < 1 - s ? s : 1 - s) > r->safety * (reach + end))) give_up(r);
    if (k > slots_of(r, i)[0] &&
        !(s - r->slot_t[k - 1] > r->safety * (reach + r->reach[k - 1])))
        give_up(r);
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k),
               r->vertices + r->points + (r->slot_crossing[k] >> 1), r->layer, r->chord_unit[i]);
    if (!r->has_breakpoints) return;
    /* The slope of the other function is most precise from the farther end of the chord. */
    i64 g = (s > 0.5 ? r->start[i] : r->stop[i]) - r->vertices;
    double p = r->z[r->point_start[g] * n + unit], q = r->z[r->point_end[g] * n + unit];
    double value = fabs(p + r->point_t[g] * (q - p)) / (s > 0.5 ? s : 1 - s);
    r->slot_unit[k] = unit;
    r->slot_slope_change[k] = r->slope_difference[unit] * value;
}

/* Write the last piece of a chord. */
STEP(write_chord, i) {
    i64 k = slots_of(r, i)[1];
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k), r->stop[i],
               r->layer, r->chord_unit[i]);
}

STEP(write_crossing, k) {
    i64 i = r->one[k], at = r->slot[2 * k], g = r->start[i], h = r->stop[i], width = r->width;
    i64 vertex = r->vertices + r->points + k;
    r->cross_start[k] = g;
    r->cross_end[k] = h;
    r->cross_chord[k] = i;
    r->cross_slot[k] = at;
    r->cross_t[k] = r->slot_t[at];
    between(place_of(r, g), place_of(r, h), r->slot_t[at], width, r->made_uv + vertex * width);
    r->made_vertex_layer[vertex] = r->layer;
}

/* -- the refined subdivision ---------------------------------------------------------------- */

STEP(write_vertex, v) {
    for (i64 k = 0; k < r->width; k++) r->made_uv[v * r->width + k] = r->uv[v * r->width + k];
    r->made_vertex_layer[v] = r->vertex_layer[v];
}

STEP(write_edge_start, e) {
    i64 cut = r->first[e + 1] > r->first[e];
    write_edge(r, e, r->edge[2 * e], cut ? r->vertices + r->first[e] : r->edge[2 * e + 1],
               r->edge_layer[e], r->edge_unit[e]);
}

STEP(write_point, g) {
    i64 e = r->point_edge[g], v = r->vertices + g, width = r->width;
    write_edge(r, r->edges + g, v, g + 1 < r->first[e + 1] ? v + 1 : r->edge[2 * e + 1],
               r->edge_layer[e], r->edge_unit[e]);
    for (i64 k = 0; k < width; k++) r->made_uv[v * width + k] = r->point_uv[g * width + k];
    r->made_vertex_layer[v] = r->layer;
}

/* Walk around a new face; returns its size, and writes its half-edges if `out` is not 0. New faces
 * begin at the first corner of each touched face, at the first end of each chord, and at each
 * crossing. */
DEVICE i64 walk(const run_t *r, i64 face, i64 *out) {
    const i64 *first = slots_of(r, 0);
    i64 place = 0, slot = -1, i = 0, up = 1, size = 0, old, half;
    i64 pieces = r->edges + r->points, limit = r->new_corners;
    if (face < r->touched) {
        old = row_of(r->face_sums, r->faces, face);
        place = places_of(r, old)[0];
    } else if (face < r->touched + r->chords) {
        i = face - r->touched;
        old = r->chord_face[i];
        place = r->low[i];
    } else {
        slot = r->slot[2 * (face - r->touched - r->chords)];
        i = r->slot_chord[slot];
        old = r->chord_face[i];
    }
    i64 end = places_of(r, old)[1], inside = slot >= 0;
    i64 leaves = face < r->touched && r->ends[place] >= 0; /* by a chord at the first corner */
    while (size < limit) {
        if (!inside) { /* along the boundary, up to the next chord */
            if (!leaves) {
                half = r->half[place++];
                if (out) out[size] = half;
                size++;
                if (place == end) return size;
            }
            leaves = 0;
            if (r->ends[place] < 0) continue;
            i = r->ends[place] >> 1;
            up = !(r->ends[place] & 1);
            slot = up ? first[i] - 1 : first[i + 1];
            inside = 1;
            if (size == limit) break;
        }
        half = 2 * (pieces + slot + up + i) + !up; /* the piece after or before this slot */
        if (out) out[size] = half;
        size++;
        slot += up ? 1 : -1;
        if (up && slot == first[i + 1]) {
            place = r->high[i];
            inside = 0;
            continue;
        }
        if (!up && (slot < first[i] || (r->slot_crossing[slot] & 1))) return size;
        if (up) up = !(r->slot_crossing[slot] & 1);
        slot = r->slot[r->slot_crossing[slot] ^ 1];
        i = r->slot_chord[slot];
    }
    give_up(r);
    return size;
}

STEP(measure_face, face) {
    r->made_offset[r->faces - r->touched + face + 1] = walk(r, face, 0);
}

STEP(measure_kept, f) {
    i64 at = f - r->face_sums[f];
    if (!is_touched(r, f)) r->made_offset[at + 1] = r->offset[f + 1] - r->offset[f];
    if (f == 0) r->made_offset[0] = 0;
}

STEP(write_face, face) {
    const i64 *offset = r->made_offset + r->faces - r->touched;
    if (offset[r->touched + r->chords + r->crossings] != r->new_corners)
        give_up(r);
    else
        walk(r, face, r->made_corner + offset[face]);
}

STEP(write_corner, c) {
    i64 f = row_of(r->offset, r->faces, c);
    if (!is_touched(r, f))
        r->made_corner[r->made_offset[f - r->face_sums[f]] + c - r->offset[f]] = r->corner[c];
}

#include "selected_chords.h"
