/* The common refinement of two subdivisions of one polygon in general position.
 *
 * 1. Vertices (locate.c): each vertex lies inside a face of the other, or on the border.
 * 2. Crossings: walks along the edges of the second subdivision lead through faces of the first.
 *    Conversely, the faces of the second along an edge of the first must follow one another.
 * 3. Faces (trace.c): half-edges that follow one another give the new faces.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small the
 * status is SC_DEGENERATE, and the caller uses its robust method.
 */
#include "overlay.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_PART = 1024, PARTS = 16 }; /* of a loop that threads share */

static int parallel(overlay_t *run, int64_t count, sc_work *work) {
    int64_t part = MAX((count + PARTS - 1) / PARTS, MIN_PART);
    return sc_parallel(run->pool, count, part, work, run);
}

/* Check that the sizes and indices of a mesh fit together. */
int sc_fits(const sc_mesh *mesh) {
    if (mesh->vertices < 3 || mesh->edges < 3 || mesh->faces < 1 || mesh->corners < 3) return 0;
    if (mesh->width != 2 || mesh->vertices > INT32_MAX / 8 || mesh->edges > INT32_MAX / 8) return 0;
    if (mesh->offset[0] != 0 || mesh->offset[mesh->faces] != mesh->corners) return 0;
    for (int64_t i = 0; i < mesh->faces; i++)
        if (mesh->offset[i + 1] - mesh->offset[i] < 3) return 0;
    uint64_t halves = 2 * (uint64_t)mesh->edges, vertices = (uint64_t)mesh->vertices, wrong = 0;
    for (int64_t c = 0; c < mesh->corners; c++) wrong |= (uint64_t)mesh->corner[c] >= halves;
    for (uint64_t h = 0; h < halves; h++) wrong |= (uint64_t)mesh->edge[h] >= vertices;
    return !wrong;
}

static int pack_part(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    int status = SC_DONE;
    for (int64_t k = begin; k < end && !status; k++)
        status = sc_pack(&run->half[k], run->corners);
    return status;
}

/* Allocate what is needed before the crossings are known. */
static int allocate_early(overlay_t *run) {
    int64_t both = run->half[0].mesh->vertices + run->half[1].mesh->vertices;
    int64_t edges = run->half[1].mesh->edges, vertices = run->half[1].mesh->vertices;
    run->inner = malloc((size_t)(2 * edges + 4 * vertices) * sizeof *run->inner);
    run->first_cross = malloc((size_t)(edges + 1) * sizeof *run->first_cross);
    run->made->fit = malloc((size_t)both * sizeof *run->made->fit);
    if (!run->inner || !run->first_cross || !run->made->fit) return SC_NO_MEMORY;
    run->inner_of = run->inner + edges;
    run->border_vertex = run->inner_of + edges;
    run->border_half = run->border_vertex + vertices;
    run->border_pieces = run->border_half + vertices;
    memset(run->border_pieces, -1, (size_t)(2 * vertices) * sizeof *run->border_pieces);
    return SC_DONE;
}

/* List the edges of the second subdivision inside the domain, by the order of their vertices. */
static int list_inner(overlay_t *run) {
    const half_t *own = &run->half[1];
    const sc_mesh *mesh = own->mesh;
    int32_t *first = calloc((size_t)mesh->vertices + 1, sizeof *first);
    if (!first) return SC_NO_MEMORY;
    for (int64_t e = 0; e < mesh->edges; e++)
        first[mesh->edge[2 * e]] += own->left[2 * e] >= 0 && own->left[2 * e + 1] >= 0;
    int32_t count = 0;
    for (int64_t i = 0; i < mesh->vertices; i++) {
        int32_t own_count = first[own->order[i]];
        first[own->order[i]] = count;
        count += own_count;
    }
    for (int64_t e = 0; e < mesh->edges; e++) {
        int is_inner = own->left[2 * e] >= 0 && own->left[2 * e + 1] >= 0;
        run->inner_of[e] = is_inner ? first[mesh->edge[2 * e]]++ : -1;
        if (is_inner) run->inner[run->inner_of[e]] = (int32_t)e;
    }
    run->inner_count = count;
    free(first);
    return SC_DONE;
}

/* -- crossings ------------------------------------------------------------------------------ */

/* Walk along an edge of the second subdivision through faces of the first one. Returns the number
 * of crossings, or -1 where one is not clear. halves, t: where to write up to `most` of the
 * half-edges that are crossed, from left to right, and the fractions of their edges. */
static int64_t walk(const overlay_t *run, int64_t edge, int64_t most, int32_t *halves, double *t) {
    const half_t *a = &run->half[0], *b = &run->half[1];
    const int64_t *ends = b->mesh->edge + 2 * edge;
    const double *p = sc_uv(b->mesh, ends[0]), *q = sc_uv(b->mesh, ends[1]), *uv = a->corner_uv;
    int64_t face = b->face_of[ends[0]], goal = b->face_of[ends[1]], count = 0;
    if (face < 0 || goal < 0) return -1;
    for (; face != goal; count++) {
        int64_t c = a->offset[face], end = a->offset[face + 1], last = end - 1;
        double before = sc_side(p, q, uv + 2 * last), after;
        for (;; last = c++) { /* the side through which the edge leaves the face */
            if (c == end) return -1;
            after = sc_side(p, q, uv + 2 * c);
            if (before < 0 && after > 0) break;
            before = after;
        }
        const double *u = uv + 2 * last, *v = uv + 2 * c;
        int64_t h = a->corner_half[last];
        if (!(-before > sc_doubt(p, q, u, run->slack)) ||
            !(after > sc_doubt(p, q, v, run->slack)) ||
            !(-sc_side(u, v, q) > sc_doubt(u, v, q, run->slack)) || count == a->mesh->faces)
            return -1;
        if (count < most) {
            halves[count] = (int32_t)h;
            t[count] = (h & 1 ? after : before) / (h & 1 ? after - before : before - after);
        }
        face = a->beyond[last];
        if (face < 0) return -1;
    }
    return count;
}

static int count_crossings(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t count = walk(run, run->inner[i], 1, run->early_half + i, run->early_t + i);
        if (count < 0) return SC_DEGENERATE;
        run->first_cross[i + 1] = count;
    }
    return SC_DONE;
}

static int write_crossings(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t x = run->first_cross[i], count = run->first_cross[i + 1] - x;
        if (count == 1) {
            run->cross_half[x] = run->early_half[i];
            run->cross_t[x] = run->early_t[i];
        } else if (count > 1) {
            walk(run, run->inner[i], count, run->cross_half + x, run->cross_t + x);
        }
        for (int64_t k = 0; k < count; k++) run->cross_inner[x + k] = (int32_t)i;
    }
    return SC_DONE;
}

static int find_crossings(overlay_t *run) {
    run->first_cross[0] = 0;
    run->early_t = malloc((size_t)(run->inner_count + 1) * sizeof *run->early_t);
    run->early_half = malloc((size_t)(run->inner_count + 1) * sizeof *run->early_half);
    if (!run->early_t || !run->early_half) return SC_NO_MEMORY;
    int status = parallel(run, run->inner_count, count_crossings);
    if (status) return status;
    for (int64_t i = 0; i < run->inner_count; i++) run->first_cross[i + 1] += run->first_cross[i];
    int64_t crossings = run->made->crossings = run->first_cross[run->inner_count];
    run->cross_half = malloc((size_t)(3 * crossings + 1) * sizeof *run->cross_half);
    run->cross_t = malloc((size_t)(crossings + 1) * sizeof *run->cross_t);
    if (!run->cross_half || !run->cross_t) return SC_NO_MEMORY;
    run->cross_inner = run->cross_half + crossings;
    run->cross_point = run->cross_inner + crossings;
    return parallel(run, run->inner_count, write_crossings);
}

/* The fraction of a line up to the place next to a point. */
static double projected(const double *p, const double *q, const double *r) {
    double x = q[0] - p[0], y = q[1] - p[1];
    return ((r[0] - p[0]) * x + (r[1] - p[1]) * y) / (x * x + y * y);
}

/* Distribute crossings and vertices on the border to the edges of the first subdivision. */
static int list_points(overlay_t *run) {
    const sc_mesh *mesh = run->half[0].mesh;
    int64_t edges = mesh->edges, crossings = run->made->crossings;
    int64_t points = run->points = crossings + run->border_count;
    run->first_point = calloc((size_t)edges + 2, sizeof *run->first_point);
    run->item = malloc((size_t)(points + 1) * sizeof *run->item);
    run->point_t = malloc((size_t)(points + 1) * sizeof *run->point_t);
    if (!run->first_point || !run->item || !run->point_t) return SC_NO_MEMORY;
    int64_t *next = run->first_point + 1; /* while the points are distributed */
    for (int64_t x = 0; x < crossings; x++) next[(run->cross_half[x] >> 1) + 1]++;
    for (int64_t i = 0; i < run->border_count; i++) next[(run->border_half[i] >> 1) + 1]++;
    for (int64_t e = 0; e < edges; e++) next[e + 1] += next[e];
    for (int64_t x = 0; x < crossings; x++)
        run->item[next[run->cross_half[x] >> 1]++] = (int32_t)x;
    for (int64_t i = 0; i < run->border_count; i++)
        run->item[next[run->border_half[i] >> 1]++] = -1 - run->border_vertex[i];
    return SC_DONE;
}

/* Sort the points of an edge along it. */
static void sort_points(overlay_t *run, int64_t begin, int64_t end) {
    int64_t gap = 1;
    while (gap < (end - begin) / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int64_t i = begin + gap; i < end; i++) {
            double t = run->point_t[i];
            int32_t item = run->item[i];
            int64_t k = i;
            for (; k >= begin + gap && run->point_t[k - gap] > t; k -= gap) {
                run->point_t[k] = run->point_t[k - gap];
                run->item[k] = run->item[k - gap];
            }
            run->point_t[k] = t;
            run->item[k] = item;
        }
}

/* Check that an edge of the first subdivision passes from face to face of the second. */
static int passes(const overlay_t *run, int64_t edge) {
    const half_t *a = &run->half[0], *b = &run->half[1];
    const int64_t *ends = a->mesh->edge + 2 * edge;
    int32_t face = a->face_of[ends[0]], last = a->face_of[ends[1]];
    if (run->first_point[edge] == run->first_point[edge + 1] && (face < 0 || last < 0)) return 1;
    for (int64_t g = run->first_point[edge]; g < run->first_point[edge + 1]; g++) {
        int64_t x = run->item[g], half = run->cross_half[x];
        const int32_t *beside = b->left + 2 * run->inner[run->cross_inner[x]];
        if (face != beside[!(half & 1)] && face >= 0) return 0;
        face = beside[half & 1];
    }
    return face == last || last < 0;
}

/* Find the fractions of points, put them into order, and write the pieces of edges. */
static int divide_edges(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    sc_overlaid *made = run->made;
    const half_t *own = &run->half[0], *other = &run->half[1];
    const sc_mesh *mesh = own->mesh;
    int64_t seconds = mesh->vertices - run->corners;
    int64_t inside = mesh->vertices + other->mesh->vertices - run->corners;
    for (int64_t e = begin; e < end; e++) {
        int64_t first = run->first_point[e], last = run->first_point[e + 1], piece = e + first;
        const int64_t *ends = mesh->edge + 2 * e;
        const double *p = sc_uv(mesh, ends[0]), *q = sc_uv(mesh, ends[1]);
        int on_border = own->left[2 * e] < 0 || own->left[2 * e + 1] < 0;
        int64_t back = own->left[2 * e] < 0, vertex = ends[0];
        for (int64_t g = first; g < last; g++) {
            int64_t x = run->item[g];
            if (on_border != (x < 0)) return SC_DEGENERATE;
            run->point_t[g] =
                x < 0 ? projected(p, q, sc_uv(other->mesh, -1 - x)) : run->cross_t[x];
            if (!(run->point_t[g] > 0 && run->point_t[g] < 1)) return SC_DEGENERATE;
        }
        sort_points(run, first, last);
        if (!on_border && !passes(run, e)) return SC_DEGENERATE;
        for (int64_t g = first; g <= last; g++, piece++) {
            int64_t x = g < last ? run->item[g] : 0;
            made->edge[2 * piece] = vertex;
            vertex = g == last ? ends[1] : x < 0 ? seconds - 1 - x : inside + x;
            made->edge[2 * piece + 1] = vertex;
            made->edge_layer[piece] = mesh->edge_layer[e];
            made->edge_unit[piece] = mesh->edge_unit[e];
            if (g == last) break;
            if (x >= 0) {
                run->cross_point[x] = (int32_t)g;
            } else { /* along the border the inside is to the left */
                int32_t *pieces = run->border_pieces + 2 * (-1 - x);
                pieces[0] = (int32_t)(2 * (back ? piece + 1 : piece) + back);
                pieces[1] = (int32_t)(2 * (back ? piece : piece + 1) + back);
            }
        }
    }
    return SC_DONE;
}

/* -- the result ----------------------------------------------------------------------------- */

static int allocate(overlay_t *run, int64_t max_faces) {
    sc_overlaid *made = run->made;
    const sc_mesh *a = run->half[0].mesh, *b = run->half[1].mesh;
    int64_t crossings = made->crossings, border = run->border_count;
    run->second_edges = a->edges + run->points;
    made->vertices = a->vertices + b->vertices - run->corners + crossings;
    made->edges = run->second_edges + run->inner_count + crossings;
    made->faces = made->edges - made->vertices + 1;
    for (int64_t h = 0; h < 2 * a->edges; h++) border += run->half[0].left[h] < 0;
    made->corners = 2 * made->edges - border;
    if (made->faces < 1 || made->corners < 3) return SC_DEGENERATE;
    if (made->edges > INT32_MAX / 4) return SC_TOO_MANY_FACES;
    if (max_faces >= 0 && made->faces > max_faces) return SC_TOO_MANY_FACES;
    struct { void *array; int64_t count; } arrays[] = { /* all entries have eight bytes */
        {&made->uv, 2 * made->vertices}, {&made->edge, 2 * made->edges},
        {&made->offset, made->faces + 1}, {&made->corner, made->corners},
        {&made->edge_layer, made->edges}, {&made->edge_unit, made->edges},
        {&made->vertex_layer, made->vertices},
        /* The history begins here. */
        {&made->first_edge, crossings}, {&made->second_edge, crossings},
        {&made->first_t, crossings}, {&made->second_t, crossings},
    };
    int count = sizeof arrays / sizeof *arrays, in_mesh = 7;
    int64_t sizes[2] = {0, 0};
    for (int i = 0; i < count; i++) sizes[i >= in_mesh] += 8 * arrays[i].count;
    char *at[2] = {made->block = malloc((size_t)sizes[0]),
                   made->history = malloc((size_t)sizes[1])};
    run->next = malloc((size_t)(2 * made->edges) * sizeof *run->next);
    if (!at[0] || !at[1] || !run->next) return SC_NO_MEMORY;
    memset(run->next, -1, (size_t)(2 * made->edges) * sizeof *run->next);
    for (int i = 0; i < count; i++) {
        memcpy(arrays[i].array, &at[i >= in_mesh], sizeof(void *));
        at[i >= in_mesh] += 8 * arrays[i].count;
    }
    return SC_DONE;
}

/* Write the pieces of the edges of the second subdivision, and the crossings on them. */
static int divide_second(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    sc_overlaid *made = run->made;
    const sc_mesh *a = run->half[0].mesh, *b = run->half[1].mesh;
    int64_t seconds = a->vertices - run->corners, inside = seconds + b->vertices;
    for (int64_t i = begin; i < end; i++) {
        int64_t e = run->inner[i], vertex = seconds + b->edge[2 * e];
        int64_t piece = run->second_edges + i + run->first_cross[i], last = run->first_cross[i + 1];
        const double *p = sc_uv(b, b->edge[2 * e]), *q = sc_uv(b, b->edge[2 * e + 1]);
        for (int64_t x = run->first_cross[i]; x <= last; x++, piece++) {
            made->edge[2 * piece] = vertex;
            vertex = x < last ? inside + x : seconds + b->edge[2 * e + 1];
            made->edge[2 * piece + 1] = vertex;
            made->edge_layer[piece] = run->layers + b->edge_layer[e];
            made->edge_unit[piece] = b->edge_unit[e];
            if (x == last) break;
            int64_t g = run->cross_point[x], f = run->cross_half[x] >> 1;
            double *uv = made->uv + 2 * vertex;
            const double *u = sc_uv(a, a->edge[2 * f]), *v = sc_uv(a, a->edge[2 * f + 1]);
            sc_between(u, v, run->point_t[g], 2, uv);
            made->vertex_layer[vertex] = run->layers + b->edge_layer[e];
            made->first_edge[x] = f;
            made->second_edge[x] = e;
            made->first_t[x] = run->point_t[g];
            made->second_t[x] = projected(p, q, uv);
            if (!(made->second_t[x] > 0 && made->second_t[x] < 1)) return SC_DEGENERATE;
        }
    }
    return SC_DONE;
}

/* Copy the vertices of both subdivisions. */
static void copy_vertices(overlay_t *run) {
    sc_overlaid *made = run->made;
    const sc_mesh *a = run->half[0].mesh, *b = run->half[1].mesh;
    int64_t skipped = run->corners, rest = b->vertices - skipped;
    memcpy(made->uv, a->uv, (size_t)a->vertices * 16);
    memcpy(made->uv + 2 * a->vertices, b->uv + 2 * skipped, (size_t)rest * 16);
    memcpy(made->vertex_layer, a->vertex_layer, (size_t)a->vertices * 8);
    for (int64_t v = 0; v < rest; v++)
        made->vertex_layer[a->vertices + v] = run->layers + b->vertex_layer[skipped + v];
}

static int overlay(overlay_t *run, int64_t max_faces) {
    int status = sc_parallel(run->pool, 2, 1, pack_part, run);
    if (!status) status = allocate_early(run);
    if (!status) status = sc_locate(run);
    if (!status) status = list_inner(run);
    if (!status) status = find_crossings(run);
    if (!status) status = list_points(run);
    if (!status) status = allocate(run, max_faces);
    if (!status) status = parallel(run, run->half[0].mesh->edges, divide_edges);
    if (!status) status = parallel(run, run->inner_count, divide_second);
    if (status) return status;
    copy_vertices(run);
    status = parallel(run, run->half[0].mesh->faces, sc_link_first);
    if (!status) status = parallel(run, run->half[1].mesh->faces, sc_link_second);
    if (!status) status = parallel(run, run->made->crossings, sc_link_crossings);
    return status ? status : sc_trace_faces(run);
}

int sc_overlay(sc_pool *pool, const sc_mesh *first, const sc_mesh *second, int64_t layers,
               int64_t corners, double slack, int64_t max_faces, sc_overlaid *made) {
    if (!pool || !first || !second || !made || !sc_fits(first) || !sc_fits(second) || corners < 3 ||
        corners > MIN(first->vertices, second->vertices))
        return SC_MALFORMED;
    memset(made, 0, sizeof *made);
    overlay_t run = {
        .pool = pool, .slack = slack, .layers = layers, .corners = corners, .made = made};
    run.half[0].mesh = first;
    run.half[1].mesh = second;
    int status = overlay(&run, max_faces);
    void *all[] = {run.half[0].cells, run.half[1].cells, run.half[0].corner_uv,
                   run.half[1].corner_uv, run.inner, run.first_cross, run.early_half, run.early_t,
                   run.cross_half, run.cross_t, run.first_point, run.item, run.point_t, run.next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    if (status) {
        free(made->block);
        free(made->history);
        free(made->fit);
        made->block = made->history = made->fit = NULL;
    }
    return status;
}
