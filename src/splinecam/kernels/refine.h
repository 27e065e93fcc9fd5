/* What the files of sc_refine share: refine.c, edges.c, chords.c and faces.c. */
#pragma once

#include "pool.h"

/* One refinement. A "point" is a new vertex on an edge; points are numbered edge by edge. */
typedef struct {
    sc_pool *pool;
    const sc_mesh *mesh;
    const sc_layer *layer;
    const sc_settings *settings;
    sc_refined *made;
    int64_t words; /* of the signs of one vertex */
    /* Per point, in order along each edge: unit, fraction of the edge, slope change, coordinates
     * (points, width) and position error (points, 2). */
    uint8_t *divisible;     /* (edges) of faces that are not settled, or NULL for all */
    int64_t points, *first; /* (edges + 1) first point of each edge */
    int32_t *unit;
    double *t, *slope_change, *point_uv, *position_error;
    int32_t *face_chords, *face_crossings; /* numbers of chords and crossings per face */
    /* The faces that are cut and those that are kept; per cut face the chords, the crossings and
     * the half-edges of new faces before it. */
    int64_t cut_count, kept_count;
    int64_t *cut, *kept, *chords_before, *crossings_before, *halves_before;
    int64_t max_boundary; /* half-edges of the longest divided boundary */
    int64_t *sizes, *starts, *halves; /* per new face: its half-edges in `halves` */
    int64_t *chord_start, *chord_end; /* (chords) the points at the ends */
    int64_t *slot_chord;              /* the other chord at each slot */
} run_t;

/* A slot is a crossing as one of its two chords passes it. */
typedef struct {
    double along, reach; /* the fraction of the chord, and the error of that */
    int64_t crossing;    /* twice the crossing, + 1 on its second chord */
} slot_t;

/* The chords of the face that a thread works on. The arrays grow with the largest face so far. */
typedef struct {
    int64_t *opened; /* (units) 1 + the chord whose second end is not found yet, 0 between faces */
    /* Per chord: the places of its ends on the boundary, its end points, its first slot. */
    int64_t *low, *high, *start, *stop, *slot_first, *slot_next;
    double *x, *y, *dx, *dy, *length, *error; /* the line of each chord */
    slot_t *slots, *sorted;    /* the slots along each chord in order; memory to sort them */
    /* Per slot: its chord, and twice the other slot of its crossing (+ 1 on its second chord). */
    int64_t *chord, *other;
    int64_t *one, *two, *slot; /* per crossing: its two chords, and (twice as many) its slots */
    /* Per place of the divided boundary: its half-edge, and twice the chord that ends there
     * (+ 1 for its second end) or -1; per end of a chord its place. */
    int64_t *half, *chord_ends, *place;
    int64_t chord_capacity, slot_capacity, place_capacity;
} face_t;

/* The point between two others, exact at both ends. A third coordinate is the same at both. */
static inline void sc_between(const double *a, const double *b, double t, int64_t width,
                              double *out) {
    double x = b[0] - a[0], y = b[1] - a[1];
    out[0] = t < 0.5 ? a[0] + t * x : b[0] - (1 - t) * x;
    out[1] = t < 0.5 ? a[1] + t * y : b[1] - (1 - t) * y;
    if (width > 2) out[2] = a[2];
}

/* The row of a vertex among the values and signs. */
static inline int64_t sc_row(const run_t *run, int64_t vertex) {
    return run->layer->place ? run->layer->place[vertex] : vertex;
}

/* Whether a face is not to be cut. */
static inline int sc_settled(const run_t *run, int64_t face) {
    return run->layer->settled && run->layer->settled[face];
}

/* Half-edge k of the divided side that a half-edge of the old mesh has become. */
static inline int64_t sc_half(const run_t *run, int64_t half, int64_t k) {
    int64_t e = half >> 1, back = half & 1, first = run->first[e];
    int64_t piece = back ? run->first[e + 1] - first - k : k;
    return 2 * (piece == 0 ? e : run->mesh->edges + first + piece - 1) + back;
}

sc_work sc_count_changes, sc_find_points, sc_divide_edges; /* edges.c */
sc_work sc_count_crossings;                                /* chords.c */
sc_work sc_cut_faces;                                      /* faces.c */

int sc_face_open(face_t *f, int64_t units);
void sc_face_close(face_t *f);
int sc_reserve_places(face_t *f, int64_t count);
int sc_find_crossings(const run_t *run, int64_t face, int64_t n, int64_t x, face_t *f,
                      int64_t *places);
