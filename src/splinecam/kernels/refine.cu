/* Cut the faces of a planar subdivision along the zero sets of functions, where nothing is close:
 * what refine.c does, in steps for a GPU.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small a step
 * says so in `status`; all later steps do nothing, and the caller uses its robust method.
 */
#include "steps.h"

typedef struct {
    i64 vertices, edges, faces, corners, width, units, words, layer;
    i64 points, marks, touched, chords, places, crossings, new_corners, has_breakpoints;
    i64 selected, first_new; /* chords that are given; vertices that were not made since */
    double uv_error, safety;
    /* The subdivision, and the layer: values, signs, errors, slope jumps, units that count. */
    const double *uv;
    const i64 *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    const double *z;
    const u64 *positive, *negative;
    const double *error, *slope_difference;
    const unsigned char *wanted;
    /* Chosen chords, ordered by key: (face * units + one unit) * units + another one, and what is
     * to be the unit of its edges. Of vertices from `first_new` on: between which ones they lie, and how
     * far their place there may be off. */
    const i64 *key, *selected_unit, *parents;
    const double *parents_t_error;
    i64 *status; /* whether something is too close; the most new vertices around one face */
    /* New vertices of each edge (edges + 1), of each corner's side (corners + 1); of each face
     * (faces + 1, four times): faces cut, chords, places of divided boundaries, corners kept. */
    i64 *first, *side_first, *face_sums;
    /* Per new vertex on an edge, as found and then in order along each edge. */
    double *raw_t, *raw_change;
    i64 *raw_unit, *raw_edge;
    double *change, *position_error, *point_uv; /* position_error: how far rounding may t_error it, (points, 2) */
    i64 *point_edge, *point_start, *point_end, *point_unit, *point_index;
    double *point_t, *point_slope_change;
    /* Per mark, which is a new vertex slot_crossing around a face: vertex, unit, corner, face, the function's
     * other mark there, and how many lower_before marks come side_first (marks + 1). */
    i64 *mark_point, *mark_unit, *mark_corner, *mark_face, *partner, *lower_before;
    /* Changes of sign of given chords: those side_first each edge (edges + 1, at first `first`), found on
     * each edge, new vertices side_first each (2 selected + 1), and faces halfedge_face half-edges. */
    i64 *sign_changes, *sign_changes_taken, *distinct, *halfedge_face;
    double *t_error; /* the error of a new vertex as a fraction of its edge */
    /* Per end of a given chord: twice the corner (+ 1 if it is on the side after that), place,
     * vertex, and how far rounding may t_error it. */
    i64 *selected_end, *selected_place, *selected_vertex;
    double *selected_error;
    /* Per place of a divided boundary: half-edge, and twice the chord that ends there (+ 1 for its
     * second end) or -1. */
    i64 *half, *ends;
    /* Per chord: face, unit, places and vertices of its ends, how far rounding may t_error these (4
     * numbers), line (6 numbers), slots of later chords slots_taken; crossings with later chords and
     * slots side_first it (chords + 1, twice). */
    i64 *chord_face, *chord_unit, *low, *high, *start, *stop, *slots_taken, *slots;
    double *end_error, *line;
    /* Per crossing: its chords, slots (twice as many) and results. */
    i64 *one, *two, *slot, *cross_start, *cross_end, *cross_chord, *cross_slot;
    double *cross_t;
    /* Per slot, as found and in order along each chord: fraction, its error, twice the crossing
     * (+ 1 on its second chord), chord. */
    double *raw_along, *raw_reach;
    i64 *raw_crossing, *raw_chord, *slot_crossing, *slot_chord, *slot_unit;
    double *slot_t, *reach, *slot_slope_change;
    /* The refined subdivision. */
    double *made_uv;
    i64 *made_edge, *made_offset, *made_corner, *made_edge_layer, *made_edge_unit, *made_vertex_layer;
} run_t;

DEVICE void give_up(const run_t *r) { r->status[0] = 1; }

/* The last row whose first entry is not after the given one. */
DEVICE i64 row_of(const i64 *offset, i64 rows, i64 entry) {
    i64 low = 0, high = rows;
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (offset[middle] <= entry)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How many of the given chords have lower_before keys. */
DEVICE i64 keys_below(const run_t *r, i64 key) {
    i64 low = 0, high = r->selected;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (r->key[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

DEVICE i64 selected_before(const run_t *r, i64 f) {
    return keys_below(r, f * r->units * r->units);
}

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

/* The changes of one u64 of an edge. */
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

/* The point between two others, exact at both ends; a third coordinate is the same at both. */
DEVICE void between(const double *a, const double *b, double t, i64 width, double *out) {
    double x = b[0] - a[0], y = b[1] - a[1];
    out[0] = t < 0.5 ? a[0] + t * x : b[0] - (1 - t) * x;
    out[1] = t < 0.5 ? a[1] + t * y : b[1] - (1 - t) * y;
    if (width > 2) out[2] = a[2];
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
    if (r->face_sums[f + 1] == r->face_sums[f]) return;
    i64 at = r->face_sums[2 * (r->faces + 1) + f] + c - begin + r->side_first[c] - r->side_first[begin];
    i64 sides = r->selected ? r->side_first[c + 1] - r->side_first[c] : 0; /* others have marks there */
    for (i64 k = 0; k <= sides; k++, at++) {
        r->half[at] = half_of(r, c, k);
        r->ends[at] = -1;
    }
}

STEP(place_mark, m) {
    i64 other = r->partner[m], c = r->mark_corner[m], f = r->mark_face[m], begin = r->offset[f];
    i64 chord = r->lower_before[m < other ? m : other];
    i64 at = r->face_sums[2 * (r->faces + 1) + f] + c - begin + 1 + m - r->side_first[begin];
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

/* A vertex that is first_new, or lies on an edge. */
DEVICE const double *place_of(const run_t *r, i64 v) {
    return v < r->vertices ? r->uv + v * r->width : r->point_uv + (v - r->vertices) * r->width;
}

/* The line of a chord, and how many others it crosses. */
STEP(count_crossings, i) {
    const double *p = place_of(r, r->start[i]), *q = place_of(r, r->stop[i]);
    const double *position_error = r->end_error + 4 * i;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), *line = r->line + 6 * i;
    if (!(length > r->uv_error)) give_up(r);
    /* Both ends are uncertain; the estimate is better the more steeply the line meets the edge, so
     * the smaller one counts. */
    double one = fabs(position_error[0] * y - position_error[1] * x), two = fabs(position_error[2] * y - position_error[3] * x);
    line[0] = p[0];
    line[1] = p[1];
    line[2] = x;
    line[3] = y;
    line[4] = length;
    line[5] = (one < two ? one : two) / length + r->uv_error;
    const i64 *chords = r->face_sums + r->faces + 1 + r->chord_face[i];
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
    i64 last = r->face_sums[r->faces + 1 + r->chord_face[i] + 1], high = r->high[i], k = r->slots[i];
    for (i64 j = i + 1; j < last && r->low[j] < high; j++)
        if (r->high[j] > high) {
            r->one[k] = i;
            r->two[k++] = j;
        }
}

STEP(find_crossing, k) {
    i64 i = r->one[k], j = r->two[k], *first = r->slots + r->chords + 1;
    const double *p = r->line + 6 * i, *q = r->line + 6 * j;
    double gx = q[0] - p[0], gy = q[1] - p[1], area = p[2] * q[3] - p[3] * q[2];
    /* A strip of width w around j, slot_crossing at the angle of i and j, is |dj| / |area| * w long on i. */
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
    i64 i = r->raw_chord[k], *first = r->slots + r->chords + 1 + i, at = first[0];
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

/* The vertex side_first a slot, or side_first the end of a chord. */
DEVICE i64 vertex_before(const run_t *r, i64 i, i64 k) {
    if (k == r->slots[r->chords + 1 + i]) return r->start[i];
    return r->vertices + r->points + (r->slot_crossing[k - 1] >> 1);
}

/* Check a slot, and write the piece of its chord that ends there, and the slope change. */
STEP(write_slot, k) {
    i64 i = r->slot_chord[k], other = r->slot_chord[r->slot[r->slot_crossing[k] ^ 1]];
    i64 unit = r->chord_unit[other], n = r->units;
    double s = r->slot_t[k], reach = r->reach[k], end = r->uv_error / r->line[6 * i + 4];
    if (!((s < 1 - s ? s : 1 - s) > r->safety * (reach + end))) give_up(r);
    if (k > r->slots[r->chords + 1 + i] &&
        !(s - r->slot_t[k - 1] > r->safety * (reach + r->reach[k - 1])))
        give_up(r);
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k),
               r->vertices + r->points + (r->slot_crossing[k] >> 1), r->layer, r->chord_unit[i]);
    if (!r->has_breakpoints) return;
    /* The farther end of the chord tells best how steep the other function is. */
    i64 g = (s > 0.5 ? r->start[i] : r->stop[i]) - r->vertices;
    double p = r->z[r->point_start[g] * n + unit], q = r->z[r->point_end[g] * n + unit];
    double value = fabs(p + r->point_t[g] * (q - p)) / (s > 0.5 ? s : 1 - s);
    r->slot_unit[k] = unit;
    r->slot_slope_change[k] = r->slope_difference[unit] * value;
}

/* The last piece of a chord. */
STEP(write_chord, i) {
    i64 k = r->slots[r->chords + 1 + i + 1];
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

/* Walk around a new face: its size, and its half-edges if they are wanted. Faces begin at the first
 * corner of each face that is cut, at the lower_before end of each chord and at each crossing. */
DEVICE i64 walk(const run_t *r, i64 face, i64 *out) {
    const i64 *first = r->slots + r->chords + 1;
    i64 place = 0, slot = -1, i = 0, up = 1, size = 0, first_new, half;
    i64 pieces = r->edges + r->points, limit = r->new_corners;
    if (face < r->touched) {
        first_new = row_of(r->face_sums, r->faces, face);
        place = r->face_sums[2 * (r->faces + 1) + first_new];
    } else if (face < r->touched + r->chords) {
        i = face - r->touched;
        first_new = r->chord_face[i];
        place = r->low[i];
    } else {
        slot = r->slot[2 * (face - r->touched - r->chords)];
        i = r->slot_chord[slot];
        first_new = r->chord_face[i];
    }
    i64 end = r->face_sums[2 * (r->faces + 1) + first_new + 1], inside = slot >= 0;
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
        half = 2 * (pieces + slot + up + i) + !up; /* the piece after this slot, or side_first it */
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
    if (r->face_sums[f + 1] == r->face_sums[f]) r->made_offset[at + 1] = r->offset[f + 1] - r->offset[f];
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
    if (r->face_sums[f + 1] == r->face_sums[f])
        r->made_corner[r->made_offset[f - r->face_sums[f]] + c - r->offset[f]] = r->corner[c];
}

/* -- given chords --------------------------------------------------------------------------- */

/* A chord that is to be drawn: where two units are equal in a face. */
typedef struct {
    i64 face, column, one, two, begin, end; /* the face's corners */
    double error;
} selected_t;

DEVICE selected_t selected_of(const run_t *r, i64 i) {
    i64 n = r->units, face = r->key[i] / (n * n), column = r->key[i] % (n * n);
    i64 one = column / n, two = column % n;
    selected_t s = {face, column, one, two, r->offset[face], r->offset[face + 1], 0};
    s.error = r->error[one] + r->error[two];
    return s;
}

DEVICE double difference(const run_t *r, const selected_t *s, i64 v) {
    return r->z[v * r->units + s->one] - r->z[v * r->units + s->two];
}

DEVICE i64 sign_at(const run_t *r, const selected_t *s, i64 c) {
    double value = difference(r, s, r->edge[r->corner[c]]), slack = r->safety * s->error;
    return (value > slack) - (value < -slack);
}

/* Whether a value that counts as zero is farther from it than rounding explains. */
DEVICE int unclear(const run_t *r, const selected_t *s, i64 v) {
    double reach = s->error;
    if (v >= r->first_new) {
        const i64 *ends = r->parents + 2 * (v - r->first_new);
        double change = difference(r, s, ends[0]) - difference(r, s, ends[1]);
        reach += fabs(change) * r->parents_t_error[v - r->first_new];
    }
    return !(fabs(difference(r, s, v)) <= reach);
}

/* Whether the change of sign on the side after a corner is this face's to note, and not that of the
 * face beyond, in which the same chord is drawn. */
DEVICE int notes(const run_t *r, const selected_t *s, i64 c) {
    i64 half = r->corner[c], other = r->halfedge_face[half ^ 1], key;
    if (!(half & 1) || other < 0) return 1;
    key = other * r->units * r->units + s->column;
    i64 at = keys_below(r, key);
    return at == r->selected || r->key[at] != key;
}

STEP(find_halfedge_faces, c) {
    r->halfedge_face[r->corner[c]] = row_of(r->offset, r->faces, c);
}

/* Where the function of a chord changes its sign: on two sides, or at corners; of a run of zeros
 * the first corner stands for all. */
STEP(find_ends, i) {
    selected_t s = selected_of(r, i);
    i64 found = 0, at[2];
    for (i64 k = s.begin; k < s.end; k++) {
        i64 sign = sign_at(r, &s, k), next = k + 1 < s.end ? k + 1 : s.begin, walk = next;
        if (sign == 0 && unclear(r, &s, r->edge[r->corner[k]])) give_up(r);
        if (sign == 0) continue;
        while (walk != k && sign_at(r, &s, walk) == 0) walk = walk + 1 < s.end ? walk + 1 : s.begin;
        if (sign_at(r, &s, walk) != -sign) continue;
        if (found < 2) at[found] = walk == next ? 2 * k + 1 : 2 * next;
        found++;
    }
    if (found != 2) {
        give_up(r);
        return;
    }
    r->selected_end[2 * i] = at[0] < at[1] ? at[0] : at[1];
    r->selected_end[2 * i + 1] = at[0] < at[1] ? at[1] : at[0];
    for (int k = 0; k < 2; k++)
        if ((at[k] & 1) && notes(r, &s, at[k] >> 1))
            ADD_ONE(r->sign_changes + (r->corner[at[k] >> 1] >> 1) + 1);
}

STEP(find_sign_changes, m) {
    selected_t s = selected_of(r, m / 2);
    i64 c = r->selected_end[m] >> 1, e = r->corner[c] >> 1;
    if (!(r->selected_end[m] & 1) || !notes(r, &s, c)) return;
    i64 at = r->sign_changes[e] + ADD_ONE(r->sign_changes_taken + e);
    double value = difference(r, &s, r->edge[2 * e]);
    double change = value - difference(r, &s, r->edge[2 * e + 1]);
    r->raw_t[at] = value / change;
    r->raw_change[at] = fabs(change);
    r->raw_unit[at] = s.column;
    r->raw_edge[at] = e;
}

DEVICE double length_of(const run_t *r, i64 e) {
    const double *p = r->uv + r->edge[2 * e] * r->width, *q = r->uv + r->edge[2 * e + 1] * r->width;
    return sqrt((q[0] - p[0]) * (q[0] - p[0]) + (q[1] - p[1]) * (q[1] - p[1]));
}

DEVICE double t_error_of(const run_t *r, i64 h) {
    i64 n = r->units, column = r->raw_unit[h];
    return (r->error[column / n] + r->error[column % n]) / r->raw_change[h];
}

DEVICE double reach_of(const run_t *r, i64 h) {
    return t_error_of(r, h) + r->uv_error / length_of(r, r->raw_edge[h]);
}

/* Whether a change of sign is at the same place as the one side_first it on its edge. */
DEVICE int repeats(const run_t *r, i64 h) {
    if (h >= r->sign_changes[r->edges] || h == r->sign_changes[r->raw_edge[h]]) return 0;
    return r->raw_t[h] - r->raw_t[h - 1] <= r->safety * (reach_of(r, h) + reach_of(r, h - 1));
}

/* Two changes of sign may have one vertex, as where three units are equal; not more. */
STEP(merge_sign_changes, h) {
    if (h >= r->sign_changes[r->edges]) return;
    r->distinct[h + 1] = !repeats(r, h);
    if (!repeats(r, h)) return;
    if (repeats(r, h - 1) || repeats(r, h + 1) ||
        r->raw_t[h] - r->raw_t[h - 1] > reach_of(r, h) + reach_of(r, h - 1))
        give_up(r);
}

STEP(count_points, e) { r->first[e] = r->distinct[r->sign_changes[e]]; }

STEP(merge_points, h) {
    if (h >= r->sign_changes[r->edges] || r->distinct[h + 1] == r->distinct[h]) return;
    i64 best = repeats(r, h + 1) && reach_of(r, h + 1) < reach_of(r, h) ? h + 1 : h;
    i64 g = r->distinct[h], e = r->raw_edge[h], a = r->edge[2 * e], b = r->edge[2 * e + 1];
    double t = r->raw_t[best];
    if (!((t < 1 - t ? t : 1 - t) * length_of(r, e) > r->uv_error)) give_up(r);
    between(r->uv + a * r->width, r->uv + b * r->width, t, r->width, r->point_uv + g * r->width);
    r->point_edge[g] = e;
    r->point_start[g] = a;
    r->point_end[g] = b;
    r->point_t[g] = t;
    r->t_error[g] = reach_of(r, best);
}

STEP(place_end, m) {
    selected_t s = selected_of(r, m / 2);
    i64 c = r->selected_end[m] >> 1, half = r->corner[c], e = half >> 1, a, b;
    i64 place = r->face_sums[2 * (r->faces + 1) + s.face] + c - s.begin;
    double t_error;
    place += r->side_first[c] - r->side_first[s.begin];
    if (r->selected_end[m] & 1) {
        i64 h = r->sign_changes[e];
        while (h + 1 < r->sign_changes[e + 1] && r->raw_unit[h] != s.column) h++;
        i64 g = r->distinct[h + 1] - 1;
        place += half & 1 ? r->first[e + 1] - g : 1 + g - r->first[e];
        r->selected_vertex[m] = r->vertices + g;
        a = r->edge[2 * e];
        b = r->edge[2 * e + 1];
        t_error = t_error_of(r, h);
    } else {
        a = r->selected_vertex[m] = r->edge[half];
        b = r->edge[r->corner[c > s.begin ? c - 1 : s.end - 1]];
        t_error = s.error / fabs(difference(r, &s, b));
    }
    const double *p = r->uv + a * r->width, *q = r->uv + b * r->width;
    r->selected_place[m] = place;
    r->selected_error[2 * m] = (q[0] - p[0]) * t_error;
    r->selected_error[2 * m + 1] = (q[1] - p[1]) * t_error;
}

/* Chords are numbered by their lower_before ends. */
STEP(place_selected, i) {
    i64 f = selected_of(r, i).face, begin = selected_before(r, f), end = selected_before(r, f + 1);
    i64 low = r->selected_place[2 * i], high = r->selected_place[2 * i + 1], chord = begin;
    const i64 *places = r->face_sums + 2 * (r->faces + 1) + f;
    if (high - low < 2 || high - low > places[1] - places[0] - 2) give_up(r);
    for (i64 j = begin; j < end; j++) {
        i64 p = r->selected_place[2 * j], q = r->selected_place[2 * j + 1];
        if (j != i && (p == low || p == high || q == low || q == high)) give_up(r);
        chord += p < low;
    }
    for (int k = 0; k < 4; k++) r->end_error[4 * chord + k] = r->selected_error[4 * i + k];
    r->chord_face[chord] = f;
    r->chord_unit[chord] = r->selected_unit[i];
    r->low[chord] = low;
    r->high[chord] = high;
    r->start[chord] = r->selected_vertex[2 * i];
    r->stop[chord] = r->selected_vertex[2 * i + 1];
    r->ends[low] = 2 * chord;
    r->ends[high] = 2 * chord + 1;
}

/* Faces with one chord at most: the part to the left of the chord keeps the face's number. */
STEP(measure_half, f) {
    const i64 *places = r->face_sums + 2 * (r->faces + 1) + f, *chords = r->face_sums + r->faces + 1 + f;
    i64 i = chords[0], size = places[1] - places[0];
    if (f == 0) r->made_offset[0] = 0;
    if (chords[1] > i) {
        i64 left = r->high[i] - r->low[i];
        r->made_offset[r->faces + i + 1] = size - left + 1;
        size = left + 1;
    }
    r->made_offset[f + 1] = size ? size : r->offset[f + 1] - r->offset[f];
}

STEP(write_half, f) {
    const i64 *places = r->face_sums + 2 * (r->faces + 1) + f, *chords = r->face_sums + r->faces + 1 + f;
    i64 i = chords[0], *out = r->made_corner + r->made_offset[f], k;
    i64 chord = 2 * (r->edges + r->points + i);
    if (r->face_sums[f + 1] == r->face_sums[f])
        for (k = r->offset[f]; k < r->offset[f + 1]; k++) *out++ = r->corner[k];
    else if (chords[1] == i)
        for (k = places[0]; k < places[1]; k++) *out++ = r->half[k];
    else {
        for (k = r->low[i]; k < r->high[i]; k++) *out++ = r->half[k];
        *out = chord + 1;
        out = r->made_corner + r->made_offset[r->faces + i];
        for (k = r->high[i]; k < places[1]; k++) *out++ = r->half[k];
        for (k = places[0]; k < r->low[i]; k++) *out++ = r->half[k];
        *out = chord;
    }
}
