/* The faces and vertices of a subdivision in an order in which neighbours come together. */
#include <stdlib.h>
#include <string.h>

#include "overlay.h"

int64_t sc_cell_of(const half_t *half, const double *uv) {
    int64_t place[2];
    for (int k = 0; k < 2; k++) {
        double at = (uv[k] - half->low[k]) * half->scale[k];
        place[k] = !(at > 0) ? 0 : at >= (double)half->side ? half->side - 1 : (int64_t)at;
    }
    return place[1] * half->side + (place[1] & 1 ? half->side - 1 - place[0] : place[0]);
}

/* Lay a grid over the domain, with about as many cells as faces. */
static void make_grid(half_t *half, int64_t corners) {
    const sc_mesh *mesh = half->mesh;
    half->side = 1 + (int64_t)sqrt((double)mesh->faces);
    for (int k = 0; k < 2; k++) {
        double high = -INFINITY;
        half->low[k] = INFINITY;
        for (int64_t v = 0; v < corners; v++) {
            half->low[k] = MIN(half->low[k], sc_uv(mesh, v)[k]);
            high = MAX(high, sc_uv(mesh, v)[k]);
        }
        half->scale[k] = (double)half->side / (high - half->low[k]);
    }
}

/* Order items by their cells: order[k] is the k-th item. first: (cells + 1), zero. */
static void order_by_cell(const int32_t *cell, int64_t count, int64_t cells, int32_t *first,
                          int32_t *order) {
    for (int64_t i = 0; i < count; i++) first[cell[i] + 1]++;
    for (int64_t c = 0; c < cells; c++) first[c + 1] += first[c];
    for (int64_t i = 0; i < count; i++) order[first[cell[i]]++] = (int32_t)i;
}

static int allocate(half_t *half) {
    const sc_mesh *mesh = half->mesh;
    size_t vertices = (size_t)mesh->vertices, faces = (size_t)mesh->faces;
    size_t corners = (size_t)mesh->corners, cells = (size_t)(half->side * half->side);
    half->corner_uv = malloc(corners * 16);
    half->cells = malloc((cells + 3 * vertices + faces + 1 + 3 * corners +
                          2 * (size_t)mesh->edges) * sizeof *half->cells);
    if (!half->corner_uv || !half->cells) return SC_NO_MEMORY;
    half->order = half->cells + cells;
    half->border = half->order + vertices;
    half->face_of = half->border + vertices;
    half->offset = half->face_of + vertices;
    half->corner_half = half->offset + faces + 1;
    half->corner_vertex = half->corner_half + corners;
    half->beyond = half->corner_vertex + corners;
    half->left = half->beyond + corners;
    memset(half->cells, -1, cells * sizeof *half->cells);
    memset(half->border, -1, 2 * vertices * sizeof *half->border); /* and face_of */
    memset(half->left, -1, 2 * (size_t)mesh->edges * sizeof *half->left);
    return SC_DONE;
}

/* Copy the corners of the faces, one face after the other in the order of `faces`. */
static int copy_corners(half_t *half, const int32_t *faces) {
    const sc_mesh *mesh = half->mesh;
    int32_t to = half->offset[0] = 0;
    for (int64_t i = 0; i < mesh->faces; i++) {
        int64_t f = faces[i];
        for (int64_t c = mesh->offset[f]; c < mesh->offset[f + 1]; c++, to++) {
            int64_t h = mesh->corner[c], v = mesh->edge[h];
            if (half->left[h] >= 0) return SC_MALFORMED;
            half->left[h] = (int32_t)i;
            half->corner_half[to] = (int32_t)h;
            half->corner_vertex[to] = (int32_t)v;
            memcpy(half->corner_uv + 2 * to, sc_uv(mesh, v), 16);
        }
        half->offset[i + 1] = to;
    }
    for (int64_t c = 0; c < mesh->corners; c++) {
        int64_t h = half->corner_half[c];
        half->beyond[c] = half->left[h ^ 1];
        if (half->beyond[c] < 0) half->border[half->corner_vertex[c]] = (int32_t)h;
    }
    return SC_DONE;
}

/* Note a face near each cell; cells without any take that of the cell before. */
static void fill_cells(half_t *half) {
    for (int64_t i = 0; i < half->mesh->faces; i++)
        half->cells[sc_cell_of(half, half->corner_uv + 2 * half->offset[i])] = (int32_t)i;
    int32_t last = 0;
    for (int64_t c = 0; c < half->side * half->side; c++)
        last = half->cells[c] = half->cells[c] < 0 ? last : half->cells[c];
}

/* Order the faces and the vertices of a subdivision. corners: of the domain. */
int sc_pack(half_t *half, int64_t corners) {
    const sc_mesh *mesh = half->mesh;
    make_grid(half, corners);
    int64_t cells = half->side * half->side, most = MAX(mesh->faces, mesh->vertices);
    int status = allocate(half);
    int32_t *cell = malloc((size_t)(2 * most) * sizeof *cell), *faces = cell + most;
    int32_t *first = calloc((size_t)(2 * (cells + 1)), sizeof *first);
    if (!status && (!cell || !first)) status = SC_NO_MEMORY;
    if (!status) {
        for (int64_t f = 0; f < mesh->faces; f++) {
            int64_t h = mesh->corner[mesh->offset[f]];
            cell[f] = (int32_t)sc_cell_of(half, sc_uv(mesh, mesh->edge[h]));
        }
        order_by_cell(cell, mesh->faces, cells, first, faces);
        status = copy_corners(half, faces);
    }
    if (!status) {
        fill_cells(half);
        for (int64_t v = 0; v < mesh->vertices; v++)
            cell[v] = (int32_t)sc_cell_of(half, sc_uv(mesh, v));
        order_by_cell(cell, mesh->vertices, cells, first + cells + 1, half->order);
    }
    free(cell);
    free(first);
    return status;
}
