/* Take needless edges out of a planar subdivision: what dissolve.py does, in steps for a GPU.
 *
 * The corners that stay are linked to new boundaries, of which the lowest corner leads each; the
 * leader walks around its face.
 */
#include "steps.h"

typedef struct {
    whole vertices, edges, faces, corners, width, fixed;
    const double *uv;
    const whole *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    const whole *needless; /* edges that go */
    whole *status;         /* whether this is left to tensor operations */
    /* Per half-edge its face and corner, or -1; per face the lowest face that it is united with,
     * and whether it is united with any; per edge whether it is gone. */
    whole *beside, *corner_of, *root, *merged, *gone;
    /* Per vertex: edges that stay, whether it is dropped, and how many before it are not. */
    whole *degree, *passed, *new_vertex;
    /* Per corner: the next one around its new face, and how many before it lead a face that stays
     * as it is, and a united one (corners + 1, twice). */
    whole *next, *leads;
    /* Per corner of a new face its half-edge; the ends of all edges; how many edges before each one
     * are still used. */
    whole *side, *ends, *new_edge;
    double *made_uv;
    whole *made_edge, *made_offset, *made_corner, *made_edge_op, *made_edge_unit, *made_vertex_op;
    whole *kept; /* the vertices that stay */
} run_t;

DEVICE whole around(const run_t *r, whole c) {
    whole f = r->beside[r->corner[c]];
    return c + 1 < r->offset[f + 1] ? c + 1 : r->offset[f];
}

DEVICE void find_beside(const run_t *r, whole f) {
    r->root[f] = f;
    for (whole c = r->offset[f]; c < r->offset[f + 1]; c++) {
        r->beside[r->corner[c]] = f;
        r->corner_of[r->corner[c]] = c;
    }
}

/* Unite the faces beside an edge. A face that has been given a lower root since goes on from it. */
DEVICE void unite(const run_t *r, whole k) {
    whole a = r->beside[2 * r->needless[k]], b = r->beside[2 * r->needless[k] + 1];
    while (a != b && a >= 0 && b >= 0) {
        whole high = a > b ? a : b, low = a > b ? b : a, before = AT_MOST(r->root + high, low);
        if (before == high) return;
        a = before; /* what high was united with is united with low as well */
        b = low;
    }
}

DEVICE whole root_of(const run_t *r, whole f) {
    while (r->root[f] != f) f = r->root[f];
    return f;
}

DEVICE void part(const run_t *r, whole e) {
    whole a = r->beside[2 * e], b = r->beside[2 * e + 1];
    r->gone[e] = a >= 0 && b >= 0 && root_of(r, a) == root_of(r, b);
    if (r->gone[e]) {
        r->merged[a] = r->merged[b] = 1;
        return;
    }
    ADD_ONE(r->degree + r->edge[2 * e]);
    ADD_ONE(r->degree + r->edge[2 * e + 1]);
}

DEVICE void pass(const run_t *r, whole v) { r->passed[v] = r->degree[v] == 2 && v >= r->fixed; }

/* Beyond an edge that is gone the boundary goes on where its other side goes on. */
DEVICE void link(const run_t *r, whole c) {
    whole next = around(r, c);
    if (r->gone[r->corner[c] >> 1]) return;
    while (r->gone[r->corner[next] >> 1]) next = around(r, r->corner_of[r->corner[next] ^ 1]);
    r->next[c] = next;
}

DEVICE void lead(const run_t *r, whole c) {
    whole f = r->beside[r->corner[c]], merged = r->merged[f], leads = 0, k;
    if (!merged)
        leads = c == r->offset[f];
    else if (!r->gone[r->corner[c] >> 1]) {
        for (k = r->next[c]; k > c; k = r->next[k]);
        leads = k == c;
    }
    r->leads[c + 1] = leads && !merged;
    r->leads[r->corners + 1 + c + 1] = leads && merged;
}

DEVICE int is_leader(const run_t *r, whole c) {
    const whole *united = r->leads + r->corners + 1;
    return r->leads[c + 1] > r->leads[c] || united[c + 1] > united[c];
}

DEVICE whole face_of(const run_t *r, whole c) {
    const whole *united = r->leads + r->corners + 1;
    return united[c + 1] > united[c] ? r->leads[r->corners] + united[c] : r->leads[c];
}

DEVICE whole begin_of(const run_t *r, whole c) { return r->edge[r->corner[c]]; }

DEVICE whole sides_of(const run_t *r, whole c) {
    whole count = !r->passed[begin_of(r, c)];
    for (whole k = r->next[c]; k != c; k = r->next[k]) count += !r->passed[begin_of(r, k)];
    return count;
}

/* A sliver between two lines that are nearly one keeps its vertices. */
DEVICE void unbend(const run_t *r, whole c) {
    whole k = c;
    if (!is_leader(r, c) || sides_of(r, c) >= 3) return;
    do {
        r->passed[begin_of(r, k)] = 0;
        k = r->next[k];
    } while (k != c);
}

DEVICE void measure(const run_t *r, whole c) {
    if (c == 0) r->made_offset[0] = 0;
    if (!is_leader(r, c)) return;
    whole count = sides_of(r, c), k;
    r->made_offset[face_of(r, c) + 1] = count;
    if (count >= 3) return;
    for (k = r->next[c]; k != c && !r->passed[begin_of(r, k)]; k = r->next[k]);
    if (r->passed[begin_of(r, k)]) r->status[0] = 1; /* slivers that make others slivers */
}

/* The lowest half-edge stands for a side: both faces beside it choose the same edge. */
DEVICE void write_sides(const run_t *r, whole c) {
    if (!is_leader(r, c)) return;
    whole first = c, *out = r->side + r->made_offset[face_of(r, c)], k, last;
    while (r->passed[begin_of(r, first)]) first = r->next[first];
    k = first;
    do {
        whole begin = k, lowest = r->corner[k];
        for (k = r->next[k]; r->passed[begin_of(r, k)]; k = r->next[k])
            lowest = r->corner[k] < lowest ? r->corner[k] : lowest;
        last = begin_of(r, k);
        *out++ = lowest;
        r->ends[lowest] = begin_of(r, begin);
        r->ends[lowest ^ 1] = last;
        r->new_edge[(lowest >> 1) + 1] = 1;
    } while (k != first);
}

DEVICE void count_vertex(const run_t *r, whole v) {
    r->new_vertex[v + 1] = v < r->fixed || (r->degree[v] > 0 && !r->passed[v]);
}

DEVICE void write_corner(const run_t *r, whole k) {
    r->made_corner[k] = 2 * r->new_edge[r->side[k] >> 1] + (r->side[k] & 1);
}

DEVICE void write_edge(const run_t *r, whole e) {
    whole at = r->new_edge[e];
    if (r->new_edge[e + 1] == at) return;
    r->made_edge[2 * at] = r->new_vertex[r->ends[2 * e]];
    r->made_edge[2 * at + 1] = r->new_vertex[r->ends[2 * e + 1]];
    r->made_edge_op[at] = r->edge_layer[e];
    r->made_edge_unit[at] = r->edge_unit[e];
}

DEVICE void write_vertex(const run_t *r, whole v) {
    whole at = r->new_vertex[v];
    if (r->new_vertex[v + 1] == at) return;
    for (whole k = 0; k < r->width; k++) r->made_uv[at * r->width + k] = r->uv[v * r->width + k];
    r->made_vertex_op[at] = r->vertex_layer[v];
    r->kept[at] = v;
}

STEP(find_beside)
STEP(unite)
STEP(part)
STEP(pass)
STEP(link)
STEP(lead)
STEP(unbend)
STEP(measure)
STEP(write_sides)
STEP(count_vertex)
STEP(write_corner)
STEP(write_edge)
STEP(write_vertex)
