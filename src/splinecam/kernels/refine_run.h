/* What all steps of refine.cu share: their structure run_t, and searches in sorted arrays. */
#ifndef REFINE_RUN_H
#define REFINE_RUN_H

#include "steps.h"

typedef struct {
    i64 vertices, edges, faces, corners, width, units, words, layer;
    i64 points, marks, touched, chords, places, crossings, new_corners, has_breakpoints;
    i64 selected;  /* number of selected chords */
    i64 first_new; /* first vertex that lies between two others */
    double uv_error, safety;
    /* The subdivision, and the layer: values, signs, errors, slope differences, wanted units. */
    const double *uv;
    const i64 *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    const double *z;
    const u64 *positive, *negative;
    const double *error, *slope_difference;
    const unsigned char *wanted;
    /* Selected chords, ordered by key: (face * units + one unit) * units + another one; the unit of
     * the new edges. Per vertex from `first_new` on: the two vertices that it lies between, and
     * its position error as a fraction of their distance. */
    const i64 *key, *selected_unit, *parents;
    const double *parents_t_error;
    i64 *status; /* whether a step gave up; the largest number of ends of chords of one face */
    /* Running sums: new vertices of each edge (edges + 1) and of each corner's side (corners + 1);
     * per face (faces + 1, four times): touched faces, chords, places of divided boundaries, and
     * corners of faces that are not touched. A touched face has chords or a divided side. */
    i64 *first, *side_first, *face_sums;
    /* Per new vertex on an edge, as found, and then in order along each edge. */
    double *raw_t, *raw_change;
    i64 *raw_unit, *raw_edge;
    double *change, *position_error, *point_uv; /* position_error: (points, 2) */
    i64 *point_edge, *point_start, *point_end, *point_unit, *point_index;
    double *point_t, *point_slope_change;
    /* A mark is a new vertex on the boundary of one face. Per mark: vertex, unit, corner, face, the
     * other mark of the same function, and the number of first marks before it (marks + 1). */
    i64 *mark_point, *mark_unit, *mark_corner, *mark_face, *partner, *lower_before;
    /* Sign changes of selected chords: the number before each edge (edges + 1) and those found so
     * far on each edge; new vertices before each (2 selected + 1); the faces of half-edges. */
    i64 *sign_changes, *sign_changes_taken, *distinct, *halfedge_face;
    double *t_error; /* the error of a new vertex as a fraction of its edge */
    /* Per end of a selected chord: twice the corner (+ 1 if it lies on the side after the corner),
     * place, vertex, and position error (2 numbers). */
    i64 *selected_end, *selected_place, *selected_vertex;
    double *selected_error;
    /* Per place of a divided boundary: half-edge, and twice the chord that ends there (+ 1 for its
     * second end) or -1. */
    i64 *half, *ends;
    /* Per chord: face, unit, places and vertices of its ends, their position errors (4 numbers),
     * line (6 numbers), slots that are taken; running sums of the crossings with later chords, and
     * of the slots (chords + 1, twice). */
    i64 *chord_face, *chord_unit, *low, *high, *start, *stop, *slots_taken, *slots;
    double *end_error, *line;
    /* Per crossing: its chords, slots (twice as many) and results. */
    i64 *one, *two, *slot, *cross_start, *cross_end, *cross_chord, *cross_slot;
    double *cross_t;
    /* Per slot, as found, and in order along each chord: fraction, its error, twice the crossing
     * (+ 1 on its second chord), chord. */
    double *raw_along, *raw_reach;
    i64 *raw_crossing, *raw_chord, *slot_crossing, *slot_chord, *slot_unit;
    double *slot_t, *reach, *slot_slope_change;
    /* The refined subdivision. */
    double *made_uv;
    i64 *made_edge, *made_offset, *made_corner;
    i64 *made_edge_layer, *made_edge_unit, *made_vertex_layer;
} run_t;

/* Say that features lie too close together. All later steps do nothing. */
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

/* The number of selected chords with lower keys. */
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

DEVICE int is_touched(const run_t *r, i64 f) { return r->face_sums[f + 1] > r->face_sums[f]; }

/* The first chord of a face, and that of the next face. */
DEVICE const i64 *chords_of(const run_t *r, i64 f) { return r->face_sums + r->faces + 1 + f; }

/* The first place of the divided boundary of a face, and that of the next face. */
DEVICE const i64 *places_of(const run_t *r, i64 f) { return r->face_sums + 2 * (r->faces + 1) + f; }

/* The first slot of a chord, and that of the next chord. */
DEVICE const i64 *slots_of(const run_t *r, i64 i) { return r->slots + r->chords + 1 + i; }

/* The point between two others, exact at both ends. A third coordinate is the same at both. */
DEVICE void between(const double *a, const double *b, double t, i64 width, double *out) {
    double x = b[0] - a[0], y = b[1] - a[1];
    out[0] = t < 0.5 ? a[0] + t * x : b[0] - (1 - t) * x;
    out[1] = t < 0.5 ? a[1] + t * y : b[1] - (1 - t) * y;
    if (width > 2) out[2] = a[2];
}

#endif
