/* Integrals of functions that are affine on each face, of their moduli and their squares: see
 * questions/measures.py for the formulas. */
#include <stdlib.h>

#include "overlay.h"

enum { PART = 2048 }; /* faces whose integrals are added up by themselves, on any thread */

typedef struct {
    const sc_mesh *mesh;
    const double *values;
    int64_t width, parts;
    double *sums;    /* (parts, 3, width) */
    double *scratch; /* (threads, 3, width) of one face: its integral, least and largest values */
} integrals_t;

/* Three times the integral over the corner that a change of sign cuts off a triangle, per area. */
static double cut_off(double p, double q, double r) {
    const double x[5] = {p, q, r, p, q};
    double cut = 0;
    for (int k = 0; k < 3; k++) {
        double one = x[k], two = x[k + 1], three = x[k + 2];
        double sign = (double)(one > 0) - (double)(one < 0);
        if (sign != 0 && sign * two <= 0 && sign * three <= 0)
            cut = one * (one / (one - two)) * (one / (one - three));
    }
    return cut;
}

/* The integral of the modulus of a function that changes its sign on a face. */
static double modulus_of(const integrals_t *run, int64_t face, int64_t column) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *corner = mesh->corner + mesh->offset[face];
    int64_t count = mesh->offset[face + 1] - mesh->offset[face], n = run->width;
    const double *values = run->values + column, *from = mesh->uv + 2 * mesh->edge[corner[0]];
    double p = values[mesh->edge[corner[0]] * n], total = 0;
    for (int64_t i = 1; i + 1 < count; i++) {
        int64_t v = mesh->edge[corner[i]], w = mesh->edge[corner[i + 1]];
        const double *a = mesh->uv + 2 * v, *b = mesh->uv + 2 * w;
        double q = values[v * n], r = values[w * n];
        total += MAX(sc_side(from, a, b), 0) / 2 * fabs(p + q + r - 2 * cut_off(p, q, r));
    }
    return total / 3;
}

/* Add the integrals over one face to sums. */
static void add_face(const integrals_t *run, int64_t face, double *sums, double *scratch) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *corner = mesh->corner + mesh->offset[face];
    int64_t count = mesh->offset[face + 1] - mesh->offset[face], n = run->width;
    double *restrict own = scratch, *restrict low = scratch + n, *restrict high = scratch + 2 * n;
    double *restrict squares = sums + 2 * n;
    const double *from = mesh->uv + 2 * mesh->edge[corner[0]];
    const double *p = run->values + mesh->edge[corner[0]] * n;
    for (int64_t c = 0; c < n; c++) {
        own[c] = 0;
        low[c] = high[c] = p[c];
    }
    for (int64_t i = 1; i < count; i++) {
        int64_t v = mesh->edge[corner[i]], w = mesh->edge[corner[i + 1 < count ? i + 1 : 0]];
        const double *q = run->values + v * n, *r = run->values + w * n;
        const double *a = mesh->uv + 2 * v, *b = mesh->uv + 2 * w; /* the last triangle is empty */
        double third = MAX(sc_side(from, a, b), 0) / 6, twelfth = third / 4;
        for (int64_t c = 0; c < n; c++) {
            double whole = p[c] + q[c] + r[c];
            own[c] += third * whole;
            squares[c] += twelfth * (whole * whole + p[c] * p[c] + q[c] * q[c] + r[c] * r[c]);
            low[c] = MIN(low[c], q[c]);
            high[c] = MAX(high[c], q[c]);
        }
    }
    for (int64_t c = 0; c < n; c++) {
        sums[c] += own[c];
        sums[n + c] += low[c] < 0 && high[c] > 0 ? modulus_of(run, face, c) : fabs(own[c]);
    }
}

static int integrate_part(void *context, int thread, int64_t begin, int64_t end) {
    const integrals_t *run = context;
    for (int64_t part = begin; part < end; part++) {
        double *sums = run->sums + 3 * run->width * part;
        int64_t last = MIN((part + 1) * PART, run->mesh->faces);
        for (int64_t f = part * PART; f < last; f++)
            add_face(run, f, sums, run->scratch + 3 * run->width * thread);
    }
    return SC_DONE;
}

int sc_integrate(sc_pool *pool, const sc_mesh *mesh, const double *values, int64_t width,
                 double *out) {
    if (!pool || !mesh || !values || !out || width < 0 || !sc_fits(mesh))
        return SC_MALFORMED;
    integrals_t run = {mesh, values, width, (mesh->faces + PART - 1) / PART, NULL, NULL};
    size_t row = (size_t)(3 * width + 1);
    run.sums = calloc((size_t)run.parts * row + 1, sizeof *run.sums);
    run.scratch = malloc((size_t)sc_threads(pool) * row * sizeof *run.scratch);
    int status = run.sums && run.scratch ? SC_DONE : SC_NO_MEMORY;
    if (!status) status = sc_parallel(pool, run.parts, 1, integrate_part, &run);
    for (int64_t c = 0; c < 3 * width && !status; c++) {
        out[c] = 0;
        for (int64_t part = 0; part < run.parts; part++) out[c] += run.sums[3 * width * part + c];
    }
    free(run.sums);
    free(run.scratch);
    return status;
}
