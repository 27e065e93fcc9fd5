/* The edges of a refinement: where functions change sign along them, and their pieces. */
#include <math.h>

#include "refine.h"

int sc_count_changes(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const int64_t *edge = run->mesh->edge;
    int64_t words = run->words, vertices = run->mesh->vertices;
    for (int64_t e = begin; e < end; e++) {
        int64_t a = edge[2 * e], b = edge[2 * e + 1], count = 0;
        if ((uint64_t)a >= (uint64_t)vertices || (uint64_t)b >= (uint64_t)vertices)
            return SC_MALFORMED;
        if (!run->divisible || run->divisible[e]) {
            const uint64_t *p = run->layer->positive + sc_row(run, a) * words;
            const uint64_t *q = run->layer->positive + sc_row(run, b) * words;
            for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(p[w] ^ q[w]);
        }
        run->first[e + 1] = count;
    }
    return SC_DONE;
}

/* Find the points of edges, sorted along each edge, and check that they are well separated. */
int sc_find_points(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    const sc_layer *layer = run->layer;
    double uv_error = run->settings->uv_error, safety = run->settings->safety;
    int64_t words = run->words, n = layer->units, width = mesh->width;
    double *t = run->t, *change = run->slope_change;
    int32_t *unit = run->unit;
    for (int64_t e = begin; e < end; e++) {
        int64_t start = run->first[e], stop = run->first[e + 1], g = start;
        if (start == stop) continue;
        int64_t a = mesh->edge[2 * e], b = mesh->edge[2 * e + 1];
        int64_t one = sc_row(run, a), two = sc_row(run, b);
        const uint64_t *p = layer->positive + one * words, *q = layer->positive + two * words;
        const double *za = layer->z + one * n, *zb = layer->z + two * n;
        for (int64_t w = 0; w < words; w++)
            for (uint64_t bits = p[w] ^ q[w]; bits; bits &= bits - 1) {
                int64_t c = 64 * w + __builtin_ctzll(bits), i = g++;
                if (c >= n) return SC_MALFORMED;
                double drop = za[c] - zb[c], at = za[c] / drop;
                for (; i > start && t[i - 1] > at; i--) {
                    t[i] = t[i - 1];
                    change[i] = change[i - 1];
                    unit[i] = unit[i - 1];
                }
                t[i] = at;
                change[i] = fabs(drop);
                unit[i] = (int32_t)c;
            }
        const double *ua = mesh->uv + a * width, *ub = mesh->uv + b * width;
        double x = ub[0] - ua[0], y = ub[1] - ua[1], length = sqrt(x * x + y * y), reach = 0;
        double nearest = MIN(t[start], 1 - t[stop - 1]);
        if (!(nearest * length > uv_error)) return SC_DEGENERATE;
        for (g = start; g < stop; g++) {
            double t_error = layer->error[unit[g]] / change[g], previous = reach;
            reach = t_error + uv_error / length;
            if (g > start && !(t[g] - t[g - 1] > safety * (previous + reach))) return SC_DEGENERATE;
            if (layer->slope_difference) change[g] *= layer->slope_difference[unit[g]];
            sc_between(ua, ub, t[g], width, run->point_uv + g * width);
            run->position_error[2 * g] = x * t_error;
            run->position_error[2 * g + 1] = y * t_error;
        }
    }
    return SC_DONE;
}

/* Write the pieces of edges, and what made their points. */
int sc_divide_edges(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    for (int64_t e = begin; e < end; e++) {
        int64_t a = mesh->edge[2 * e], b = mesh->edge[2 * e + 1], last = e;
        made->point_first[e] = run->first[e];
        made->edge[2 * e] = a;
        made->edge[2 * e + 1] = b;
        made->edge_layer[e] = mesh->edge_layer[e];
        made->edge_unit[e] = mesh->edge_unit[e];
        for (int64_t g = run->first[e]; g < run->first[e + 1]; g++) {
            int64_t piece = mesh->edges + g, vertex = mesh->vertices + g;
            made->edge[2 * piece] = vertex;
            made->edge[2 * piece + 1] = b;
            made->edge[2 * last + 1] = vertex;
            made->edge_layer[piece] = mesh->edge_layer[e];
            made->edge_unit[piece] = mesh->edge_unit[e];
            last = piece;
            made->point_edge[g] = e;
            made->point_start[g] = a;
            made->point_end[g] = b;
            made->point_unit[g] = run->unit[g];
            made->point_index[g] = g;
        }
    }
    return SC_DONE;
}
