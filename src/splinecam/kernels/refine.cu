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
    whole strokes, old; /* chords that are given; vertices that were not made since */
    double uv_error, safety;
    /* The subdivision, and the layer: values, signs, errors, slope jumps, units that count. */
    const double *uv;
    const whole *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    const double *z;
    const word *positive, *negative;
    const double *error, *jump;
    const unsigned char *wanted;
    /* Chosen chords, ordered by key: (face * units + one unit) * units + another one, and what is
     * to be the unit of its edges. Of vertices from `old` on: between which ones they lie, and how
     * far their place there may be off. */
    const whole *key, *stroke_unit, *born;
    const double *born_blur;
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
    /* Changes of sign of given chords: those before each edge (edges + 1, at first `first`), found on
     * each edge, new vertices before each (2 strokes + 1), and faces beside half-edges. */
    whole *hits, *taken_hits, *fresh, *beside;
    double *shift; /* the error of a new vertex as a fraction of its edge */
    /* Per end of a given chord: twice the corner (+ 1 if it is on the side after that), place,
     * vertex, and how far rounding may shift it. */
    whole *stroke_end, *stroke_place, *stroke_vertex;
    double *stroke_blur;
    /* Per place of a divided boundary: half-edge, and twice the chord that ends there (+ 1 for its
     * second end) or -1. */
    whole *half, *ends;
    /* Per chord: face, unit, places and vertices of its ends, how far rounding may shift these (4
     * numbers), line (6 numbers), slots of later chords taken; crossings with later chords and
     * slots before it (chords + 1, twice). */
    whole *chord_face, *chord_unit, *low, *high, *start, *stop, *taken, *slots;
    double *end_blur, *line;
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

/* How many of the given chords have lower keys. */
DEVICE whole keys_below(const run_t *r, whole key) {
    whole low = 0, high = r->strokes;
    while (low < high) {
        whole middle = (low + high) / 2;
        if (r->key[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

DEVICE whole strokes_before(const run_t *r, whole f) {
    return keys_below(r, f * r->units * r->units);
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
    whole marks = r->before[end] - r->before[begin], chords = marks / 2;
    if (r->strokes)
        chords = strokes_before(r, f + 1) - strokes_before(r, f);
    else if (marks & 1)
        too_close(r);
    whole touched = marks > 0 || chords > 0;
    AT_LEAST(r->status + 1, 2 * chords);
    r->sums[f + 1] = touched;
    r->sums[row + f + 1] = chords;
    r->sums[2 * row + f + 1] = touched ? end - begin + marks : 0;
    r->sums[3 * row + f + 1] = touched ? 0 : end - begin;
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
    if (i >= r->first[r->edges]) return;
    whole e = r->raw_edge[i], at = r->first[e];
    double t = r->raw_t[i];
    for (whole k = r->first[e]; k < r->first[e + 1]; k++)
        at += r->raw_t[k] < t || (r->raw_t[k] == t && r->raw_unit[k] < r->raw_unit[i]);
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
    whole sides = r->strokes ? r->before[c + 1] - r->before[c] : 0; /* others have marks there */
    for (whole k = 0; k <= sides; k++, at++) {
        r->half[at] = half_of(r, c, k);
        r->ends[at] = -1;
    }
}

DEVICE void place_mark(const run_t *r, whole m) {
    whole other = r->mate[m], c = r->mark_corner[m], f = r->mark_face[m], begin = r->offset[f];
    whole chord = r->lower[m < other ? m : other];
    whole at = r->sums[2 * (r->faces + 1) + f] + c - begin + 1 + m - r->before[begin];
    r->half[at] = half_of(r, c, m - r->before[c] + 1);
    r->ends[at] = 2 * chord + (m > other);
    (m < other ? r->low : r->high)[chord] = at;
    whole g = r->mark_point[m], at_blur = 4 * chord + 2 * (m > other);
    (m < other ? r->start : r->stop)[chord] = r->vertices + g;
    r->end_blur[at_blur] = r->blur[2 * g];
    r->end_blur[at_blur + 1] = r->blur[2 * g + 1];
    r->chord_face[chord] = f;
    r->chord_unit[chord] = r->mark_unit[m];
}

/* A vertex that is old, or lies on an edge. */
DEVICE const double *place_of(const run_t *r, whole v) {
    return v < r->vertices ? r->uv + v * r->width : r->point_uv + (v - r->vertices) * r->width;
}

/* The line of a chord, and how many others it crosses. */
DEVICE void count_crossings(const run_t *r, whole i) {
    const double *p = place_of(r, r->start[i]), *q = place_of(r, r->stop[i]);
    const double *blur = r->end_blur + 4 * i;
    double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y), *line = r->line + 6 * i;
    if (!(length > r->uv_error)) too_close(r);
    /* Both ends are uncertain; the estimate is better the more steeply the line meets the edge, so
     * the smaller one counts. */
    double one = fabs(blur[0] * y - blur[1] * x), two = fabs(blur[2] * y - blur[3] * x);
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
    if (k == r->slots[r->chords + 1 + i]) return r->start[i];
    return r->vertices + r->points + (r->met[k - 1] >> 1);
}

/* Check a slot, and write the piece of its chord that ends there, and the slope change. */
DEVICE void write_slot(const run_t *r, whole k) {
    whole i = r->slot_chord[k], other = r->slot_chord[r->slot[r->met[k] ^ 1]];
    whole unit = r->chord_unit[other], n = r->units;
    double s = r->slot_t[k], reach = r->reach[k], end = r->uv_error / r->line[6 * i + 4];
    if (!((s < 1 - s ? s : 1 - s) > r->safety * (reach + end))) too_close(r);
    if (k > r->slots[r->chords + 1 + i] &&
        !(s - r->slot_t[k - 1] > r->safety * (reach + r->reach[k - 1])))
        too_close(r);
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k),
               r->vertices + r->points + (r->met[k] >> 1), r->op, r->chord_unit[i]);
    if (!r->bends) return;
    /* The farther end of the chord tells best how steep the other function is. */
    whole g = (s > 0.5 ? r->start[i] : r->stop[i]) - r->vertices;
    double p = r->z[r->point_start[g] * n + unit], q = r->z[r->point_end[g] * n + unit];
    double value = fabs(p + r->point_t[g] * (q - p)) / (s > 0.5 ? s : 1 - s);
    r->slot_unit[k] = unit;
    r->slot_bend[k] = r->jump[unit] * value;
}

/* The last piece of a chord. */
DEVICE void write_chord(const run_t *r, whole i) {
    whole k = r->slots[r->chords + 1 + i + 1];
    write_edge(r, r->edges + r->points + k + i, vertex_before(r, i, k), r->stop[i],
               r->op, r->chord_unit[i]);
}

DEVICE void write_crossing(const run_t *r, whole k) {
    whole i = r->one[k], at = r->slot[2 * k], g = r->start[i], h = r->stop[i], width = r->width;
    whole vertex = r->vertices + r->points + k;
    r->cross_start[k] = g;
    r->cross_end[k] = h;
    r->cross_chord[k] = i;
    r->cross_slot[k] = at;
    r->cross_t[k] = r->slot_t[at];
    between(place_of(r, g), place_of(r, h), r->slot_t[at], width, r->made_uv + vertex * width);
    r->made_vertex_op[vertex] = r->op;
}

/* -- the refined subdivision ---------------------------------------------------------------- */

DEVICE void write_vertex(const run_t *r, whole v) {
    for (whole k = 0; k < r->width; k++) r->made_uv[v * r->width + k] = r->uv[v * r->width + k];
    r->made_vertex_op[v] = r->vertex_layer[v];
}

DEVICE void write_edge_start(const run_t *r, whole e) {
    whole cut = r->first[e + 1] > r->first[e];
    write_edge(r, e, r->edge[2 * e], cut ? r->vertices + r->first[e] : r->edge[2 * e + 1],
               r->edge_layer[e], r->edge_unit[e]);
}

DEVICE void write_point(const run_t *r, whole g) {
    whole e = r->point_edge[g], v = r->vertices + g, width = r->width;
    write_edge(r, r->edges + g, v, g + 1 < r->first[e + 1] ? v + 1 : r->edge[2 * e + 1],
               r->edge_layer[e], r->edge_unit[e]);
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
    whole leaves = face < r->touched && r->ends[place] >= 0; /* by a chord at the first corner */
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

/* -- given chords --------------------------------------------------------------------------- */

/* A chord that is to be drawn: where two units are equal in a face. */
typedef struct {
    whole face, column, one, two, begin, end; /* the face's corners */
    double error;
} stroke_t;

DEVICE stroke_t stroke_of(const run_t *r, whole i) {
    whole n = r->units, face = r->key[i] / (n * n), column = r->key[i] % (n * n);
    whole one = column / n, two = column % n;
    stroke_t s = {face, column, one, two, r->offset[face], r->offset[face + 1], 0};
    s.error = r->error[one] + r->error[two];
    return s;
}

DEVICE double difference(const run_t *r, const stroke_t *s, whole v) {
    return r->z[v * r->units + s->one] - r->z[v * r->units + s->two];
}

DEVICE whole sign_at(const run_t *r, const stroke_t *s, whole c) {
    double value = difference(r, s, r->edge[r->corner[c]]), slack = r->safety * s->error;
    return (value > slack) - (value < -slack);
}

/* Whether a value that counts as zero is farther from it than rounding explains. */
DEVICE int unclear(const run_t *r, const stroke_t *s, whole v) {
    double reach = s->error;
    if (v >= r->old) {
        const whole *ends = r->born + 2 * (v - r->old);
        double change = difference(r, s, ends[0]) - difference(r, s, ends[1]);
        reach += fabs(change) * r->born_blur[v - r->old];
    }
    return !(fabs(difference(r, s, v)) <= reach);
}

/* Whether the change of sign on the side after a corner is this face's to note, and not that of the
 * face beyond, in which the same chord is drawn. */
DEVICE int notes(const run_t *r, const stroke_t *s, whole c) {
    whole half = r->corner[c], other = r->beside[half ^ 1], key;
    if (!(half & 1) || other < 0) return 1;
    key = other * r->units * r->units + s->column;
    whole at = keys_below(r, key);
    return at == r->strokes || r->key[at] != key;
}

DEVICE void find_beside(const run_t *r, whole c) {
    r->beside[r->corner[c]] = row_of(r->offset, r->faces, c);
}

/* Where the function of a chord changes its sign: on two sides, or at corners; of a run of zeros
 * the first corner stands for all. */
DEVICE void find_ends(const run_t *r, whole i) {
    stroke_t s = stroke_of(r, i);
    whole found = 0, at[2];
    for (whole k = s.begin; k < s.end; k++) {
        whole sign = sign_at(r, &s, k), next = k + 1 < s.end ? k + 1 : s.begin, walk = next;
        if (sign == 0 && unclear(r, &s, r->edge[r->corner[k]])) too_close(r);
        if (sign == 0) continue;
        while (walk != k && sign_at(r, &s, walk) == 0) walk = walk + 1 < s.end ? walk + 1 : s.begin;
        if (sign_at(r, &s, walk) != -sign) continue;
        if (found < 2) at[found] = walk == next ? 2 * k + 1 : 2 * next;
        found++;
    }
    if (found != 2) {
        too_close(r);
        return;
    }
    r->stroke_end[2 * i] = at[0] < at[1] ? at[0] : at[1];
    r->stroke_end[2 * i + 1] = at[0] < at[1] ? at[1] : at[0];
    for (int k = 0; k < 2; k++)
        if ((at[k] & 1) && notes(r, &s, at[k] >> 1))
            ADD_ONE(r->hits + (r->corner[at[k] >> 1] >> 1) + 1);
}

DEVICE void find_hits(const run_t *r, whole m) {
    stroke_t s = stroke_of(r, m / 2);
    whole c = r->stroke_end[m] >> 1, e = r->corner[c] >> 1;
    if (!(r->stroke_end[m] & 1) || !notes(r, &s, c)) return;
    whole at = r->hits[e] + ADD_ONE(r->taken_hits + e);
    double value = difference(r, &s, r->edge[2 * e]);
    double change = value - difference(r, &s, r->edge[2 * e + 1]);
    r->raw_t[at] = value / change;
    r->raw_change[at] = fabs(change);
    r->raw_unit[at] = s.column;
    r->raw_edge[at] = e;
}

DEVICE double length_of(const run_t *r, whole e) {
    const double *p = r->uv + r->edge[2 * e] * r->width, *q = r->uv + r->edge[2 * e + 1] * r->width;
    return sqrt((q[0] - p[0]) * (q[0] - p[0]) + (q[1] - p[1]) * (q[1] - p[1]));
}

DEVICE double shift_of(const run_t *r, whole h) {
    whole n = r->units, column = r->raw_unit[h];
    return (r->error[column / n] + r->error[column % n]) / r->raw_change[h];
}

DEVICE double reach_of(const run_t *r, whole h) {
    return shift_of(r, h) + r->uv_error / length_of(r, r->raw_edge[h]);
}

/* Whether a change of sign is at the same place as the one before it on its edge. */
DEVICE int repeats(const run_t *r, whole h) {
    if (h >= r->hits[r->edges] || h == r->hits[r->raw_edge[h]]) return 0;
    return r->raw_t[h] - r->raw_t[h - 1] <= r->safety * (reach_of(r, h) + reach_of(r, h - 1));
}

/* Two changes of sign may have one vertex, as where three units are equal; not more. */
DEVICE void unite_hits(const run_t *r, whole h) {
    if (h >= r->hits[r->edges]) return;
    r->fresh[h + 1] = !repeats(r, h);
    if (!repeats(r, h)) return;
    if (repeats(r, h - 1) || repeats(r, h + 1) ||
        r->raw_t[h] - r->raw_t[h - 1] > reach_of(r, h) + reach_of(r, h - 1))
        too_close(r);
}

DEVICE void count_points(const run_t *r, whole e) { r->first[e] = r->fresh[r->hits[e]]; }

DEVICE void unite_points(const run_t *r, whole h) {
    if (h >= r->hits[r->edges] || r->fresh[h + 1] == r->fresh[h]) return;
    whole best = repeats(r, h + 1) && reach_of(r, h + 1) < reach_of(r, h) ? h + 1 : h;
    whole g = r->fresh[h], e = r->raw_edge[h], a = r->edge[2 * e], b = r->edge[2 * e + 1];
    double t = r->raw_t[best];
    if (!((t < 1 - t ? t : 1 - t) * length_of(r, e) > r->uv_error)) too_close(r);
    between(r->uv + a * r->width, r->uv + b * r->width, t, r->width, r->point_uv + g * r->width);
    r->point_edge[g] = e;
    r->point_start[g] = a;
    r->point_end[g] = b;
    r->point_t[g] = t;
    r->shift[g] = reach_of(r, best);
}

DEVICE void place_end(const run_t *r, whole m) {
    stroke_t s = stroke_of(r, m / 2);
    whole c = r->stroke_end[m] >> 1, half = r->corner[c], e = half >> 1, a, b;
    whole place = r->sums[2 * (r->faces + 1) + s.face] + c - s.begin;
    double shift;
    place += r->before[c] - r->before[s.begin];
    if (r->stroke_end[m] & 1) {
        whole h = r->hits[e];
        while (h + 1 < r->hits[e + 1] && r->raw_unit[h] != s.column) h++;
        whole g = r->fresh[h + 1] - 1;
        place += half & 1 ? r->first[e + 1] - g : 1 + g - r->first[e];
        r->stroke_vertex[m] = r->vertices + g;
        a = r->edge[2 * e];
        b = r->edge[2 * e + 1];
        shift = shift_of(r, h);
    } else {
        a = r->stroke_vertex[m] = r->edge[half];
        b = r->edge[r->corner[c > s.begin ? c - 1 : s.end - 1]];
        shift = s.error / fabs(difference(r, &s, b));
    }
    const double *p = r->uv + a * r->width, *q = r->uv + b * r->width;
    r->stroke_place[m] = place;
    r->stroke_blur[2 * m] = (q[0] - p[0]) * shift;
    r->stroke_blur[2 * m + 1] = (q[1] - p[1]) * shift;
}

/* Chords are numbered by their lower ends. */
DEVICE void place_stroke(const run_t *r, whole i) {
    whole f = stroke_of(r, i).face, begin = strokes_before(r, f), end = strokes_before(r, f + 1);
    whole low = r->stroke_place[2 * i], high = r->stroke_place[2 * i + 1], chord = begin;
    const whole *places = r->sums + 2 * (r->faces + 1) + f;
    if (high - low < 2 || high - low > places[1] - places[0] - 2) too_close(r);
    for (whole j = begin; j < end; j++) {
        whole p = r->stroke_place[2 * j], q = r->stroke_place[2 * j + 1];
        if (j != i && (p == low || p == high || q == low || q == high)) too_close(r);
        chord += p < low;
    }
    for (int k = 0; k < 4; k++) r->end_blur[4 * chord + k] = r->stroke_blur[4 * i + k];
    r->chord_face[chord] = f;
    r->chord_unit[chord] = r->stroke_unit[i];
    r->low[chord] = low;
    r->high[chord] = high;
    r->start[chord] = r->stroke_vertex[2 * i];
    r->stop[chord] = r->stroke_vertex[2 * i + 1];
    r->ends[low] = 2 * chord;
    r->ends[high] = 2 * chord + 1;
}

/* Faces with one chord at most: the part to the left of the chord keeps the face's number. */
DEVICE void measure_half(const run_t *r, whole f) {
    const whole *places = r->sums + 2 * (r->faces + 1) + f, *chords = r->sums + r->faces + 1 + f;
    whole i = chords[0], size = places[1] - places[0];
    if (f == 0) r->made_offset[0] = 0;
    if (chords[1] > i) {
        whole left = r->high[i] - r->low[i];
        r->made_offset[r->faces + i + 1] = size - left + 1;
        size = left + 1;
    }
    r->made_offset[f + 1] = size ? size : r->offset[f + 1] - r->offset[f];
}

DEVICE void write_half(const run_t *r, whole f) {
    const whole *places = r->sums + 2 * (r->faces + 1) + f, *chords = r->sums + r->faces + 1 + f;
    whole i = chords[0], *out = r->made_corner + r->made_offset[f], k;
    whole chord = 2 * (r->edges + r->points + i);
    if (r->sums[f + 1] == r->sums[f])
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
STEP(find_beside)
STEP(find_ends)
STEP(find_hits)
STEP(unite_hits)
STEP(count_points)
STEP(unite_points)
STEP(place_end)
STEP(place_stroke)
STEP(measure_half)
STEP(write_half)
