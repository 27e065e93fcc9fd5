/* The affine maps of a chain on the faces of a partition, and derivatives by its factors. */
#pragma once

#include "kernel.h"

/* A chain of products with matrices and of functions of one variable between them. */
typedef struct {
    int64_t layers, knots;
    const int64_t *width; /* (layers + 2) inputs, units of each layer, outputs */
    const double *input;  /* (3, inputs) what they rise by with u and with v, and at the origin */
    const double *factor; /* of each product, (units before it, units after it), and of the last
                           * (outputs, units) */
    const double *offset; /* (units, then outputs) what the products add */
    const double *knot;   /* (knots, units) ascending; infinite where a unit has fewer */
    const double *slope;  /* (knots + 1, units) before, between and after them */
    const double *value;  /* (units) at zero, if the first slope went on until there */
} sc_bends;

/* Weights of what follows from a chain. Places and maps are in the coordinates of the mesh. */
typedef struct {
    const int64_t *order;  /* (2, faces), see sc_order_faces */
    const int64_t *corner; /* (vertices) the corner as which each one moves, or NULL: none does */
    const double *place;   /* (vertices, 2) weights of the places, or NULL */
    const double *values;  /* (vertices, outputs) the outputs, and ... */
    const double *output;  /* ... (vertices, outputs) their weights, or NULL */
    const double *map;     /* (faces, 3, outputs) weights of maps, as of `input`, or NULL */
    double *maps;          /* written, (faces, 3, outputs), or NULL */
    double *factor;        /* written: derivatives of the weighted sum, as in sc_bends, or NULL */
    double *offset;
    double *tape;          /* (taped) written with maps, and read with derivatives: what bends on */
    int64_t taped;         /* the way, and by how much results change; or NULL */
} sc_weights;

/* Functions that are affine on each face, and what follows from them. */
typedef struct {
    int64_t kind, width;  /* integrals of 0: 1, 1: f, 2: |f|, 3: f * f; how many functions */
    const double *at;     /* (vertices, 2) */
    const double *values; /* (vertices, width) */
    double *made;         /* added to, (faces, width) the integrals, or NULL */
    const double *weight; /* (faces, width) their weights, or NULL */
    double *place;        /* added to, (vertices, 2) derivatives of the weighted sum by places ... */
    double *output;       /* ... and by values, (vertices, width) */
} sc_moving;

/* corner: written, (vertices) the corner with the largest triangle at each; sine: of its angle. */
SC_EXPORT int sc_widest_corners(sc_pool *pool, const sc_mesh *mesh, int64_t *corner,
                                double *sine);
/* Add the integrals of functions over the faces, and derivatives by vertices and values there. */
SC_EXPORT int sc_integrate(sc_pool *pool, const sc_mesh *mesh, const sc_moving *moving);
/* order: written, (2, faces) the faces, each a neighbour of one before it, across a line of the
 * last layer that is possible; and the layer of that line. So all faces in a cell of the first
 * layers follow one another. */
SC_EXPORT int sc_order_faces(sc_pool *pool, const sc_mesh *mesh, int64_t layers, int64_t *order);
SC_EXPORT int sc_walk(sc_pool *pool, const sc_mesh *mesh, const sc_bends *chain,
                      const sc_weights *weights);
