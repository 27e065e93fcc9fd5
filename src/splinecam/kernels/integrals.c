/* Integrals over the faces of functions that are affine on each, and their derivatives. */
#include "overlay.h"
#include "walk.h"

enum { PART = 4096 }; /* faces that a thread does one after the other */

typedef struct {
    const sc_mesh *mesh;
    const sc_moving *given;
} integrals_t;

/* The mean over a triangle of 1, f, |f| or f * f, from the values of f at the corners; by: its
 * derivatives by these. */
static double mean_of(int64_t kind, const double *f, double *by) {
    double total = f[0] + f[1] + f[2], squares = f[0] * f[0] + f[1] * f[1] + f[2] * f[2];
    double whole = kind ? total : 3, sign = 1, cut[3] = {0, 0, 0};
    if (kind == 2) { /* cut: derivatives of thrice the integral where the sign differs, per area */
        for (int k = 0; k < 3; k++) {
            double x = f[k], y = f[(k + 1) % 3], z = f[(k + 2) % 3];
            if (x == 0 || !((x > 0 && y <= 0 && z <= 0) || (x < 0 && y >= 0 && z >= 0))) continue;
            double p = x / (x - y), q = x / (x - z);
            whole = total - 2 * p * q * x;
            cut[k] = p * q * (3 - p - q), cut[(k + 1) % 3] = p * p * q, cut[(k + 2) % 3] = p * q * q;
        }
        sign = whole > 0 ? 1 : -1;
    }
    for (int k = 0; k < 3; k++)
        by[k] = kind == 3 ? (f[k] + total) / 6 : kind ? sign * (1 - 2 * cut[k]) / 3 : 0;
    return kind == 3 ? (squares + total * total) / 12 : sign * whole / 3;
}

static int integrate_some(void *context, int thread, int64_t begin, int64_t end) {
    const integrals_t *run = context;
    const sc_mesh *mesh = run->mesh;
    const sc_moving *given = run->given;
    const double *at = given->at, *values = given->values, *weight = given->weight;
    int64_t n = given->width;
    for (int64_t f = begin; f < end; f++) {
        const int64_t *corner = mesh->corner + mesh->offset[f];
        int64_t v[3] = {mesh->edge[corner[0]], 0, mesh->edge[corner[1]]};
        for (int64_t i = 2; i < mesh->offset[f + 1] - mesh->offset[f]; i++) {
            v[1] = v[2], v[2] = mesh->edge[corner[i]];
            int64_t later = sc_vertex_ahead(mesh, mesh->offset[f] + i);
            __builtin_prefetch(at + 2 * later);
            __builtin_prefetch(values + n * later);
            double size = sc_side(at + 2 * v[0], at + 2 * v[1], at + 2 * v[2]) / 2, rate = 0;
            for (int64_t o = 0; o < n; o++) {
                double x[3], by[3], mean;
                for (int k = 0; k < 3; k++) x[k] = values[v[k] * n + o];
                mean = mean_of(given->kind, x, by);
                if (given->made) given->made[f * n + o] += size * mean;
                if (!weight) continue;
                rate += weight[f * n + o] * mean / 2;
                for (int k = 0; k < 3 && given->kind; k++)
                    given->output[v[k] * n + o] += weight[f * n + o] * size * by[k];
            }
            for (int k = 0; k < 3 && weight; k++) {
                const double *next = at + 2 * v[(k + 1) % 3], *last = at + 2 * v[(k + 2) % 3];
                given->place[2 * v[k]] += rate * (next[1] - last[1]);
                given->place[2 * v[k] + 1] += rate * (last[0] - next[0]);
            }
        }
    }
    return SC_DONE;
}

int sc_integrate(sc_pool *pool, const sc_mesh *mesh, const sc_moving *given) {
    if (!pool || !mesh || !given || !given->at || !given->values || !sc_fits(mesh))
        return SC_MALFORMED;
    integrals_t run = {mesh, given};
    int64_t step = given->weight ? mesh->faces : PART; /* faces share vertices */
    return sc_parallel(pool, mesh->faces, step, integrate_some, &run);
}
