/* A complex of vertices, edges, faces and cells in three dimensions, cut along zero sets.
 *
 * Functions are affine on every cell and have one sign at each vertex, so that neighbouring cells
 * agree. First all edges are divided, then faces along chords, then cells along new faces. What is
 * divided already is never divided again: a cell finds the zero set of a function on its surface,
 * as the edges between faces on its two sides. Whatever signs rounding makes, the result is a
 * complex in which each piece of a face has one cell, or the same two, beside it.
 *
 * Edges, faces and cells are divided in chunks by several threads. What a chunk adds is numbered
 * behind what is known before, and moved behind that of earlier chunks when it is added. Where a
 * chain of products bounds a function, pieces of cells on which it cannot vanish are left out while
 * the cell is being divided; what only they needed is left out in the end.
 */
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

#define LOWEST_BIT(x) __builtin_ctzll(x)

enum { ROOM = 64 }; /* of a small list */

struct memory {
    jmp_buf failed;
};

#include "solid_part.h"

enum { COLUMNS = 64 }; /* of a row that are interpolated together */

static void *renew(cut_t *c, void *at, size_t old, size_t size) {
    (void)old;
    at = realloc(at, size);
    if (!at) longjmp(c->memory.failed, 1);
    return at;
}

/* Some columns of the row of a vertex of the result. */
static void find_row(const cut_t *c, const double *rows, int64_t width, int64_t v, int64_t count,
                     double *out) {
    if (v < c->solid->vertices) {
        memcpy(out, rows + v * width, (size_t)count * sizeof *out);
        return;
    }
    double t, other[COLUMNS];
    const int64_t *point = point_of(c, v, &t);
    find_row(c, rows, width, point[0], count, out);
    find_row(c, rows, width, point[1], count, other);
    for (int64_t k = 0; k < count; k++) out[k] = (1 - t) * out[k] + t * other[k];
}

static void find_whole_row(const cut_t *c, const double *rows, int64_t width, int64_t v,
                           double *out) {
    for (int64_t k = 0; k < width; k += COLUMNS)
        find_row(c, rows + k, width, v, MIN(COLUMNS, width - k), out + k);
}

/* Add the row of a vertex of the part to a table. */
static void add_row(cut_t *c, int64_t i, const double *rows, int64_t width, table_t *table) {
    const corner_t *v = VERTEX(c, i);
    double *restrict out = room_for(c, table, width, sizeof *out), t = v->t;
    const double *from = v->p < 0 ? rows + v->vertex * width : (double *)table->at + v->p * width;
    const double *other = v->p < 0 ? from : (double *)table->at + v->q * width;
    for (int64_t k = 0; k < width; k++) out[k] = (1 - t) * from[k] + t * other[k];
}

/* List the corners of cells of the part that are not known to be open. */
static int64_t list_corners(cut_t *c) {
    int64_t cells = 0;
    c->seen.count = c->offset.count = c->corner.count = c->open.count = 0;
    while (c->seen.count < c->vertices.count) push(c, &c->seen, 0);
    for (int64_t i = 0; i < c->cells.count; i++) {
        const cell_t *cell = CELL(c, i);
        if (cell->open) continue;
        push(c, &c->offset, c->corner.count);
        *(uint8_t *)room_for(c, &c->open, 1, 1) = 1;
        cells++;
        for (int64_t k = cell->begin; k < cell->begin + cell->size; k++) {
            const face_t *f = FACE(c, c->shell.at[k] >> 1);
            for (int64_t l = f->begin; l < f->begin + f->size; l++) {
                int64_t v = start_of(c, c->ring.at[l]);
                if (c->seen.at[v] == cells) continue;
                c->seen.at[v] = cells;
                push(c, &c->corner, v);
            }
        }
    }
    push(c, &c->offset, c->corner.count);
    return cells;
}

/* Compare the values of the function at corners with the margin: all units are divided. */
static void compare(const sc_bodies *bodies) {
    int64_t n = bodies->units;
    for (int64_t i = 0; i < bodies->cells; i++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t k = bodies->offset[i]; k < bodies->offset[i + 1]; k++) {
            const double *z = bodies->z + bodies->corner[k] * n;
            double f = bodies->last[n];
            for (int64_t u = 0; u < n; u++) f += MAX(z[u], 0) * bodies->last[u];
            low = MIN(low, f);
            high = MAX(high, f);
        }
        bodies->open[i] = !(low > bodies->margin || high < -bodies->margin);
    }
}

/* Leave out the cells of the part on which the bounded function cannot vanish. */
static void thin(cut_t *c) {
    int64_t width = c->bodies->units, cells = list_corners(c), kept = 0;
    for (int64_t i = c->uvw.count / 3; i < c->vertices.count; i++) {
        add_row(c, i, c->bodies->uvw, 3, &c->uvw);
        add_row(c, i, c->bodies->z, width, &c->z);
    }
    sc_bodies bodies = *c->bodies;
    bodies.vertices = c->vertices.count;
    bodies.cells = cells;
    bodies.uvw = c->uvw.at;
    bodies.z = c->z.at;
    bodies.offset = c->offset.at;
    bodies.corner = c->corner.at;
    bodies.open = c->open.at;
    if (bodies.last)
        compare(&bodies);
    else if (sc_bound_some(c->bounds, &bodies))
        longjmp(c->memory.failed, 1);
    c->own.bounded += cells;
    c->round++;
    const uint8_t *open = c->open.at;
    for (int64_t i = 0; i < c->cells.count; i++) {
        cell_t cell = *CELL(c, i);
        if (!cell.open && !*open++) continue;
        cell.open = 1;
        *CELL(c, kept++) = cell;
        for (int64_t k = cell.begin; k < cell.begin + cell.size; k++)
            FACE(c, c->shell.at[k] >> 1)->round = c->round;
    }
    c->own.dropped += c->cells.count - kept;
    c->cells.count = kept;
}

/* One of the loops of a cut, by several threads. */
typedef struct loop {
    cut_t *threads;
    result_t *chunks;
    int64_t step;
    void (*each)(cut_t *, int64_t);
} loop_t;

static int do_chunk(void *context, int thread, int64_t begin, int64_t end) {
    loop_t *loop = context;
    cut_t *c = loop->threads + thread;
    volatile int status = SC_NO_MEMORY;
    memset(&c->own, 0, sizeof c->own);
    if (!setjmp(c->memory.failed)) {
        for (int64_t i = begin; i < end; i++) loop->each(c, i);
        status = SC_DONE;
    }
    loop->chunks[begin / loop->step] = c->own;
    return status;
}

/* Add numbers behind others; those from `known` on are raised. */
static int append(list_t *to, const list_t *from, int64_t known, int64_t raised) {
    if (!from->count) return 1;
    if (to->count + from->count > to->room) {
        int64_t room = to->count + from->count + to->count / 2;
        int64_t *at = realloc(to->at, (size_t)room * sizeof *at);
        if (!at) return 0;
        to->at = at;
        to->room = room;
    }
    for (int64_t i = 0; i < from->count; i++)
        to->at[to->count + i] = from->at[i] + (from->at[i] >= known ? raised : 0);
    to->count += from->count;
    return 1;
}

/* The same for the numbers of points: the last of each three is a function. */
static int append_points(result_t *whole, result_t *own, int64_t known, int64_t raised) {
    for (int64_t i = 0; i < own->point.count; i++)
        if (i % 3 < 2 && own->point.at[i] >= known) own->point.at[i] += raised;
    list_t t = {own->t.at, own->t.count, own->t.room};
    list_t all = {whole->t.at, whole->t.count, whole->t.room};
    int done = append(&all, &t, 0, 0); /* the bits of numbers */
    whole->t = (table_t){all.at, all.count, all.room};
    return done && append(&whole->point, &own->point, 0, 0);
}

/* Add what a chunk made; vertices, edges, faces: how many there were when its loop began. */
static int add_chunk(result_t *whole, result_t *own, int64_t old, int64_t points, int64_t edges,
                     int64_t faces) {
    int64_t v = whole->t.count - points, e = whole->edge_layer.count - edges;
    int64_t f = whole->face_layer.count - faces, every = INT64_MIN;
    whole->bounded += own->bounded;
    whole->dropped += own->dropped;
    return append(&whole->face_offset, &own->face_offset, every, whole->corner.count) &&
           append(&whole->cell_offset, &own->cell_offset, every, whole->side.count) &&
           append(&whole->uncut, &own->uncut, every, whole->parent.count) &&
           append(&whole->parent, &own->parent, every, 0) &&
           append(&whole->first_edge, &own->first_edge, every, e) &&
           append(&whole->first_face, &own->first_face, every, f) &&
           append(&whole->edge, &own->edge, old + points, v) &&
           append(&whole->edge_layer, &own->edge_layer, every, 0) &&
           append(&whole->corner, &own->corner, 2 * edges, 2 * e) &&
           append(&whole->face_layer, &own->face_layer, every, 0) &&
           append(&whole->face_unit, &own->face_unit, every, 0) &&
           append(&whole->side, &own->side, 2 * faces, 2 * f) &&
           append_points(whole, own, old + points, v);
}

static void free_result(result_t *r) {
    list_t *lists[] = {&r->edge,        &r->edge_layer, &r->face_offset, &r->corner,     &r->face_layer,
                       &r->face_unit,   &r->side,       &r->parent,      &r->point,      &r->uncut,
                       &r->cell_offset, &r->first_edge, &r->first_face};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->at);
    free(r->t.at);
}

/* Do something for 0, ..., count - 1, and add what that makes. */
static int for_each(sc_pool *pool, cut_t *threads, result_t *whole, int64_t count,
                    void (*each)(cut_t *, int64_t)) {
    int64_t step = MAX(64, count / (8 * sc_threads(pool)) + 1), chunks = count / step + 1;
    int64_t old = threads->solid->vertices, points = whole->t.count;
    int64_t edges = whole->edge_layer.count, faces = whole->face_layer.count;
    loop_t loop = {threads, calloc((size_t)chunks, sizeof *loop.chunks), step, each};
    if (!loop.chunks) return SC_NO_MEMORY;
    int status = sc_parallel(pool, count, step, do_chunk, &loop);
    for (int64_t i = 0; i < chunks; i++) {
        if (!status && !add_chunk(whole, loop.chunks + i, old, points, edges, faces))
            status = SC_NO_MEMORY;
        free_result(loop.chunks + i);
    }
    free(loop.chunks);
    return status;
}

static int push_last(list_t *list, int64_t value) {
    list_t one = {&value, 1, 1};
    return append(list, &one, 0, 0);
}

static int cut_all(sc_pool *pool, cut_t *threads, result_t *whole) {
    const sc_solid *s = threads->solid;
    int status = for_each(pool, threads, whole, s->vertices, find_signs);
    if (!status) status = for_each(pool, threads, whole, s->edges, cut_edge);
    if (status || !push_last(&whole->first_edge, whole->edge_layer.count) ||
        !push_last(&whole->face_offset, 0))
        return SC_NO_MEMORY;
    status = for_each(pool, threads, whole, s->faces, cut_old_face);
    if (status || !push_last(&whole->first_face, whole->face_layer.count) ||
        !push_last(&whole->cell_offset, 0))
        return SC_NO_MEMORY;
    return for_each(pool, threads, whole, s->cells, cut_old_cell);
}

/* Mark what is needed: the numbers in a list, halved if they stand for two each. */
static int64_t *places(const list_t *needed, int shift, int64_t count, int64_t *left) {
    int64_t *place = calloc((size_t)MAX(count, 1), sizeof *place), n = 0;
    for (int64_t i = 0; place && i < needed->count; i++) place[needed->at[i] >> shift] = 1;
    for (int64_t i = 0; place && i < count; i++) place[i] = place[i] ? n++ : -1;
    *left = n;
    return place;
}

static void renumber(list_t *list, int shift, const int64_t *place) {
    for (int64_t i = 0; i < list->count; i++) {
        int64_t at = list->at[i];
        list->at[i] = place[at >> shift] << shift | (at & ((1 << shift) - 1));
    }
}

/* Leave out faces without a cell, edges without a face, and vertices without an edge. */
static int64_t *compact(result_t *r, int64_t vertices, int64_t *left) {
    int64_t faces, edges, corners = 0, *offset = r->face_offset.at;
    int64_t *face = places(&r->side, 1, r->face_layer.count, &faces);
    for (int64_t f = 0; face && f < r->face_layer.count; f++) {
        int64_t begin = offset[f], end = offset[f + 1], to = face[f];
        if (to < 0) continue;
        offset[to] = corners;
        memmove(r->corner.at + corners, r->corner.at + begin,
                (size_t)(end - begin) * sizeof *r->corner.at);
        corners += end - begin;
        r->face_layer.at[to] = r->face_layer.at[f];
        r->face_unit.at[to] = r->face_unit.at[f];
    }
    if (!face) return NULL;
    offset[faces] = r->corner.count = corners;
    renumber(&r->side, 1, face);
    free(face);
    r->face_layer.count = faces;
    int64_t *edge = places(&r->corner, 1, r->edge_layer.count, &edges);
    for (int64_t e = 0; edge && e < r->edge_layer.count; e++)
        if (edge[e] >= 0) {
            memmove(r->edge.at + 2 * edge[e], r->edge.at + 2 * e, 2 * sizeof *r->edge.at);
            r->edge_layer.at[edge[e]] = r->edge_layer.at[e];
        }
    if (!edge) return NULL;
    renumber(&r->corner, 1, edge);
    free(edge);
    r->edge_layer.count = edges;
    r->edge.count = 2 * edges;
    int64_t *place = places(&r->edge, 0, vertices, left);
    if (!place) return NULL;
    renumber(&r->edge, 0, place);
    for (int64_t v = 0; v < vertices; v++)
        if (place[v] >= 0) place[place[v]] = v;
    return place;
}

static int valid(const sc_solid *s) {
    for (int64_t i = 0; i < 2 * s->edges; i++)
        if ((uint64_t)s->edge[i] >= (uint64_t)s->vertices) return 0;
    for (int64_t i = 0; i < s->corners; i++)
        if ((uint64_t)s->corner[i] >= (uint64_t)(2 * s->edges)) return 0;
    for (int64_t i = 0; i < s->sides; i++)
        if ((uint64_t)s->side[i] >= (uint64_t)(2 * s->faces)) return 0;
    if (s->face_offset[0] || s->cell_offset[0]) return 0;
    for (int64_t i = 0; i < s->faces; i++)
        if (s->face_offset[i] > s->face_offset[i + 1]) return 0;
    for (int64_t i = 0; i < s->cells; i++)
        if (s->cell_offset[i] > s->cell_offset[i + 1]) return 0;
    return s->face_offset[s->faces] == s->corners && s->cell_offset[s->cells] == s->sides;
}

static void free_thread(cut_t *c) {
    list_t *lists[] = {&c->unit,  &c->ring, &c->shell,   &c->work, &c->chosen, &c->outer,
                       &c->inner,  &c->next,  &c->slot, &c->leaving, &c->seen, &c->offset, &c->corner};
    table_t *tables[] = {&c->vertices, &c->value, &c->sign, &c->faces, &c->edges,
                         &c->cells, &c->uvw,  &c->z,     &c->open};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->at);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]->at);
    sc_bounds_free(c->bounds);
}

/* Hand over the result, of which nothing but some lists is freed then. */
static void hand_over(result_t *r, sc_cut *made) {
    list_t *lists[] = {&r->edge, &r->edge_layer, &r->face_offset, &r->corner, &r->face_layer,
                       &r->face_unit, &r->cell_offset, &r->side, &r->parent, &r->point, &r->uncut};
    int64_t **places[] = {&made->edge, &made->edge_layer, &made->face_offset, &made->corner,
                          &made->face_layer, &made->face_unit, &made->cell_offset, &made->side,
                          &made->parent, &made->point, &made->uncut};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *places[i] = lists[i]->at;
        lists[i]->at = NULL;
    }
    made->t = r->t.at;
    r->t.at = NULL;
    made->edges = r->edge_layer.count;
    made->faces = r->face_layer.count;
    made->corners = r->corner.count;
    made->cells = r->parent.count;
    made->sides = r->side.count;
    made->points = r->t.count;
    made->uncuts = r->uncut.count;
    made->bounded = r->bounded;
    made->dropped = r->dropped;
}

int sc_cut_solid(sc_pool *pool, const sc_solid *solid, const sc_zero_sets *zero, int64_t layer,
                 const sc_chain *chain, const sc_bodies *bodies, sc_cut *made) {
    memset(made, 0, sizeof *made);
    if (!pool || !valid(solid)) return SC_MALFORMED;
    int64_t words = (zero->units + 63) / 64, count = sc_threads(pool);
    size_t vertices = (size_t)MAX(solid->vertices * words, 1);
    size_t faces = (size_t)MAX(solid->faces * words, 1);
    uint64_t *signs = calloc(2 * (vertices + faces), sizeof *signs);
    cut_t *threads = calloc((size_t)count, sizeof *threads);
    result_t whole = {0};
    int status = signs && threads ? SC_DONE : SC_NO_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        uint64_t *negative = signs + vertices, *above = negative + vertices;
        cut_t *c = threads + i;
        c->solid = solid;
        c->zero = zero;
        c->bodies = bodies;
        c->waits = bodies && bodies->last;
        c->words = words;
        c->rows = solid->vertices;
        c->layer = layer;
        c->positive = signs;
        c->negative = negative;
        c->above = above;
        c->below = above + faces;
        c->whole = &whole;
        if (bodies) status = sc_bounds_new(chain, bodies, &c->bounds);
    }
    if (!status) status = cut_all(pool, threads, &whole);
    if (!status) {
        made->kept = compact(&whole, solid->vertices + whole.t.count, &made->vertices);
        status = made->kept ? SC_DONE : SC_NO_MEMORY;
    }
    if (!status) hand_over(&whole, made);
    free_result(&whole);
    for (int64_t i = 0; i < count && threads; i++) free_thread(threads + i);
    free(threads);
    free(signs);
    return status;
}

/* Rows of the vertices that are left of a cut. */
typedef struct {
    cut_t cut;
    const sc_rows *rows;
    double *out;
} gather_t;

static int gather(void *context, int thread, int64_t begin, int64_t end) {
    const gather_t *g = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        find_whole_row(&g->cut, g->rows->row, g->rows->width, g->rows->kept[i],
                       g->out + i * g->rows->width);
    return SC_DONE;
}

int sc_gather_rows(sc_pool *pool, const sc_rows *rows, double *out) {
    for (int64_t i = 0; i < rows->points; i++)
        for (int k = 0; k < 2; k++)
            if (rows->point[3 * i + k] < 0 || rows->point[3 * i + k] >= rows->vertices + i)
                return SC_MALFORMED;
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->kept[i] < 0 || rows->kept[i] >= rows->vertices + rows->points) return SC_MALFORMED;
    sc_solid solid = {.vertices = rows->vertices};
    result_t whole = {.point = {(int64_t *)rows->point, 3 * rows->points, 0},
                      .t = {(double *)rows->t, rows->points, 0}};
    gather_t g = {.cut = {.solid = &solid, .whole = &whole}, .rows = rows, .out = out};
    return sc_parallel(pool, rows->count, 256, gather, &g);
}

/* The vertices of each cell, once each. Without `out` only the offsets are written. */
int sc_cell_corners(const sc_solid *s, int64_t *offset, int64_t *out) {
    int64_t *seen = malloc((size_t)MAX(s->vertices, 1) * sizeof *seen), count = 0;
    if (!seen) return SC_NO_MEMORY;
    memset(seen, 0xff, (size_t)s->vertices * sizeof *seen);
    for (int64_t i = 0; i < s->cells; i++) {
        offset[i] = count;
        for (int64_t k = s->cell_offset[i]; k < s->cell_offset[i + 1]; k++) {
            int64_t f = s->side[k] >> 1;
            for (int64_t l = s->face_offset[f]; l < s->face_offset[f + 1]; l++) {
                int64_t v = s->edge[s->corner[l]];
                if (seen[v] == i) continue;
                seen[v] = i;
                if (out) out[count] = v;
                count++;
            }
        }
    }
    offset[s->cells] = count;
    free(seen);
    return SC_DONE;
}
