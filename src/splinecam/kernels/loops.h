/* Loops over rows of numbers with the vector instructions of this machine. */
#pragma once

#include "pool.h"

enum { PANEL = 32 };    /* columns of a panel of single precision */
enum { MIXED = 6 };     /* units whose coefficients of noise are found together */
#define UPWARDS (1 + 0x1p-12f) /* sums of moduli are rounded by less */
enum { MIN_TILED = 4 }; /* columns of a product below which rows are multiplied one by one */

/* The numbers of a matrix that are not zero, by units. */
typedef struct {
    int64_t *start; /* (units + 1) where those of a unit begin */
    int32_t *place; /* the columns in which they stand, ascending for each unit */
    double *value;
} sparse_t;

/* The memory of one thread. */
typedef struct {
    sc_sign_range sign_range; /* the ranges of all threads are merged in the end */
    double *size;             /* (units of sign_range) least moduli */
    double *weight;           /* weights of the breakpoints of a line, or their sums */
    int64_t *found;           /* the new rows at the breakpoints of a line */
    /* For a block of a product: its rows, some of them interpolated, packed parts of both factors,
     * and the units that are not zero in all rows. */
    const double **row, *y;
    double *interpolated, *x, *peak;
    int32_t *unit;
    int32_t *chosen;     /* (2, units) those whose columns reach a tile, and their places in x */
    const int32_t *span; /* (units, 2) where the columns that are not zero begin and end, or NULL */
    const sparse_t *sparse; /* the columns without zeros, or NULL where that is no faster */
    double *sums;           /* (width, tile_rows) products of a tile of rows with those */
} worker_t;

/* See vector_loops.h for what these functions do. */
typedef struct {
    void (*scan)(const double *, const int64_t *, int64_t, int64_t, worker_t *);
    void (*fill)(double *, int64_t, const sc_lines *, const int64_t *, int64_t, int64_t,
                 worker_t *);
    void (*sum)(double *, int64_t, const sc_lines *, int64_t, int64_t, worker_t *);
    void (*interpolate)(const double *, const double *, double, int64_t, double *);
    void (*block)(const sc_dense *, const int64_t *, int64_t, worker_t *, double *);
    void (*bound)(const sc_dense *);
    void (*affine)(int64_t, const int32_t *, const float *, const float *, float *, int64_t);
    void (*lines)(int64_t, int64_t, const float *, const float *, float *, float *, float *);
    void (*way)(int64_t, const int32_t *, const float *, const float *, float *);
    void (*affine4)(int64_t, const int32_t *, const float *, const float *, float *, int64_t);
    void (*corner_lines)(int64_t, int64_t, int64_t, const float *, const float *, const float *,
                         float *, float *, float *);
    float (*moduli)(int64_t, int64_t, int64_t, const float *, const float *, const float *, float *,
                   double *);
    void (*misfit)(int64_t, int64_t, const float *, const double *, const float *, float *);
    void (*mix)(int64_t, const float *, const float *, int64_t, int64_t, float *);
    int64_t tile_rows, tile_columns;
} loops_t;

const loops_t *sc_loops(void);

/* Order the rows of a product along Hilbert's curve over [-1, 1]^2; rank: the place of each row.
 * False if there is no memory (row_order.c). */
int sc_order_rows(const sc_dense *dense, int64_t rows, int64_t *order, int64_t *rank);

/* For rows that lie between rows of z (segments.c): check them, and gather those of a block. */
int sc_fits_along(const sc_dense *dense);
void sc_gather_along(const sc_dense *dense, const loops_t *loops, const int64_t *rows,
                     int64_t count, worker_t *own);

/* What bounds the function of a chain on bodies, on one thread (boxes.c). */
typedef struct sc_bounds sc_bounds;
int sc_bounds_new(const sc_chain *chain, const sc_bodies *bodies, sc_bounds **made);
int sc_bound_some(sc_bounds *bounds, const sc_bodies *bodies);
void sc_bounds_free(sc_bounds *bounds);
