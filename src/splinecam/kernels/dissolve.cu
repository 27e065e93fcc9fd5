/* Dissolve needless edges of a planar subdivision: what dissolve.py does, in steps for a GPU.
 *
 * The remaining corners are linked to the boundaries of new faces. The lowest corner of each is its
 * leader, whose item walks around the face.
 */
#include "steps.h"

typedef struct {
    i64 vertices, edges, faces, corners, width, fixed;
    const double *uv;
    const i64 *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    const i64 *needless; /* the edges to dissolve */
    i64 *status;         /* whether a step gave up */
    /* Per half-edge its face and corner, or -1; per face the lowest face that it is merged with,
     * and whether it is merged with any; per edge whether it is removed. */
    i64 *halfedge_face, *corner_of, *root, *merged, *removed;
    /* Per vertex: its remaining edges, whether it is dropped, and how many before it are kept. */
    i64 *degree, *dropped, *new_vertex;
    /* Per corner: the next one around its new face, and the numbers of leaders before it of
     * unchanged faces and of merged ones (corners + 1, twice). */
    i64 *next, *leaders;
    /* Per corner of a new face its half-edge; the ends of the new edges; per edge the number of
     * kept ones before it. */
    i64 *side, *ends, *new_edge;
    double *made_uv;
    i64 *made_edge, *made_offset, *made_corner;
    i64 *made_edge_layer, *made_edge_unit, *made_vertex_layer;
    i64 *kept; /* the old numbers of the vertices */
} run_t;

DEVICE i64 around(const run_t *r, i64 c) {
    i64 f = r->halfedge_face[r->corner[c]];
    return c + 1 < r->offset[f + 1] ? c + 1 : r->offset[f];
}

STEP(find_halfedges, f) {
    r->root[f] = f;
    for (i64 c = r->offset[f]; c < r->offset[f + 1]; c++) {
        r->halfedge_face[r->corner[c]] = f;
        r->corner_of[r->corner[c]] = c;
    }
}

/* Merge the faces of an edge. If another item has lowered a root meanwhile, go on from there. */
STEP(merge_faces, k) {
    i64 a = r->halfedge_face[2 * r->needless[k]], b = r->halfedge_face[2 * r->needless[k] + 1];
    while (a != b && a >= 0 && b >= 0) {
        i64 high = a > b ? a : b, low = a > b ? b : a, before = AT_MOST(r->root + high, low);
        if (before == high) return;
        a = before; /* what high was merged with is merged with low as well */
        b = low;
    }
}

DEVICE i64 root_of(const run_t *r, i64 f) {
    while (r->root[f] != f) f = r->root[f];
    return f;
}

STEP(find_removed, e) {
    i64 a = r->halfedge_face[2 * e], b = r->halfedge_face[2 * e + 1];
    r->removed[e] = a >= 0 && b >= 0 && root_of(r, a) == root_of(r, b);
    if (r->removed[e]) {
        r->merged[a] = r->merged[b] = 1;
        return;
    }
    ADD_ONE(r->degree + r->edge[2 * e]);
    ADD_ONE(r->degree + r->edge[2 * e + 1]);
}

STEP(find_dropped, v) { r->dropped[v] = r->degree[v] == 2 && v >= r->fixed; }

/* At a removed edge the boundary continues on the other side of the edge. */
STEP(link_corners, c) {
    i64 next = around(r, c);
    if (r->removed[r->corner[c] >> 1]) return;
    while (r->removed[r->corner[next] >> 1]) next = around(r, r->corner_of[r->corner[next] ^ 1]);
    r->next[c] = next;
}

STEP(find_leaders, c) {
    i64 f = r->halfedge_face[r->corner[c]], merged = r->merged[f], leaders = 0, k;
    if (!merged)
        leaders = c == r->offset[f];
    else if (!r->removed[r->corner[c] >> 1]) {
        for (k = r->next[c]; k > c; k = r->next[k]);
        leaders = k == c;
    }
    r->leaders[c + 1] = leaders && !merged;
    r->leaders[r->corners + 1 + c + 1] = leaders && merged;
}

DEVICE int is_leader(const run_t *r, i64 c) {
    const i64 *of_merged = r->leaders + r->corners + 1;
    return r->leaders[c + 1] > r->leaders[c] || of_merged[c + 1] > of_merged[c];
}

DEVICE i64 face_of(const run_t *r, i64 c) {
    const i64 *of_merged = r->leaders + r->corners + 1;
    return of_merged[c + 1] > of_merged[c] ? r->leaders[r->corners] + of_merged[c] : r->leaders[c];
}

DEVICE i64 begin_of(const run_t *r, i64 c) { return r->edge[r->corner[c]]; }

DEVICE i64 sides_of(const run_t *r, i64 c) {
    i64 count = !r->dropped[begin_of(r, c)];
    for (i64 k = r->next[c]; k != c; k = r->next[k]) count += !r->dropped[begin_of(r, k)];
    return count;
}

/* A sliver between two nearly equal lines keeps its vertices. */
STEP(keep_slivers, c) {
    i64 k = c;
    if (!is_leader(r, c) || sides_of(r, c) >= 3) return;
    do {
        r->dropped[begin_of(r, k)] = 0;
        k = r->next[k];
    } while (k != c);
}

STEP(measure, c) {
    if (c == 0) r->made_offset[0] = 0;
    if (!is_leader(r, c)) return;
    i64 count = sides_of(r, c), k;
    r->made_offset[face_of(r, c) + 1] = count;
    if (count >= 3) return;
    for (k = r->next[c]; k != c && !r->dropped[begin_of(r, k)]; k = r->next[k]);
    if (r->dropped[begin_of(r, k)]) r->status[0] = 1; /* slivers beside slivers */
}

/* The lowest half-edge represents a side, so that the faces on both sides choose the same edge. */
STEP(write_sides, c) {
    if (!is_leader(r, c)) return;
    i64 first = c, *out = r->side + r->made_offset[face_of(r, c)], k, last;
    while (r->dropped[begin_of(r, first)]) first = r->next[first];
    k = first;
    do {
        i64 begin = k, lowest = r->corner[k];
        for (k = r->next[k]; r->dropped[begin_of(r, k)]; k = r->next[k])
            lowest = r->corner[k] < lowest ? r->corner[k] : lowest;
        last = begin_of(r, k);
        *out++ = lowest;
        r->ends[lowest] = begin_of(r, begin);
        r->ends[lowest ^ 1] = last;
        r->new_edge[(lowest >> 1) + 1] = 1;
    } while (k != first);
}

STEP(count_vertex, v) {
    r->new_vertex[v + 1] = v < r->fixed || (r->degree[v] > 0 && !r->dropped[v]);
}

STEP(write_corner, k) {
    r->made_corner[k] = 2 * r->new_edge[r->side[k] >> 1] + (r->side[k] & 1);
}

STEP(write_edge, e) {
    i64 at = r->new_edge[e];
    if (r->new_edge[e + 1] == at) return;
    r->made_edge[2 * at] = r->new_vertex[r->ends[2 * e]];
    r->made_edge[2 * at + 1] = r->new_vertex[r->ends[2 * e + 1]];
    r->made_edge_layer[at] = r->edge_layer[e];
    r->made_edge_unit[at] = r->edge_unit[e];
}

STEP(write_vertex, v) {
    i64 at = r->new_vertex[v];
    if (r->new_vertex[v + 1] == at) return;
    for (i64 k = 0; k < r->width; k++) r->made_uv[at * r->width + k] = r->uv[v * r->width + k];
    r->made_vertex_layer[at] = r->vertex_layer[v];
    r->kept[at] = v;
}
