/* What the files of sc_overlay share: overlay.c, pack.c, locate.c and trace.c. */
#pragma once

#include <math.h>

#include "refine.h"

/* One of the two subdivisions. Its faces are numbered anew, so that neighbours are close together
 * in memory; edges, half-edges and vertices are numbered as in the mesh. */
typedef struct {
    const sc_mesh *mesh;
    int64_t side;            /* cells of a grid over the domain along each axis */
    double low[2], scale[2]; /* from coordinates to cells */
    int32_t *cells;          /* (side, side) a face near each cell */
    int32_t *order;          /* (vertices) all vertices, neighbours together */
    int32_t *offset;         /* (faces + 1) first corner of each face */
    /* Of each corner: the half-edge that starts there, its vertex, the face beyond (-1 outside). */
    int32_t *corner_half, *corner_vertex, *beyond;
    double *corner_uv;       /* (corners, 2) */
    int32_t *left;           /* (2 edges) the face to the left of each half-edge, -1 outside */
    int32_t *border;         /* (vertices) the half-edge along the border from there, or -1 */
    int32_t *face_of;        /* (vertices) the face of the other subdivision, -1 at corners */
} half_t;

/* One overlay. A "point" is a new vertex on an edge of the first subdivision: a crossing with an
 * edge of the second, or a vertex of the second on the border. Points are numbered edge by edge. */
typedef struct {
    sc_pool *pool;
    half_t half[2];
    double slack;          /* distances up to which features count as touching */
    int64_t layers;        /* by how much the layers of the second have larger numbers */
    int64_t corners;       /* of the domain: the first vertices of both */
    sc_overlaid *made;
    int64_t inner_count;   /* edges of the second subdivision that are not on the border */
    int32_t *inner;        /* (inner_count) their numbers, neighbours together */
    int32_t *inner_of;     /* (edges of the second) the other way round, -1 on the border */
    int64_t *first_cross;  /* (inner_count + 1) first crossing of each */
    int32_t *early_half;   /* (inner_count) what is known of the first crossing of each */
    double *early_t;
    int32_t *cross_half;   /* (crossings) the half-edge of the first that is crossed, and ... */
    int32_t *cross_inner;  /* ... the place in `inner` of the edge that crosses it */
    double *cross_t;       /* (crossings) the fraction of the edge of the first */
    int32_t *cross_point;  /* (crossings) its point */
    int64_t border_count;  /* vertices of the second on the border, besides the corners */
    int32_t *border_vertex, *border_half; /* and the half-edges of the first that they lie on */
    int32_t *border_pieces; /* (vertices of the second, 2) the new half-edges to and from them */
    int64_t points, *first_point; /* (edges of the first + 1) first point of each edge */
    int32_t *item;         /* (points) the crossing, or -1 - the vertex of the second */
    double *point_t;       /* (points) fraction of the edge */
    int32_t *next;         /* (2 edges) the next half-edge around each new face, -1 outside */
    int64_t second_edges;  /* the number of the first new edge of the second subdivision */
} overlay_t;

/* Twice the area of the triangle p, q, r: positive where r lies to the left of the line p q. */
static inline double sc_side(const double *p, const double *q, const double *r) {
    return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]);
}

/* How much of that may come from shifts of the three points by `slack`. */
static inline double sc_doubt(const double *p, const double *q, const double *r, double slack) {
    double length = fabs(q[0] - p[0]) + fabs(q[1] - p[1]);
    return slack * (2 * length + 2 * (fabs(r[0] - p[0]) + fabs(r[1] - p[1])));
}

static inline const double *sc_uv(const sc_mesh *mesh, int64_t vertex) {
    return mesh->uv + 2 * vertex;
}

/* The first piece of a half-edge of the first subdivision, and its last one. */
static inline int32_t sc_first_piece(const overlay_t *run, int64_t half) {
    int64_t e = half >> 1;
    return (int32_t)(2 * (e + run->first_point[e + (half & 1)]) + (half & 1));
}
static inline int32_t sc_last_piece(const overlay_t *run, int64_t half) {
    return sc_first_piece(run, half ^ 1) ^ 1;
}

/* The same of the second subdivision, for half-edges that are not on the border. */
static inline int32_t sc_first_piece_of_second(const overlay_t *run, int64_t half) {
    int64_t i = run->inner_of[half >> 1];
    int64_t piece = run->second_edges + i + run->first_cross[i + (half & 1)];
    return (int32_t)(2 * piece + (half & 1));
}
static inline int32_t sc_last_piece_of_second(const overlay_t *run, int64_t half) {
    return sc_first_piece_of_second(run, half ^ 1) ^ 1;
}

enum { SOON = 8 };

/* The vertex at a corner that a loop over all corners reaches soon. */
static inline int64_t sc_vertex_ahead(const sc_mesh *mesh, int64_t corner) {
    int64_t last = mesh->corners - 1;
    __builtin_prefetch(mesh->edge + mesh->corner[MIN(corner + 2 * SOON, last)]);
    return mesh->edge[mesh->corner[MIN(corner + SOON, last)]];
}

int sc_fits(const sc_mesh *mesh);                              /* overlay.c */
int64_t sc_cell_of(const half_t *half, const double *uv);      /* pack.c */
int sc_pack(half_t *half, int64_t corners);
int sc_locate(overlay_t *run);                                 /* locate.c */
sc_work sc_link_first, sc_link_second, sc_link_crossings;      /* trace.c */
int sc_trace_faces(overlay_t *run);
