/* Values of two functions at the vertices of an overlay. */
#include "overlay.h"

enum { PART = 512 };

typedef struct {
    const sc_mesh *mesh[2];
    int64_t corners;
    const sc_overlaid *made;
    const sc_affine_pair *pair;
    double *table; /* (vertices, 2 width) */
} values_t;

static void write_inside(const double *values, int64_t width, const sc_fit *fit, double *out) {
    const double *a = values + fit->first * width, *b = values + fit->second * width;
    const double *c = values + fit->third * width;
    for (int64_t k = 0; k < width; k++)
        out[k] = a[k] + fit->second_weight * (b[k] - a[k]) + fit->third_weight * (c[k] - a[k]);
}

static void write_between(const values_t *run, int which, int64_t edge, double t, double *out) {
    int64_t width = run->pair->width;
    const double *values = which ? run->pair->second : run->pair->first;
    const int64_t *ends = run->mesh[which]->edge + 2 * edge;
    const double *a = values + ends[0] * width, *b = values + ends[1] * width;
    for (int64_t k = 0; k < width; k++) {
        double rise = b[k] - a[k];
        out[k] = t < 0.5 ? a[k] + t * rise : b[k] - (1 - t) * rise;
    }
}

static void copy_row(const double *from, int64_t width, double *out) {
    for (int64_t k = 0; k < width; k++) out[k] = from[k];
}

static int values_part(void *context, int thread, int64_t begin, int64_t end) {
    const values_t *run = context;
    const sc_overlaid *made = run->made;
    int64_t width = run->pair->width, firsts = run->mesh[0]->vertices;
    int64_t inside = firsts + run->mesh[1]->vertices - run->corners;
    for (int64_t v = begin; v < end; v++) {
        double *one = run->table + 2 * width * v, *two = one + width;
        if (v < firsts) {
            copy_row(run->pair->first + v * width, width, one);
            if (v < run->corners)
                copy_row(run->pair->second + v * width, width, two);
            else
                write_inside(run->pair->second, width, made->fit + v, two);
        } else if (v < inside) {
            write_inside(run->pair->first, width, made->fit + v, one);
            copy_row(run->pair->second + (v - firsts + run->corners) * width, width, two);
        } else {
            int64_t x = v - inside;
            write_between(run, 0, made->first_edge[x], made->first_t[x], one);
            write_between(run, 1, made->second_edge[x], made->second_t[x], two);
        }
    }
    return SC_DONE;
}

int sc_overlay_values(sc_pool *pool, const sc_mesh *first, const sc_mesh *second, int64_t corners,
                      const sc_overlaid *made, const sc_affine_pair *pair, double *table) {
    if (!pool || !first || !second || !made || !made->block || !pair || !table ||
        made->vertices != first->vertices + second->vertices - corners + made->crossings)
        return SC_MALFORMED;
    values_t run = {{first, second}, corners, made, pair, table};
    return sc_parallel(pool, made->vertices, PART, values_part, &run);
}
