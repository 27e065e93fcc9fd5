/* The kernel as a page drives it: one subdivision, which one layer after the other refines.
 *
 * A page writes its arrays into memory from malloc, and reads results where page_state says. Numbers
 * of eight bytes are float64 or int64, as everywhere in the kernel. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#define EXPORT(name) __attribute__((export_name(name), used))

static const double EPS = 0x1p-52, SAFETY = 8; /* as in _util/tolerances.py */

static sc_pool *pool;
static sc_mesh mesh;
static sc_refined made;      /* of the last refinement; its history is kept until the next one */
static int64_t edges_before; /* that refinement */
static void *block;          /* that holds the mesh */
static sc_sign_range signs;  /* of the functions that were looked at last; one block from `low` */

/* What a page reads: sizes, new vertices, whether a function counts as zero somewhere; addresses of
 * the arrays of the mesh, and of the range (2, units) of the functions. */
static struct {
    int32_t vertices, edges, faces, corners, points, crossings, zeros;
    const void *uv, *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer, *range;
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
    state.zeros = (int32_t)signs.zeros;
    memcpy(&state.uv, &mesh.uv, 7 * sizeof mesh.uv); /* the arrays of a mesh stand in this order */
    state.range = signs.low;
    return &state;
}

/* Forget the last refinement. */
static void forget(void) {
    sc_free(made.history);
    memset(&made, 0, sizeof made);
}

/* Copy integers of the mesh as a page takes them. */
EXPORT("page_narrow")
void page_narrow(int32_t count, const int64_t *restrict from, int32_t *restrict to) {
    for (int32_t i = 0; i < count; i++) to[i] = (int32_t)from[i];
}

/* Make room for a mesh that the page writes; returns whether there is memory. */
EXPORT("page_take")
int32_t page_take(int32_t vertices, int32_t edges, int32_t faces, int32_t corners) {
    sc_free(block);
    forget();
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

/* Make room for the signs and the range of functions at rows; returns whether there is memory. */
static int open_signs(int64_t rows, int64_t units) {
    if (!pool) pool = sc_pool_new(1);
    int64_t words = (units + 63) / 64;
    free(signs.low);
    double *low = malloc((size_t)(3 * units + 2 * rows * words) * 8);
    uint64_t *positive = (uint64_t *)(low + 3 * units);
    signs = (sc_sign_range){
        units, low + 2 * units, low, low + units, positive, positive + rows * words, 0};
    for (int64_t k = 0; low && k < units; k++) {
        signs.low[k] = __builtin_inf();
        signs.high[k] = -__builtin_inf();
    }
    return pool && low;
}

/* Find the signs and the range of functions (rows, units); returns a status. */
EXPORT("page_signs")
int32_t page_signs(int32_t rows, int32_t units, const double *z, const double *tolerance) {
    if (!open_signs(rows, units)) return SC_NO_MEMORY;
    memcpy(signs.tolerance, tolerance, (size_t)units * 8);
    return sc_scan(pool, z, rows, 0, rows, &signs);
}

/* Refine the mesh by the functions whose signs were found last, if none counts as zero; returns a
 * status. bend: (units) by how much the slopes of results change where each of them is zero. */
EXPORT("page_refine")
int32_t page_refine(const double *z, const double *error, const double *bend, int32_t layer,
                    int32_t max_faces) {
    sc_layer functions = {signs.units, z, signs.positive, error, bend, NULL, NULL};
    sc_settings settings = {2 * EPS, SAFETY, layer, max_faces, 4096, 0};
    sc_refined refined;
    if (signs.zeros) return SC_DEGENERATE;
    int status = sc_refine(pool, &mesh, &functions, &settings, &refined);
    forget();
    if (status != SC_DONE) return status;
    sc_free(block);
    edges_before = mesh.edges;
    made = refined;
    block = made.block;
    mesh = (sc_mesh){made.vertices, made.edges,      made.faces,     made.corners,
                     2,             made.uv,         made.edge,      made.offset,
                     made.corner,   made.edge_layer, made.edge_unit, made.vertex_layer};
    return SC_DONE;
}

/* The new vertices as places on lines between older ones, those on edges first. column: (units, m)
 * what a layer after the refinement makes of each unit; NULL: values do not bend along a line. */
static void find_lines(sc_lines lines[2], int64_t known, int64_t units, const double *column) {
    lines[0] = (sc_lines){
        known, made.points, column ? edges_before : 0, made.points, made.point_start,
        made.point_end, made.point_t, made.point_edge, made.point_index, made.point_first,
        made.point_t, made.point_unit, made.point_slope_change, column, units};
    lines[1] = (sc_lines){
        known + made.points, made.crossings, column ? made.chords : 0, 2 * made.crossings,
        made.cross_start, made.cross_end, made.cross_t, made.cross_chord, made.cross_slot,
        made.slot_first, made.slot_t, made.slot_unit, made.slot_slope_change, column, units};
}

/* How to find values on lines: sums along them cost about nine times as much as terms do, which are
 * those of all breakpoints for each vertex (as in engine/plan.py). */
static int64_t method_of(const sc_lines *lines) {
    int64_t terms = 2 * lines->count;
    for (int64_t i = 0; i < lines->count; i++)
        terms += lines->offset[lines->line[i] + 1] - lines->offset[lines->line[i]];
    return terms > 9 * lines->breakpoints ? SC_SUMS : SC_TERMS;
}

/* Interpolate the rows of the new vertices, after `known` older ones; returns a status. */
EXPORT("page_extend") int32_t page_extend(int32_t known, int32_t width, double *table) {
    sc_lines lines[2];
    sc_sign_range none = {0};
    int status = SC_DONE;
    find_lines(lines, known, 0, NULL);
    for (int k = 0; k < 2 && !status; k++)
        status = sc_fill(pool, table, mesh.vertices, width, &lines[k], SC_TERMS, &none);
    return status;
}

/* A dense layer: the table z (known, n), or its positive part, times weight (n, m) plus bias.
 *
 * vertices: whether the rows are vertices; then values are found at all of them, and if it is 2, with
 * their signs, which follow from bounds on the modulus and the error of z, (2, n). bounds: written,
 * (5, m), as of sc_dense. Returns a status. */
EXPORT("page_dense")
int32_t page_dense(int32_t known, int32_t n, int32_t m, int32_t rectified, int32_t vertices,
                   const double *z, const double *weight, const double *factor, double *bounds,
                   double *out) {
    sc_lines lines[2];
    sc_dense dense = {.rows = vertices ? mesh.vertices : known, .known = known, .units = n,
                      .width = m, .rectified = rectified, .z = z, .uv = vertices ? mesh.uv : NULL,
                      .uv_width = 2, .column = weight, .bias = weight + n * m, .magnitude = factor,
                      .error = factor + n, .eps = EPS, .safety = SAFETY, .bounds = bounds};
    if (dense.rows > known) {
        find_lines(lines, known, n, weight);
        dense.edges = &lines[0];
        dense.inside = &lines[1];
        dense.edge_method = SC_TERMS;
        dense.inside_method = method_of(&lines[1]);
    }
    if (!open_signs(dense.rows, vertices == 2 ? m : 0)) return SC_NO_MEMORY;
    return sc_dense_layer(pool, &dense, out, &signs);
}
