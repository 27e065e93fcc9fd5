/* Cut the faces of a planar subdivision along the zero sets of functions, where nothing is close:
 * what refine.c does, in steps for a GPU.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small a step
 * says so in `status`; all later steps do nothing, and the caller uses its robust method.
 */
#include "steps.h"

typedef struct {
    whole vertices, edges, faces, corners, width, units, words, op;
    whole points, marks, touched, chords, places, crossings, new_corners, bends;
    double uv_error, safety;
    /* The subdivision, and the layer: values, signs, errors, slope jumps, units that count. */
    const double *uv;
    const whole *edge, *offset, *corner, *edge_op, *edge_unit, *vertex_op;
    const double *z;
    const word *positive, *negative;
    const double *error, *jump;
    const unsigned char *wanted;
    whole *status; /* whether something is too close; the most new vertices around one face */
    /* New vertices of each edge (edges + 1), of each corner's side (corners + 1); of each face
     * (faces + 1, four times): faces cut, chords, places of divided boundaries, corners kept. */
    whole *first, *before, *sums;
    /* Per new vertex on an edge, as found and then in order along each edge. */
    double *raw_t, *raw_change;
    whole *raw_unit, *raw_edge;
    double *change, *blur, *point_uv; /* blur: how far rounding may shift it, (points, 2) */
    whole *point_edge, *point_start, *point_end, *point_unit, *point_index;
    double *point_t, *point_bend;
    /* Per mark, which is a new vertex met around a face: vertex, unit, corner, face, the function's
     * other mark there, and how many lower marks come before (marks + 1). */
    whole *mark_point, *mark_unit, *mark_corner, *mark_face, *mate, *lower;
    /* Per place of a divided boundary: half-edge, and twice the chord that ends there (+ 1 for its
     * second end) or -1. */
    whole *half, *ends;
    /* Per chord: face, places and new vertices of its ends, line (6 numbers), slots of later
     * chords taken; crossings with later chords and slots before it (chords + 1, twice). */
    whole *chord_face, *low, *high, *start, *stop, *taken, *slots;
    double *line;
    /* Per crossing: its chords, slots (twice as many) and results. */
    whole *one, *two, *slot, *cross_start, *cross_end, *cross_chord, *cross_slot;
    double *cross_t;
    /* Per slot, as found and in order along each chord: fraction, its error, twice the crossing
     * (+ 1 on its second chord), chord. */
    double *raw_along, *raw_reach;
    whole *raw_met, *raw_chord, *met, *slot_chord, *slot_unit;
    double *slot_t, *reach, *slot_bend;
    /* The refined subdivision. */
    double *made_uv;
    whole *made_edge, *made_offset, *made_corner, *made_edge_op, *made_edge_unit, *made_vertex_op;
} run_t;

DEVICE void too_close(const run_t *r) { r->status[0] = 1; }

/* The last row whose first entry is not after the given one. */
DEVICE whole row_of(const whole *offset, whole rows, whole entry) {
    whole low = 0, high = rows;
    while (high - low > 1) {
        whole middle = (low + high) / 2;
        if (offset[middle] <= entry)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* -- edges ---------------------------------------------------------------------------------- */

DEVICE word changes(const run_t *r, whole e, whole w) {
    whole a = r->edge[2 * e] * r->words + w, b = r->edge[2 * e + 1] * r->words + w;
    return (r->positive[a] & r->negative[b]) | (r->negative[a] & r->positive[b]);
}

DEVICE void count_changes(const run_t *r, whole e) {
    whole count = 0;
    for (whole w = 0; w < r->words; w++) {
        whole a = r->edge[2 * e] * r->words + w, b = r->edge[2 * e + 1] * r->words + w;
        word zero = ~((r->positive[a] | r->negative[a]) & (r->positive[b] | r->negative[b]));
        if (64 * (w + 1) > r->units) zero &= ((word)1 << (r->units & 63)) - 1;
        for (; zero; zero &= zero - 1)
            if (r->wanted[64 * w + LOWEST_BIT(zero)]) too_close(r);
        count += POPCOUNT(changes(r, e, w));
    }
    r->first[e + 1] = count;
    if (e == 0) r->first[0] = 0;
}

DEVICE void count_sides(const run_t *r, whole c) {
    whole e = r->corner[c] >> 1;
    r->before[c + 1] = r->first[e + 1] - r->first[e];
    if (c == 0) r->before[0] = 0;
}

DEVICE void count_faces(const run_t *r, whole f) {
    whole begin = r->offset[f], end = r->offset[f + 1], row = r->faces + 1;
    whole marks = r->before[end] - r->before[begin];
    if (marks & 1) too_close(r);
    AT_LEAST(r->status + 1, marks);
    r->sums[f + 1] = marks > 0;
    r->sums[row + f + 1] = marks / 2;
    r->sums[2 * row + f + 1] = marks > 0 ? end - begin + marks : 0;
    r->sums[3 * row + f + 1] = marks > 0 ? 0 : end - begin;
    if (f == 0)
        for (int k = 0; k < 4; k++) r->sums[k * row] = 0;
}

/* The changes of one word of an edge. */
DEVICE void find_points(const run_t *r, whole item) {
    whole e = item / r->words, last = item % r->words, at = r->first[e];
    word bits = changes(r, e, last);
    if (!bits) return;
    for (whole w = 0; w < last; w++) at += POPCOUNT(changes(r, e, w));
    const double *p = r->z + r->edge[2 * e] * r->units, *q = r->z + r->edge[2 * e + 1] * r->units;
    for (; bits; bits &= bits - 1, at++) {
        whole unit = 64 * last + LOWEST_BIT(bits);
        double change = p[unit] - q[unit];
        r->raw_t[at] = p[unit] / change;
        r->raw_change[at] = fabs(change);
        r->raw_unit[at] = unit;
        r->raw_edge[at] = e;
    }
}

DEVICE void sort_points(const run_t *r, whole i) {
    whole e = r->raw_edge[i], at = r->first[e];
    double t = r->raw_t[i];
    for (whole k = r->first[e]; k < r->first[e + 1]; k++)
        at += r->raw_t[k] < t || (r->raw_t[k] == t && k < i);
    r->point_t[at] = t;
    r->change[at] = r->raw_change[i];
    r->point_unit[at] = r->raw_unit[i];
    r->point_edge[at] = e;
}

/* The point between two others, exact at both ends; a third coordinate is the same at both. */
DEVICE void between(const double *a, const double *b, double t, whole width, double *out) {
    double x = b[0] - a[0], y = b[1] - a[1];
    out[0] = t < 0.5 ? a[0] + t * x : b[0] - (1 - t) * x;
    out[1] = t < 0.5 ? a[1] + t * y : b[1] - (1 - t) * y;
    if (width > 2) out[2] = a[2];
}

DEVICE void place_point(const run_t *r, whole g) {
    whole e = r->point_edge[g], unit = r->point_unit[g];
    whole a = r->edge[2 * e], b = r->edge[2 * e + 1];
    const double *p = r->uv + a * r->width, *q = r->uv + b * r->width;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), t = r->point_t[g];
    double shift = r->error[unit] / r->change[g], reach = shift + r->uv_error / length;
    if (!((t < 1 - t ? t : 1 - t) * length > r->uv_error)) too_close(r);
    if (g > r->first[e]) {
        double other = r->error[r->point_unit[g - 1]] / r->change[g - 1] + r->uv_error / length;
        if (!(t - r->point_t[g - 1] > r->safety * (other + reach))) too_close(r);
    }
    between(p, q, t, r->width, r->point_uv + g * r->width);
    r->blur[2 * g] = x * shift;
    r->blur[2 * g + 1] = y * shift;
    r->point_bend[g] = r->change[g] * r->jump[unit];
    r->point_start[g] = a;
    r->point_end[g] = b;
    r->point_index[g] = g;
}

/* -- chords --------------------------------------------------------------------------------- */

DEVICE void find_marks(const run_t *r, whole m) {
    whole c = row_of(r->before, r->corners, m), e = r->corner[c] >> 1, k = m - r->before[c];
    whole g = r->corner[c] & 1 ? r->first[e + 1] - 1 - k : r->first[e] + k;
    r->mark_point[m] = g;
    r->mark_unit[m] = r->point_unit[g];
    r->mark_corner[m] = c;
    r->mark_face[m] = row_of(r->offset, r->faces, c);
}

DEVICE void find_mates(const run_t *r, whole m) {
    whole f = r->mark_face[m], unit = r->mark_unit[m], mate = m, count = 0;
    whole end = r->before[r->offset[f + 1]];
    for (whole k = r->before[r->offset[f]]; k < end; k++)
        if (k != m && r->mark_unit[k] == unit) {
            mate = k;
            count++;
        }
    if (count != 1) too_close(r);
    r->mate[m] = mate;
    r->lower[m + 1] = mate > m;
    if (m == 0) r->lower[0] = 0;
}

/* Half-edge k of the divided side after a corner. */
DEVICE whole half_of(const run_t *r, whole c, whole k) {
    whole e = r->corner[c] >> 1, back = r->corner[c] & 1;
    whole piece = back ? r->first[e + 1] - r->first[e] - k : k;
    return 2 * (piece == 0 ? e : r->edges + r->first[e] + piece - 1) + back;
}

DEVICE void place_corner(const run_t *r, whole c) {
    whole f = row_of(r->offset, r->faces, c), begin = r->offset[f];
    if (r->sums[f + 1] == r->sums[f]) return;
    whole at = r->sums[2 * (r->faces + 1) + f] + c - begin + r->before[c] - r->before[begin];
    r->half[at] = half_of(r, c, 0);
    r->ends[at] = -1;
}

DEVICE void place_mark(const run_t *r, whole m) {
    whole other = r->mate[m], c = r->mark_corner[m], f = r->mark_face[m], begin = r->offset[f];
    whole chord = r->lower[m < other ? m : other];
    whole at = r->sums[2 * (r->faces + 1) + f] + c - begin + 1 + m - r->before[begin];
    r->half[at] = half_of(r, c, m - r->before[c] + 1);
    r->ends[at] = 2 * chord + (m > other);
    (m < other ? r->low : r->high)[chord] = at;
    (m < other ? r->start : r->stop)[chord] = r->mark_point[m];
    r->chord_face[chord] = f;
}

/* The line of a chord, and how many others it crosses. */
DEVICE void count_crossings(const run_t *r, whole i) {
    whole g = r->start[i], h = r->stop[i];
    const double *p = r->point_uv + g * r->width, *q = r->point_uv + h * r->width;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), *line = r->line + 6 * i;
    if (!(length > r->uv_error)) too_close(r);
    /* Both ends are uncertain; the estimate is better the more steeply the line meets the edge, so
     * the smaller one counts. */
    double one = fabs(r->blur[2 * g] * y - r->blur[2 * g + 1] * x);
    double two = fabs(r->blur[2 * h] * y - r->blur[2 * h + 1] * x);
    line[0] = p[0];
    line[1] = p[1];
    line[2] = x;
    line[3] = y;
    line[4] = length;
    line[5] = (one < two ? one : two) / length + r->uv_error;
    const whole *chords = r->sums + r->faces + 1 + r->chord_face[i];
    whole low = r->low[i], high = r->high[i], later = 0, earlier = 0;
    for (whole j = i + 1; j < chords[1] && r->low[j] < high; j++) later += r->high[j] > high;
    for (whole j = chords[0]; j < i; j++) earlier += r->high[j] > low && r->high[j] < high;
    r->slots[i + 1] = later;
    r->slots[r->chords + 1 + i + 1] = later + earlier;
    r->taken[i] = later;
    if (i == 0) r->slots[0] = r->slots[r->chords + 1] = 0;
}

/* -- crossings ------------------------------------------------------------------------------ */

DEVICE void find_pairs(const run_t *r, whole i) {
    whole last = r->sums[r->faces + 1 + r->chord_face[i] + 1], high = r->high[i], k = r->slots[i];
    for (whole j = i + 1; j < last && r->low[j] < high; j++)
        if (r->high[j] > high) {
            r->one[k] = i;
            r->two[k++] = j;
        }
}

DEVICE void meet(const run_t *r, whole k) {
    whole i = r->one[k], j = r->two[k], *first = r->slots + r->chords + 1;
    const double *p = r->line + 6 * i, *q = r->line + 6 * j;
    double gx = q[0] - p[0], gy = q[1] - p[1], area = p[2] * q[3] - p[3] * q[2];
    /* A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i. */
    double strip = (p[5] + q[5]) / fabs(area);
    whole at = first[i] + k - r->slots[i], then = first[j] + ADD_ONE(r->taken + j);
    if (area == 0) too_close(r);
    r->raw_along[at] = (gx * q[3] - gy * q[2]) / area;
    r->raw_reach[at] = strip * q[4];
    r->raw_met[at] = 2 * k;
    r->raw_chord[at] = i;
    r->raw_along[then] = (gx * p[3] - gy * p[2]) / area;
    r->raw_reach[then] = strip * p[4];
    r->raw_met[then] = 2 * k + 1;
    r->raw_chord[then] = j;
}

DEVICE void sort_slots(const run_t *r, whole k) {
    whole i = r->raw_chord[k], *first = r->slots + r->chords + 1 + i, at = first[0];
    double s = r->raw_along[k];
    for (whole j = first[0]; j < first[1]; j++)
        at += r->raw_along[j] < s || (r->raw_along[j] == s && j < k);
    r->slot_t[at] = s;
    r->reach[at] = r->raw_reach[k];
    r->met[at] = r->raw_met[k];
    r->slot_chord[at] = i;
    r->slot[r->raw_met[k]] = at;
}

DEVICE void write_edge(const run_t *r, whole e, whole a, whole b, whole op, whole unit) {
    r->made_edge[2 * e] = a;
    r->made_edge[2 * e + 1] = b;
    r->made_edge_op[e] = op;
    r->made_edge_unit[e] = unit;
}

/* The vertex before a slot, or before the end of a chord. */
DEVICE whole vertex_before(const run_t *r, whole i, whole k) {
    if (k == r->slots[r->chords + 1 + i]) return r->vertices + r->start[i];
    return r->vertices + r->points + (r->met[k - 1] >> 1);
}

/* Check a slot, and write the piece of its chord that ends there, and the slope change. */
DEVICE void write_slot(const run_t *r, whole k) {
    whole i = r->slot_chord[k], other = r->slot_chord[r->slot[r->met[k] ^ 1]];
    whole unit = r->point_unit[r->start[other]], n = r->units;
    double s = r->slot_t[k], reach = r->reach[k], end = r->uv_error / r->line[6 * i + 4];
    if (!((s < 1 - s ? s : 1 - s) > r->safety * (reach + end))) too_close(r);
    if (k > r->slots[r->chords + 1 + i] &&
        !(s - r->slot_t[k - 1] > r->safety * (reach + r->reach[k - 1])))
        too_close(r);
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k),
               r->vertices + r->points + (r->met[k] >> 1), r->op, r->point_unit[r->start[i]]);
    if (!r->bends) return;
    /* The farther end of the chord tells best how steep the other function is. */
    whole g = s > 0.5 ? r->start[i] : r->stop[i];
    double p = r->z[r->point_start[g] * n + unit], q = r->z[r->point_end[g] * n + unit];
    double value = fabs(p + r->point_t[g] * (q - p)) / (s > 0.5 ? s : 1 - s);
    r->slot_unit[k] = unit;
    r->slot_bend[k] = r->jump[unit] * value;
}

/* The last piece of a chord. */
DEVICE void write_chord(const run_t *r, whole i) {
    whole k = r->slots[r->chords + 1 + i + 1];
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k), r->vertices + r->stop[i],
               r->op, r->point_unit[r->start[i]]);
}

DEVICE void write_crossing(const run_t *r, whole k) {
    whole i = r->one[k], at = r->slot[2 * k], g = r->start[i], h = r->stop[i], width = r->width;
    whole vertex = r->vertices + r->points + k;
    r->cross_start[k] = r->vertices + g;
    r->cross_end[k] = r->vertices + h;
    r->cross_chord[k] = i;
    r->cross_slot[k] = at;
    r->cross_t[k] = r->slot_t[at];
    between(r->point_uv + g * width, r->point_uv + h * width, r->slot_t[at], width,
            r->made_uv + vertex * width);
    r->made_vertex_op[vertex] = r->op;
}

/* -- the refined subdivision ---------------------------------------------------------------- */

DEVICE void write_vertex(const run_t *r, whole v) {
    for (whole k = 0; k < r->width; k++) r->made_uv[v * r->width + k] = r->uv[v * r->width + k];
    r->made_vertex_op[v] = r->vertex_op[v];
}

DEVICE void write_edge_start(const run_t *r, whole e) {
    whole cut = r->first[e + 1] > r->first[e];
    write_edge(r, e, r->edge[2 * e], cut ? r->vertices + r->first[e] : r->edge[2 * e + 1],
               r->edge_op[e], r->edge_unit[e]);
}

DEVICE void write_point(const run_t *r, whole g) {
    whole e = r->point_edge[g], v = r->vertices + g, width = r->width;
    write_edge(r, r->edges + g, v, g + 1 < r->first[e + 1] ? v + 1 : r->edge[2 * e + 1],
               r->edge_op[e], r->edge_unit[e]);
    for (whole k = 0; k < width; k++) r->made_uv[v * width + k] = r->point_uv[g * width + k];
    r->made_vertex_op[v] = r->op;
}

/* Walk around a new face: its size, and its half-edges if they are wanted. Faces begin at the first
 * corner of each face that is cut, at the lower end of each chord and at each crossing. */
DEVICE whole walk(const run_t *r, whole face, whole *out) {
    const whole *first = r->slots + r->chords + 1;
    whole place = 0, slot = -1, i = 0, up = 1, size = 0, old, half;
    whole pieces = r->edges + r->points, limit = r->new_corners;
    if (face < r->touched) {
        old = row_of(r->sums, r->faces, face);
        place = r->sums[2 * (r->faces + 1) + old];
    } else if (face < r->touched + r->chords) {
        i = face - r->touched;
        old = r->chord_face[i];
        place = r->low[i];
    } else {
        slot = r->slot[2 * (face - r->touched - r->chords)];
        i = r->slot_chord[slot];
        old = r->chord_face[i];
    }
    whole end = r->sums[2 * (r->faces + 1) + old + 1], inside = slot >= 0;
    while (size < limit) {
        if (!inside) { /* along the boundary, up to the next chord */
            half = r->half[place++];
            if (out) out[size] = half;
            size++;
            if (place == end) return size;
            if (r->ends[place] < 0) continue;
            i = r->ends[place] >> 1;
            up = !(r->ends[place] & 1);
            slot = up ? first[i] - 1 : first[i + 1];
            inside = 1;
            if (size == limit) break;
        }
        half = 2 * (pieces + slot + up + i) + !up; /* the piece after this slot, or before it */
        if (out) out[size] = half;
        size++;
        slot += up ? 1 : -1;
        if (up && slot == first[i + 1]) {
            place = r->high[i];
            inside = 0;
            continue;
        }
        if (!up && (slot < first[i] || (r->met[slot] & 1))) return size;
        if (up) up = !(r->met[slot] & 1);
        slot = r->slot[r->met[slot] ^ 1];
        i = r->slot_chord[slot];
    }
    too_close(r);
    return size;
}

DEVICE void measure_face(const run_t *r, whole face) {
    r->made_offset[r->faces - r->touched + face + 1] = walk(r, face, 0);
}

DEVICE void measure_kept(const run_t *r, whole f) {
    whole at = f - r->sums[f];
    if (r->sums[f + 1] == r->sums[f]) r->made_offset[at + 1] = r->offset[f + 1] - r->offset[f];
    if (f == 0) r->made_offset[0] = 0;
}

DEVICE void write_face(const run_t *r, whole face) {
    const whole *offset = r->made_offset + r->faces - r->touched;
    if (offset[r->touched + r->chords + r->crossings] != r->new_corners)
        too_close(r);
    else
        walk(r, face, r->made_corner + offset[face]);
}

DEVICE void write_corner(const run_t *r, whole c) {
    whole f = row_of(r->offset, r->faces, c);
    if (r->sums[f + 1] == r->sums[f])
        r->made_corner[r->made_offset[f - r->sums[f]] + c - r->offset[f]] = r->corner[c];
}

STEP(count_changes)
STEP(count_sides)
STEP(count_faces)
STEP(find_points)
STEP(sort_points)
STEP(place_point)
STEP(find_marks)
STEP(find_mates)
STEP(place_corner)
STEP(place_mark)
STEP(count_crossings)
STEP(find_pairs)
STEP(meet)
STEP(sort_slots)
STEP(write_slot)
STEP(write_chord)
STEP(write_crossing)
STEP(write_vertex)
STEP(write_edge_start)
STEP(write_point)
STEP(measure_face)
STEP(measure_kept)
STEP(write_face)
STEP(write_corner)
