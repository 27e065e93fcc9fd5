/* Cut a complex of three dimensions along zero sets: what solid.c does, in steps for a GPU.
 *
 * Edges, faces and cells are divided each by itself, first all edges, then all faces, then all cells.
 * What is made of an item is kept in memory of its own, until its numbers among all are known. There
 * are at most 64 functions.
 */
#include "steps.h"

#ifdef __CUDACC__
#define END asm volatile("exit;")
#define UNLESS_ENDED(code) code
#else
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
static jmp_buf ended;
#define END longjmp(ended, 1)
#define UNLESS_ENDED(code) \
    if (!setjmp(ended)) code
#endif

typedef struct {
    /* The complex, the functions, and what is written, as in sc_solid, sc_zero_sets and cut_t. */
    i64 vertices, edges, faces, corners, cells, sides, units, layer;
    i64 from_vertex, from_edge, from_face;
    const i64 *edge, *edge_layer, *face_offset, *corner, *face_layer, *face_unit, *cell_offset;
    const i64 *side, *label, *known_edge, *known_offset, *known_corner;
    const double *tolerance;
    double *z; /* (from_vertex, units) */
    u64 *positive, *negative, *above, *below;
    /* The functions that change sign on each edge, face or cell; the most up to each in a cell. */
    u64 *on_edge, *on_face, *on_cell;
    i64 *most, *some; /* some: how many functions are cut, and their bits */
    i64 few;          /* of them at most that are to be on a cell */
    i64 *status, *memory; /* whether memory is short, how much is used, items begun; memory */
    i64 room, grain;      /* how much there is, and how much a thread takes at least */
    i64 items, threads;   /* how many are divided; threads of which one divides */
    /* What is divided, and of how many; where what was made of each is, (LISTS of each); behind a 0
     * how many of a kind every edge, face or cell makes, and running sums of that, (KINDS, all + 1). */
    i64 all;
    const i64 *item;
    i64 *list, *count;
    const i64 *first, *first_edge, *first_face;
    /* The result, and the corners of each cell. */
    i64 *point, *made_edge, *made_edge_layer, *made_offset, *made_corner, *made_face_layer;
    i64 *made_face_unit, *made_cell_offset, *made_side, *uncut, *seen, *last;
    double *t;
    /* A table with rows of vertices: the first point after some old rows of each group of points. */
    i64 width;
    const i64 *group;
    double *table;
    /* Bounds on cells whose corners are `seen`, in blocks of some from one on: what C has as boxes_job_t
     * and box_t. chosen, most_of, share: see `span`; x: (4, items), and the others: (items) of a block,
     * for all units of each cell; norm, rounded, offset: (units); off, radius: of each cell. */
    i64 from_cell;
    double single;
    const double *uvw, *radius;
    double *most_of;
    i64 *chosen, *open;
    const float *norm, *rounded, *offset, *off;
    float *share, *x, *wide, *slope, *noise, *size, *rounding;
} run_t;

enum { POINTS, EDGES, FACES, CORNERS, CELLS, SIDES, UNCUTS, KINDS };
enum { LISTS = 11 };

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define int64_t i64
#define uint64_t u64
#define int8_t signed char
#ifdef __CUDACC__
#define static static __device__
#endif

typedef run_t sc_solid;
typedef run_t sc_zero_sets;
typedef struct bodies sc_bodies;
typedef struct bounds sc_bounds;
enum { ROOM = 12 }; /* of a small list */

struct memory {
    i64 *free, room;
};

#include "bodies.h"
#include "solid_part.h"

/* So many numbers of the memory, none if there is too little left. */
static i64 *taken(const run_t *r, i64 count) {
    i64 first = ADD(r->status + 1, count);
    if (first + count > r->room) r->status[0] = 1;
    return first + count > r->room ? 0 : r->memory + first;
}

static void *renew(cut_t *c, void *at, size_t old, size_t size) {
    const run_t *r = c->solid;
    i64 count = (i64)(size + 7) / 8, copied = (i64)(old + 7) / 8;
    if (c->memory.room < count) {
        c->memory.room = MAX(count, r->grain);
        c->memory.free = taken(r, c->memory.room);
        if (!c->memory.free) {
            END;
        }
    }
    i64 *made = c->memory.free;
    c->memory.free += count;
    c->memory.room -= count;
    for (i64 i = 0; i < copied; i++) made[i] = ((i64 *)at)[i];
    return made;
}

static void thin(cut_t *c) { (void)c; }

static void begin(cut_t *c, result_t *whole, const run_t *r) {
    c->solid = c->zero = r;
    c->words = 1;
    c->rows = r->from_vertex;
    c->layer = r->layer;
    c->positive = r->positive;
    c->negative = r->negative;
    c->above = r->above;
    c->below = r->below;
    c->whole = whole;
    whole->t.count = r->from_vertex - r->vertices;
    whole->edge_layer.count = r->from_edge;
    whole->face_layer.count = r->from_face;
    whole->edge.at = (i64 *)r->known_edge;
    whole->face_offset.at = (i64 *)r->known_offset;
    whole->corner.at = (i64 *)r->known_corner;
    whole->first_edge.at = (i64 *)r->first_edge;
    whole->first_face.at = (i64 *)r->first_face;
}

/* Let the next item write its lists behind those of the one before. */
static void go_on(result_t *own) {
    list_t *list = (list_t *)own, *end = (list_t *)&own->t;
    for (; list < end; list++) {
        list->at += list->count;
        list->room -= list->count;
        list->count = 0;
    }
    own->t.at = (double *)own->t.at + own->t.count;
    own->t.room -= own->t.count;
    own->t.count = 0;
}

/* Keep what was made of item i. */
static void keep(const cut_t *c, i64 i) {
    const run_t *r = c->solid;
    i64 *list = r->list + LISTS * i;
    const result_t *own = &c->own;
    const i64 *lists[LISTS] = {own->point.at,       (i64 *)own->t.at, own->edge.at,
                               own->edge_layer.at,  own->face_offset.at, own->corner.at,
                               own->face_layer.at,  own->face_unit.at,   own->cell_offset.at,
                               own->side.at,        own->uncut.at};
    for (int k = 0; k < LISTS; k++) list[k] = (i64)lists[k];
    const i64 counts[KINDS] = {own->t.count,      own->edge_layer.count, own->face_layer.count,
                               own->corner.count, own->parent.count,     own->side.count,
                               own->uncut.count};
    for (int k = 0; k < KINDS; k++) r->count[k * (r->all + 1) + r->item[i] + 1] = counts[k];
}

#ifdef __CUDACC__
#undef static
#endif

#define BEGIN             \
    cut_t c = {0};        \
    result_t whole = {0}; \
    begin(&c, &whole, r);

/* -- signs ---------------------------------------------------------------------------------- */

STEP(find_vertex_signs, v) {
    BEGIN
    find_signs(&c, v);
}

STEP(find_signs_of_face, f) {
    BEGIN
    find_face_signs(&c, f);
    r->on_face[f] = r->above[f] & r->below[f];
}

STEP(find_signs_on_edge, e) {
    i64 a = r->edge[2 * e], b = r->edge[2 * e + 1];
    r->on_edge[e] = (r->positive[a] & r->negative[b]) | (r->negative[a] & r->positive[b]);
}

STEP(find_signs_of_cell, i) {
    u64 above = 0, below = 0;
    for (i64 k = r->cell_offset[i]; k < r->cell_offset[i + 1]; k++) {
        above |= r->above[r->side[k] >> 1];
        below |= r->below[r->side[k] >> 1];
    }
    r->on_cell[i] = above & below;
}

STEP(count_functions, i) {
    i64 count = 0;
    for (u64 bits = r->on_cell[i]; bits; bits &= bits - 1)
        if (++count > r->most[LOWEST_BIT(bits)]) AT_LEAST(r->most + LOWEST_BIT(bits), count);
}

/* The first functions, of which each cell has few. */
STEP(choose_functions, i) {
    u64 bits = 1;
    i64 count = 1;
    for (; count < r->units && r->most[count] <= r->few; count++) bits |= (u64)1 << count;
    r->some[i] = count;
    r->some[i + 1] = (i64)bits;
}

STEP(keep_signs, i) {
    u64 bits = (u64)r->some[1];
    if (i < r->vertices) {
        r->positive[i] &= bits;
        r->negative[i] &= bits;
    }
    if (i < r->faces) {
        r->above[i] &= bits;
        r->below[i] &= bits;
        r->on_face[i] &= bits;
    }
    if (i < r->cells) r->on_cell[i] &= bits;
}

/* -- division ------------------------------------------------------------------------------- */

/* What a worker needs, in memory of its own: the stack of a GPU is spread over the threads of a warp,
 * so that a single thread would read 32 times as much. */
typedef struct worker {
    cut_t cut;
    result_t whole;
} worker_t;

DEVICE worker_t *begin_work(const run_t *r) {
    worker_t *w = (worker_t *)taken(r, sizeof *w / 8);
    for (size_t i = 0; w && i < sizeof *w / 8; i++) ((i64 *)w)[i] = 0;
    if (w) begin(&w->cut, &w->whole, r);
    return w;
}

/* Some workers divide one item after the other. These differ so much that threads of a warp would
 * wait for each other: only one of some is a worker. */
#define DIVIDE(divided)                                                         \
    worker_t *w = i % r->threads ? 0 : begin_work(r);                           \
    if (!w) return;                                                             \
    UNLESS_ENDED({                                                              \
        for (i64 n; (n = ADD_ONE(r->status + 2)) < r->items; go_on(&w->cut.own)) { \
            divided(&w->cut, r->item[n]);                                       \
            keep(&w->cut, n);                                                   \
        }                                                                       \
    })

STEP(divide_edge, i) { DIVIDE(cut_edge) }

STEP(divide_face, i) { DIVIDE(cut_old_face) }

STEP(divide_cell, i) { DIVIDE(cut_old_cell) }

/* The values of the functions at the points of item i, and their signs. */
STEP(find_values, i) {
    BEGIN
    for (i64 n = r->group[i]; n < r->group[i + 1]; n++) {
        i64 v = r->from_vertex + n, a = r->point[3 * n], b = r->point[3 * n + 1];
        u64 above = 0, below = 0;
        for (i64 k = 0; k < r->units; k++) {
            const double *z = r->z + k;
            double value = between(z[a * r->units], z[b * r->units], r->t[n]);
            int sign = sign_between(&c, value, k, sign_bit(&c, a, k), sign_bit(&c, b, k));
            if (r->point[3 * n + 2] == k) value = sign = 0;
            r->z[v * r->units + k] = value;
            above |= (u64)(sign > 0) << k;
            below |= (u64)(sign < 0) << k;
        }
        r->positive[v] = above;
        r->negative[v] = below;
    }
}

/* A column of a table at the points of a group. */
STEP(interpolate, item) {
    i64 i = item / r->width, k = item % r->width;
    for (i64 n = r->group[i]; n < r->group[i + 1]; n++) {
        const double *a = r->table + r->point[3 * n] * r->width;
        const double *b = r->table + r->point[3 * n + 1] * r->width;
        r->table[(r->from_vertex + n) * r->width + k] = (1 - r->t[n]) * a[k] + r->t[n] * b[k];
    }
}

/* -- the result ----------------------------------------------------------------------------- */

STEP(write_part, i) {
    const i64 *list = r->list + LISTS * i;
    i64 first[KINDS], made[KINDS];
    for (int k = 0; k < KINDS; k++) {
        const i64 *at = r->first + k * (r->all + 1) + r->item[i];
        first[k] = at[0];
        made[k] = at[1] - at[0];
    }
    for (i64 k = 0; k < made[POINTS]; k++) {
        i64 *to = r->point + 3 * (first[POINTS] + k), *from = (i64 *)list[0] + 3 * k;
        for (int j = 0; j < 2; j++)
            to[j] = from[j] + (from[j] < r->from_vertex ? 0 : first[POINTS]);
        to[2] = from[2];
        r->t[first[POINTS] + k] = ((double *)list[1])[k];
    }
    for (i64 k = 0; k < 2 * made[EDGES]; k++) {
        i64 v = ((i64 *)list[2])[k];
        r->made_edge[2 * first[EDGES] + k] = v + (v < r->from_vertex ? 0 : first[POINTS]);
    }
    for (i64 k = 0; k < made[EDGES]; k++)
        r->made_edge_layer[first[EDGES] + k] = ((i64 *)list[3])[k];
    for (i64 k = 0; k < made[FACES]; k++) {
        i64 f = first[FACES] + k;
        r->made_offset[f + 1] = ((i64 *)list[4])[k] + first[CORNERS];
        r->made_face_layer[f] = ((i64 *)list[6])[k];
        r->made_face_unit[f] = ((i64 *)list[7])[k];
    }
    for (i64 k = 0; k < made[CORNERS]; k++) {
        i64 half = ((i64 *)list[5])[k];
        r->made_corner[first[CORNERS] + k] =
            half + (half >> 1 < r->from_edge ? 0 : 2 * first[EDGES]);
    }
    for (i64 k = 0; k < made[CELLS]; k++)
        r->made_cell_offset[first[CELLS] + k + 1] = ((i64 *)list[8])[k] + first[SIDES];
    for (i64 k = 0; k < made[SIDES]; k++) {
        i64 side = ((i64 *)list[9])[k];
        r->made_side[first[SIDES] + k] = side + (side >> 1 < r->from_face ? 0 : 2 * first[FACES]);
    }
    for (i64 k = 0; k < made[UNCUTS]; k++)
        r->uncut[first[UNCUTS] + k] = ((i64 *)list[10])[k] + first[CELLS];
}

/* Write an edge, a face, and a cell, that is not divided. */
STEP(write_edge, e) {
    i64 to = r->first[EDGES * (r->all + 1) + e];
    if (r->on_edge[e]) return;
    r->made_edge[2 * to] = r->edge[2 * e];
    r->made_edge[2 * to + 1] = r->edge[2 * e + 1];
    r->made_edge_layer[to] = r->edge_layer[e];
}

STEP(write_face, f) {
    i64 begin = r->face_offset[f], end = r->face_offset[f + 1];
    i64 to = r->first[FACES * (r->all + 1) + f], at = r->first[CORNERS * (r->all + 1) + f];
    if (r->on_face[f]) return;
    for (i64 k = begin; k < end; k++)
        r->made_corner[at + k - begin] =
            2 * r->first_edge[r->corner[k] >> 1] + (r->corner[k] & 1);
    r->made_offset[to + 1] = at + end - begin;
    r->made_face_layer[to] = r->face_layer[f];
    r->made_face_unit[to] = r->face_unit[f];
}

STEP(write_cell_as_it_is, i) {
    i64 begin = r->cell_offset[i], end = r->cell_offset[i + 1];
    i64 to = r->first[CELLS * (r->all + 1) + i], at = r->first[SIDES * (r->all + 1) + i];
    if (r->on_cell[i]) return;
    for (i64 k = begin; k < end; k++)
        r->made_side[at + k - begin] = 2 * r->first_face[r->side[k] >> 1] + (r->side[k] & 1);
    r->made_cell_offset[to + 1] = at + end - begin;
}

/* first: where the corners of each cell begin; last: written, where they end. */
STEP(list_corners, i) {
    i64 at = r->first[i];
    for (i64 k = r->cell_offset[i]; k < r->cell_offset[i + 1]; k++) {
        i64 f = r->side[k] >> 1;
        for (i64 l = r->face_offset[f]; l < r->face_offset[f + 1]; l++) {
            i64 v = r->edge[r->corner[l]], known = 0;
            for (i64 j = r->first[i]; j < at && !known; j++) known = r->seen[j] == v;
            if (!known) r->seen[at++] = v;
        }
    }
    r->last[i] = at;
}

/* -- bounds --------------------------------------------------------------------------------- */

STEP(span_cell, i) {
    i64 begin = r->first[i];
    span(r->uvw, r->seen + begin, r->last[i] - begin, r->share + 3 * begin, r->chosen + 4 * i,
         r->most_of + 3 * i);
}

/* An affine function at a corner. */
DEVICE float at_corner(const float *x, const float *share) {
    return x[0] + share[0] * x[1] + share[1] * x[2] + share[2] * x[3];
}

DEVICE void find_range(const run_t *r, i64 cell, const float *x, float *low, float *high) {
    *low = *high = at_corner(x, r->share + 3 * r->first[cell]);
    for (i64 l = r->first[cell] + 1; l < r->last[cell]; l++) {
        float value = at_corner(x, r->share + 3 * l);
        *low = MIN(*low, value);
        *high = MAX(*high, value);
    }
}

/* Replace a unit of a cell by a line. */
DEVICE void write_line(const run_t *r, i64 item, float *x, float wide, float rounding) {
    float low, high, size = 0;
    find_range(r, r->from_cell + item / r->units, x, &low, &high);
    float above = high + wide + rounding, below = low - wide - rounding;
    above = above > 0 ? above : 0;
    below = below < 0 ? below : 0;
    float slope = above > 0 ? above / (above - below) : 0, noise = -0.5f * below * slope;
    x[0] = x[0] * slope + noise;
    for (int k = 1; k < 4; k++) x[k] *= slope;
    r->wide[item] = wide = wide * slope + noise;
    for (int k = 0; k < 4; k++) size += fabsf(r->x[k * r->items + item] = x[k]);
    r->size[item] = size + wide;
    r->slope[item] = slope;
    r->noise[item] = noise;
    r->rounding[item] = slope != 0 ? rounding : 0;
}

/* Units of the first layer. What is not affine there, if only by rounding, is noise. */
STEP(enter, item) {
    i64 n = r->units, u = item % n, cell = r->from_cell + item / n;
    const i64 *at = r->chosen + 4 * cell;
    const double *z = r->z + u;
    float x[4] = {(float)z[at[0] * n]}, off = 0, size = fabsf(x[0]);
    for (int k = 1; k < 4; k++) {
        x[k] = (float)(r->most_of[3 * cell + k - 1] * (z[at[k] * n] - z[at[0] * n]));
        size += fabsf(x[k]);
    }
    for (i64 l = r->first[cell]; l < r->last[cell]; l++) {
        float gap = fabsf((float)z[r->seen[l] * n] - at_corner(x, r->share + 3 * l));
        off = MAX(off, gap);
    }
    write_line(r, item, x, off, (float)r->single * size + 1e-37f);
    r->noise[item] = r->wide[item];
}

/* Units of later layers: x and wide are products, without the offsets. */
STEP(rectify, item) {
    i64 i = item / r->units, u = item % r->units;
    float x[4];
    for (int k = 0; k < 4; k++) x[k] = r->x[k * r->items + item];
    x[0] += r->offset[u];
    write_line(r, item, x, r->wide[item], r->rounded[u] + r->off[i] * r->norm[u]);
}

/* Whether the only output, which is off by a radius, may vanish on a cell. */
STEP(find_open, i) {
    float x[4], low, high;
    for (int k = 0; k < 4; k++) x[k] = r->x[k * r->items + i];
    x[0] += r->offset[0];
    find_range(r, r->from_cell + i, x, &low, &high);
    r->open[r->from_cell + i] = !(low > r->radius[i] || high < -r->radius[i]);
}
