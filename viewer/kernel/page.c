/* The kernel as a page drives it: one subdivision, which one layer after the other refines.
 *
 * A page writes its arrays into memory from malloc, and reads results where page_state says. Numbers
 * of eight bytes are float64 or int64, as everywhere in the kernel. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#define EXPORT(name) __attribute__((export_name(name), used))

static sc_pool *pool;
static sc_mesh mesh;
static sc_refined made; /* of the last refinement; its history is kept until the next one */
static void *block;     /* that holds the mesh */

/* What a page reads: sizes, new vertices, and the addresses of the arrays of the mesh. */
static struct {
    int32_t vertices, edges, faces, corners, points, crossings;
    const void *uv, *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
} state;

EXPORT("page_malloc") void *page_malloc(int32_t bytes) { return malloc((size_t)bytes); }

EXPORT("page_free") void page_free(void *address) { free(address); }

EXPORT("page_state") const void *page_state(void) {
    state.vertices = (int32_t)mesh.vertices;
    state.edges = (int32_t)mesh.edges;
    state.faces = (int32_t)mesh.faces;
    state.corners = (int32_t)mesh.corners;
    state.points = (int32_t)made.points;
    state.crossings = (int32_t)made.crossings;
    const void *arrays[] = {mesh.uv,         mesh.edge,      mesh.offset,      mesh.corner,
                            mesh.edge_layer, mesh.edge_unit, mesh.vertex_layer};
    memcpy(&state.uv, arrays, sizeof arrays);
    return &state;
}

/* Make room for a mesh that the page writes; returns whether there is memory. */
EXPORT("page_take")
int32_t page_take(int32_t vertices, int32_t edges, int32_t faces, int32_t corners) {
    sc_free(block);
    sc_free(made.history);
    memset(&made, 0, sizeof made);
    size_t count = (size_t)(3 * vertices + 4 * edges + faces + 1 + corners);
    double *uv = block = calloc(count, 8);
    if (!uv) return 0;
    int64_t *edge = (int64_t *)(uv + 2 * vertices), *offset = edge + 2 * edges;
    int64_t *corner = offset + faces + 1, *edge_layer = corner + corners;
    mesh = (sc_mesh){vertices, edges,  faces,  corners,    2,
                     uv,       edge,   offset, corner,     edge_layer,
                     edge_layer + edges, edge_layer + 2 * edges};
    return 1;
}

/* Refine the mesh by functions (vertices, units) that vanish at no vertex; returns a status. */
EXPORT("page_refine")
int32_t page_refine(int32_t units, const double *z, const uint64_t *positive, const double *error,
                    int32_t layer, int32_t max_faces) {
    if (!pool) pool = sc_pool_new(1);
    sc_layer functions = {.units = units, .z = z, .positive = positive, .error = error};
    sc_settings settings = {.uv_error = 0x1p-51,
                            .safety = 8,
                            .layer = layer,
                            .max_faces = max_faces,
                            .max_chords = 4096,
                            .breakpoints_from = -1};
    sc_refined refined;
    int status = sc_refine(pool, &mesh, &functions, &settings, &refined);
    sc_free(made.history);
    memset(&made, 0, sizeof made);
    if (status != SC_DONE) return status;
    sc_free(block);
    made = refined;
    block = made.block;
    mesh = (sc_mesh){made.vertices, made.edges,      made.faces,     made.corners,
                     2,             made.uv,         made.edge,      made.offset,
                     made.corner,   made.edge_layer, made.edge_unit, made.vertex_layer};
    return SC_DONE;
}

static void between(double *table, int64_t p, int64_t q, double t, int64_t width, double *row) {
    const double *a = table + p * width, *b = table + q * width;
    for (int64_t k = 0; k < width; k++) {
        double rise = b[k] - a[k];
        row[k] = t < 0.5 ? a[k] + t * rise : b[k] - (1 - t) * rise;
    }
}

/* Write the rows of the vertices that the last refinement added, after `known` older ones. */
EXPORT("page_extend") void page_extend(int32_t known, int32_t width, double *table) {
    double *row = table + (int64_t)known * width;
    for (int64_t k = 0; k < made.points; k++, row += width)
        between(table, made.point_start[k], made.point_end[k], made.point_t[k], width, row);
    for (int64_t k = 0; k < made.crossings; k++, row += width)
        between(table, made.cross_start[k], made.cross_end[k], made.cross_t[k], width, row);
}

typedef double pair __attribute__((vector_size(16), aligned(8)));

enum { ROWS = 4, BLOCK = 64 }; /* rows whose sums stay in registers, and that stay in the cache */

/* Four columns of a dense layer in four rows, whose n inputs stand side by side in `x`; `at` says
 * where their weights begin. */
static inline void dense_tile(int32_t n, const int32_t *restrict at, const double *restrict x,
                              const double *restrict weight, const double *bias,
                              double *const *out) {
    pair left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) {
        left[r] = *(const pair *)bias;
        right[r] = *(const pair *)(bias + 2);
    }
    for (int32_t j = 0; j < n; j++, x += ROWS) {
        pair first = *(const pair *)(weight + at[j]), second = *(const pair *)(weight + at[j] + 2);
        for (int r = 0; r < ROWS; r++) {
            pair value = {x[r], x[r]};
            left[r] += value * first;
            right[r] += value * second;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        *(pair *)out[r] = left[r];
        *(pair *)(out[r] + 2) = right[r];
    }
}

/* A single column, of layers with fewer than four. */
static inline void dense_column(int32_t n, const int32_t *restrict at, const double *restrict x,
                                const double *restrict weight, double bias, double *const *out) {
    double sum[ROWS] = {bias, bias, bias, bias};
    for (int32_t j = 0; j < n; j++, x += ROWS)
        for (int r = 0; r < ROWS; r++) sum[r] += x[r] * weight[at[j]];
    for (int r = 0; r < ROWS; r++) *out[r] = sum[r];
}

/* A dense layer: table (rows, n) @ weight (n, m) + bias (m); of the table, if rectified is set, the
 * positive part. `beside` has room for 72 n numbers. What does not fill four rows or columns overlaps
 * with those before it. Inputs that are 0 in four rows, as half of a ReLU's are, take no time. */
EXPORT("page_dense")
void page_dense(int32_t rows, int32_t n, int32_t m, int32_t rectified, const double *table,
                const double *weight, const double *bias, double *beside, double *out) {
    for (int64_t begin = 0; begin < rows; begin += BLOCK) {
        int64_t count = rows - begin < BLOCK ? rows - begin : BLOCK;
        int32_t *places = (int32_t *)(beside + BLOCK * (int64_t)n), used[BLOCK / ROWS];
        for (int64_t i = 0; i < count; i += ROWS) {
            const double *row[ROWS];
            for (int r = 0; r < ROWS; r++)
                row[r] = table + (begin + (i + r < count ? i + r : count - 1)) * n;
            double *to = beside + i * n;
            int32_t *at = places + i / ROWS * n, found = 0;
            for (int32_t j = 0; j < n; j++) {
                int any = 0;
                for (int r = 0; r < ROWS; r++) {
                    double value = rectified && !(row[r][j] > 0) ? 0 : row[r][j];
                    to[ROWS * found + r] = value;
                    any |= value != 0;
                }
                at[found] = j * m;
                found += any;
            }
            used[i / ROWS] = found;
        }
        for (int32_t k = 0; k < m; k += m < 4 ? 1 : 4)
            for (int64_t i = 0; i < count; i += ROWS) {
                int32_t column = m >= 4 && k > m - 4 ? m - 4 : k;
                double *to[ROWS];
                for (int64_t r = 0; r < ROWS; r++)
                    to[r] = out + (begin + (i + r < count ? i + r : count - 1)) * m + column;
                const double *x = beside + i * n;
                const int32_t *at = places + i / ROWS * n, some = used[i / ROWS];
                if (m < 4)
                    dense_column(some, at, x, weight + column, bias[column], to);
                else
                    dense_tile(some, at, x, weight + column, bias + column, to);
            }
    }
}

/* Find the signs (rows, words) and the range (2, m) of functions (rows, m); returns whether one
 * counts as zero. */
EXPORT("page_signs")
int32_t page_signs(int32_t rows, int32_t m, const double *z, const double *tolerance,
                   uint64_t *positive, double *range) {
    int32_t words = (m + 63) / 64, zeros = 0;
    memset(positive, 0, (size_t)(rows * words) * 8);
    for (int32_t k = 0; k < m; k++) {
        range[k] = __builtin_inf();
        range[m + k] = -__builtin_inf();
    }
    for (int32_t i = 0; i < rows; i++, z += m, positive += words)
        for (int32_t k = 0; k < m; k++) {
            double value = z[k];
            range[k] = value < range[k] ? value : range[k];
            range[m + k] = value > range[m + k] ? value : range[m + k];
            zeros |= !(value > tolerance[k] || value < -tolerance[k]);
            positive[k >> 6] |= (uint64_t)(value > 0) << (k & 63);
        }
    return zeros;
}
