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
 *
 * long: all steps of a cut work on the one part of the complex that is being divided. */
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

enum { COLUMNS = 64 }; /* of a row that are interpolated together */

typedef struct {
    int64_t *at, count, room;
} list_t;

typedef struct {
    int64_t face, stamp, from, to; /* its pieces: itself, and the faces from ... to a function */
    int64_t begin, size;           /* its half-edges in `ring` */
    int64_t layer, unit, side;
    int64_t round; /* of leaving out cells, in which it was there */
} face_t;

typedef struct {
    int64_t a, b, p, q; /* its ends, and those of the line on which it lies */
    int64_t half;       /* the half-edge of the result in the same direction, -1: not written */
    int64_t layer, stamp, child, mark;
} edge_t;

typedef struct {
    int64_t begin, size; /* its sides in `shell` */
    int64_t open;        /* whether the function may vanish on it */
} cell_t;

typedef struct {
    void *at;
    int64_t count, room;
} table_t;

/* What a cut makes, and where the pieces of each edge and face begin. */
typedef struct {
    list_t edge, edge_layer, face_offset, corner, face_layer, face_unit, cell_offset, side, parent;
    list_t point, uncut, first_edge, first_face;
    table_t t;
    int64_t bounded, dropped;
} result_t;

/* The work of one thread. */
typedef struct {
    const sc_solid *solid;
    const sc_zero_sets *zero;
    const sc_bodies *bodies; /* of the corners of the solid, or NULL */
    sc_bounds *bounds;
    int64_t words, layer;
    uint64_t *positive, *negative; /* (vertices, words) */
    uint64_t *above, *below;       /* (faces, words) signs at any corner */
    jmp_buf failed;
    const result_t *whole; /* what is known */
    result_t own;          /* what the chunk adds */
    /* The part of the complex that is being divided. Its first edges and faces are final. */
    list_t vertex, unit, ring, shell, work, chosen, outer, inner, next, leaving, slot, seen, offset;
    list_t corner;
    table_t value, sign, faces, edges, cells, uvw, z, open;
    int64_t final_edges, round, mask;
} cut_t;

static void *room_for(cut_t *c, table_t *table, int64_t more, size_t size) {
    if (table->count + more > table->room) {
        int64_t room = MAX(table->room + table->room / 2, table->count + more + 64);
        void *at = realloc(table->at, (size_t)room * size);
        if (!at) longjmp(c->failed, 1);
        table->at = at;
        table->room = room;
    }
    table->count += more;
    return (char *)table->at + (size_t)(table->count - more) * size;
}

static void push(cut_t *c, list_t *list, int64_t value) {
    if (list->count == list->room) {
        int64_t room = list->room + list->room / 2 + 64;
        int64_t *at = realloc(list->at, (size_t)room * sizeof *at);
        if (!at) longjmp(c->failed, 1);
        list->at = at;
        list->room = room;
    }
    list->at[list->count++] = value;
}

#define FACE(c, i) (((face_t *)(c)->faces.at) + (i))
#define EDGE(c, i) (((edge_t *)(c)->edges.at) + (i))
#define CELL(c, i) (((cell_t *)(c)->cells.at) + (i))
#define VALUE(c, v, j) (((double *)(c)->value.at)[(v) * (c)->unit.count + (j)])
#define SIGN(c, v, j) (((int8_t *)(c)->sign.at)[(v) * (c)->unit.count + (j)])

/* One function, so that a value has the same bits wherever it is computed. */
__attribute__((noinline)) static double between(double a, double b, double t) {
    return (1 - t) * a + t * b;
}

static int sign_of(const cut_t *c, double value, int64_t k) {
    double tolerance = c->zero->tolerance[k];
    return (value > tolerance) - (value < -tolerance);
}

/* The sign between two places, which is none that neither has. */
static int sign_between(const cut_t *c, double value, int64_t k, int one, int two) {
    int sign = sign_of(c, value, k);
    return sign > 0 && one <= 0 && two <= 0 ? 0 : sign < 0 && one >= 0 && two >= 0 ? 0 : sign;
}

/* The ends of the line on which a new vertex lies, and the function that vanishes there. */
static const int64_t *point_of(const cut_t *c, int64_t v, double *t) {
    int64_t i = v - c->solid->vertices, known = c->whole->t.count;
    const result_t *from = i < known ? c->whole : &c->own;
    i -= i < known ? 0 : known;
    *t = ((double *)from->t.at)[i];
    return from->point.at + 3 * i;
}

/* The value of function k at a vertex of the result, and its sign. */
static double value_at(const cut_t *c, int64_t v, int64_t k, int *sign) {
    int64_t old = c->solid->vertices;
    if (v < old) {
        double value = c->zero->z[v * c->zero->units + k];
        *sign = sign_of(c, value, k);
        return value;
    }
    double t;
    const int64_t *point = point_of(c, v, &t);
    if (point[2] == k) {
        *sign = 0;
        return 0;
    }
    int one, two;
    double a = value_at(c, point[0], k, &one), b = value_at(c, point[1], k, &two);
    double value = between(a, b, t);
    *sign = sign_between(c, value, k, one, two);
    return value;
}

static int64_t new_vertex(cut_t *c, int64_t p, int64_t q, double t, int64_t k) {
    push(c, &c->own.point, p);
    push(c, &c->own.point, q);
    push(c, &c->own.point, k);
    *(double *)room_for(c, &c->own.t, 1, sizeof(double)) = t;
    return c->solid->vertices + c->whole->t.count + c->own.t.count - 1;
}

static int64_t new_edge(cut_t *c, int64_t a, int64_t b, int64_t layer) {
    push(c, &c->own.edge, a);
    push(c, &c->own.edge, b);
    push(c, &c->own.edge_layer, layer);
    return c->whole->edge_layer.count + c->own.edge_layer.count - 1;
}

static void find_signs(cut_t *c, int64_t v) {
    int64_t n = c->zero->units;
    const double *z = c->zero->z + v * n, *tolerance = c->zero->tolerance;
    for (int64_t w = 0; w < c->words; w++) {
        uint64_t above = 0, below = 0;
        for (int64_t k = 64 * w; k < MIN(n, 64 * w + 64); k++) {
            above |= (uint64_t)(z[k] > tolerance[k]) << (k & 63);
            below |= (uint64_t)(z[k] < -tolerance[k]) << (k & 63);
        }
        c->positive[v * c->words + w] = above;
        c->negative[v * c->words + w] = below;
    }
}

/* The signs that functions have at the corners of a face. */
static void find_face_signs(cut_t *c, int64_t f) {
    const sc_solid *s = c->solid;
    uint64_t *above = c->above + f * c->words, *below = c->below + f * c->words;
    for (int64_t k = s->face_offset[f]; k < s->face_offset[f + 1]; k++) {
        int64_t v = s->edge[s->corner[k]];
        for (int64_t w = 0; w < c->words; w++) {
            above[w] |= c->positive[v * c->words + w];
            below[w] |= c->negative[v * c->words + w];
        }
    }
}

/* The functions that have both signs at the corners of some sides, in c->unit. */
static void find_units(cut_t *c, const int64_t *sides, int64_t count) {
    c->unit.count = 0;
    for (int64_t w = 0; w < c->words; w++) {
        uint64_t above = 0, below = 0;
        for (int64_t i = 0; i < count; i++) {
            above |= c->above[(sides[i] >> 1) * c->words + w];
            below |= c->below[(sides[i] >> 1) * c->words + w];
        }
        for (uint64_t bits = above & below; bits; bits &= bits - 1)
            push(c, &c->unit, 64 * w + __builtin_ctzll(bits));
    }
}

/* Divide an edge where functions change sign along it, unless they vanish at a point before. */
static void cut_edge(cut_t *c, int64_t e) {
    const sc_solid *s = c->solid;
    int64_t a = s->edge[2 * e], b = s->edge[2 * e + 1], n = c->zero->units;
    c->work.count = 0; /* the numbers of the points, in order */
    for (int64_t w = 0; w < c->words; w++) {
        uint64_t pa = c->positive[a * c->words + w], na = c->negative[a * c->words + w];
        uint64_t pb = c->positive[b * c->words + w], nb = c->negative[b * c->words + w];
        for (uint64_t bits = (pa & nb) | (na & pb); bits; bits &= bits - 1) {
            int64_t k = 64 * w + __builtin_ctzll(bits), place = 0, count = c->work.count;
            double za = c->zero->z[a * n + k], zb = c->zero->z[b * n + k];
            int sign = za > 0 ? 1 : -1, found = sign;
            for (; place < count && found == sign; place++)
                value_at(c, c->work.at[place], k, &found);
            if (found == 0) continue;
            if (found != sign) place--;
            double low = 0, high = 1;
            if (place) point_of(c, c->work.at[place - 1], &low);
            if (place < count) point_of(c, c->work.at[place], &high);
            int64_t v = new_vertex(c, a, b, MIN(MAX(za / (za - zb), low), high), k);
            push(c, &c->work, v);
            for (int64_t i = count; i > place; i--) c->work.at[i] = c->work.at[i - 1];
            c->work.at[place] = v;
        }
    }
    push(c, &c->own.first_edge, c->whole->edge_layer.count + c->own.edge_layer.count);
    for (int64_t i = 0; i <= c->work.count; i++)
        new_edge(c, i ? c->work.at[i - 1] : a, i < c->work.count ? c->work.at[i] : b,
                 s->edge_layer[e]);
}

static int64_t add_vertex(cut_t *c, int64_t v) {
    int64_t m = c->unit.count, i = c->vertex.count;
    push(c, &c->vertex, v);
    double *value = room_for(c, &c->value, m, sizeof(double));
    int8_t *sign = room_for(c, &c->sign, m, 1);
    for (int64_t j = 0; j < m; j++) {
        int found;
        value[j] = value_at(c, v, c->unit.at[j], &found);
        sign[j] = (int8_t)found;
    }
    return i;
}

/* The vertex at a fraction t from p to q, where function j vanishes. */
static int64_t add_point(cut_t *c, int64_t p, int64_t q, double t, int64_t j) {
    int64_t m = c->unit.count, i = c->vertex.count;
    int64_t one = c->vertex.at[p], two = c->vertex.at[q];
    push(c, &c->vertex, new_vertex(c, one, two, t, c->unit.at[j]));
    room_for(c, &c->value, m, sizeof(double));
    room_for(c, &c->sign, m, 1);
    for (int64_t k = 0; k < m; k++) {
        double value = k == j ? 0 : between(VALUE(c, p, k), VALUE(c, q, k), t);
        VALUE(c, i, k) = value;
        SIGN(c, i, k) = (int8_t)sign_between(c, value, c->unit.at[k], SIGN(c, p, k), SIGN(c, q, k));
    }
    return i;
}

static int64_t add_edge(cut_t *c, int64_t a, int64_t b, int64_t half, int64_t layer) {
    edge_t *e = room_for(c, &c->edges, 1, sizeof *e);
    *e = (edge_t){a, b, a, b, half, layer, -1, -1, 0};
    return c->edges.count - 1;
}

static int64_t add_face(cut_t *c, int64_t face, int64_t begin, int64_t layer, int64_t unit) {
    face_t *f = room_for(c, &c->faces, 1, sizeof *f);
    *f = (face_t){face, -1, 0, 0, begin, c->ring.count - begin, layer, unit, 0, c->round};
    return c->faces.count - 1;
}

static int64_t start_of(const cut_t *c, int64_t half) {
    const edge_t *e = EDGE(c, half >> 1);
    return half & 1 ? e->b : e->a;
}

static void split_edge(cut_t *c, int64_t number, int64_t j) {
    edge_t *e = EDGE(c, number);
    int64_t p = e->p, q = e->q, b = e->b;
    if (SIGN(c, p, j) * SIGN(c, q, j) >= 0) {
        p = e->a;
        q = e->b;
    }
    double t = VALUE(c, p, j) / (VALUE(c, p, j) - VALUE(c, q, j));
    int64_t v = add_point(c, p, q, t, j), child = add_edge(c, v, b, -1, e->layer);
    e = EDGE(c, number);
    EDGE(c, child)->p = e->p;
    EDGE(c, child)->q = e->q;
    e->b = v;
    e->stamp = j;
    e->child = child;
}

/* Where runs of negative corners begin and end in a ring of corners, of which the first one is
 * positive: pairs of the corners before and after in c->outer. */
static void find_runs(cut_t *c, const int64_t *corner, int64_t size, int64_t j) {
    int64_t first = -1, last = -1;
    c->outer.count = 0;
    for (int64_t i = 1; i <= size; i++) {
        int sign = i == size ? 1 : SIGN(c, corner[i], j);
        if (sign < 0) {
            if (first < 0) first = i;
            last = i;
        } else if (sign > 0 && first >= 0) {
            push(c, &c->outer, first - 1);
            push(c, &c->outer, last + 1);
            first = -1;
        }
    }
}

/* Turn a ring so that it begins with a positive corner; whether there are both signs. */
static int turn(const cut_t *c, int64_t *ring, int64_t size, int64_t j, int halves) {
    int64_t first = -1, below = 0;
    for (int64_t i = 0; i < size; i++) {
        int sign = SIGN(c, halves ? start_of(c, ring[i]) : ring[i], j);
        if (sign > 0 && first < 0) first = i;
        below += sign < 0;
    }
    if (first < 0 || !below) return 0;
    int64_t ends[3][2] = {{0, first}, {first, size}, {0, size}};
    for (int r = 0; r < 3; r++)
        for (int64_t i = ends[r][0], k = ends[r][1] - 1; i < k; i++, k--) {
            int64_t swapped = ring[i];
            ring[i] = ring[k];
            ring[k] = swapped;
        }
    return 1;
}

/* Divide a face of the part along the zero set of function j. */
static void cut_face(cut_t *c, int64_t f, int64_t j) {
    int64_t begin = FACE(c, f)->begin, size = FACE(c, f)->size, above = 0, below = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t half = c->ring.at[begin + i];
        /* The far end of a divided edge has the sign that its own far end had. */
        int sign = SIGN(c, start_of(c, half), j);
        const edge_t *e = EDGE(c, half >> 1);
        if (e->stamp == j && (half & 1)) sign = SIGN(c, EDGE(c, e->child)->b, j);
        above += sign > 0;
        below += sign < 0;
    }
    if (!above || !below) return;
    c->work.count = 0; /* the half-edges with all points */
    for (int64_t i = 0; i < size; i++) {
        int64_t half = c->ring.at[begin + i], number = half >> 1;
        edge_t *e = EDGE(c, number);
        if (e->stamp != j && SIGN(c, e->a, j) * SIGN(c, e->b, j) < 0) {
            if (number >= c->final_edges) {
                split_edge(c, number, j);
            } else { /* rounding has changed a sign: the smaller value is none */
                int far = fabs(VALUE(c, e->a, j)) > fabs(VALUE(c, e->b, j));
                SIGN(c, far ? e->b : e->a, j) = 0;
            }
        }
        e = EDGE(c, number);
        if (e->stamp != j) {
            push(c, &c->work, half);
            continue;
        }
        push(c, &c->work, 2 * (half & 1 ? e->child : number) + (half & 1));
        push(c, &c->work, 2 * (half & 1 ? number : e->child) + (half & 1));
    }
    size = c->work.count;
    int divided = turn(c, c->work.at, size, j, 1);
    FACE(c, f)->stamp = j;
    FACE(c, f)->from = c->faces.count;
    if (divided) {
        c->inner.count = 0;
        for (int64_t i = 0; i < size; i++) push(c, &c->inner, start_of(c, c->work.at[i]));
        find_runs(c, c->inner.at, size, j);
    }
    int64_t chords = divided ? c->outer.count / 2 : 0, p = -1, q = -1;
    if (chords == 1 && c->next.count) { /* the ends of the whole chord of a face */
        int64_t one = c->outer.at[0], two = c->outer.at[1];
        if (turn(c, c->next.at, c->next.count, j, 0)) {
            find_runs(c, c->next.at, c->next.count, j);
            if (c->outer.count == 2) {
                p = c->next.at[c->outer.at[0]];
                q = c->next.at[c->outer.at[1]];
            }
        }
        c->outer.count = 0;
        push(c, &c->outer, one);
        push(c, &c->outer, two);
    }
    int64_t layer = FACE(c, f)->layer, unit = FACE(c, f)->unit, written = 0;
    c->chosen.count = 0;
    for (int64_t r = 0; r < chords; r++) {
        int64_t low = c->outer.at[2 * r], high = c->outer.at[2 * r + 1];
        int64_t chord = add_edge(c, c->inner.at[low], c->inner.at[high], -1, layer);
        if (p >= 0 && p != q) {
            EDGE(c, chord)->p = p;
            EDGE(c, chord)->q = q;
        }
        int64_t at = c->ring.count;
        for (int64_t i = low; i < high; i++) push(c, &c->ring, c->work.at[i]);
        push(c, &c->ring, 2 * chord + 1);
        add_face(c, -1, at, layer, unit);
        for (int64_t i = written; i < low; i++) push(c, &c->chosen, c->work.at[i]);
        push(c, &c->chosen, 2 * chord);
        written = high;
    }
    for (int64_t i = written; i < size; i++) push(c, &c->chosen, c->work.at[i]);
    FACE(c, f)->to = c->faces.count;
    FACE(c, f)->begin = c->ring.count;
    for (int64_t i = 0; i < c->chosen.count; i++) push(c, &c->ring, c->chosen.at[i]);
    FACE(c, f)->size = c->ring.count - FACE(c, f)->begin;
}

/* Which side of function j a face of the part is on; where rounding has left both, the larger. */
static int64_t side_of(const cut_t *c, int64_t f, int64_t j) {
    double low = 0, high = 0;
    const face_t *face = FACE(c, f);
    for (int64_t i = 0; i < face->size; i++) {
        int64_t v = start_of(c, c->ring.at[face->begin + i]);
        if (SIGN(c, v, j) > 0) high = MAX(high, VALUE(c, v, j));
        if (SIGN(c, v, j) < 0) low = MIN(low, VALUE(c, v, j));
    }
    return high > -low ? 1 : high < -low ? -1 : 0;
}

/* Cut the chosen sides (of which each is marked by 2 in its face) off a cell by a new face, if
 * their border is one simple cycle. */
static int cut_off(cut_t *c, int64_t number, const list_t *chosen, int64_t j) {
    int64_t total = 0, first = -1, at = c->ring.count;
    for (int pass = 0; pass < 2; pass++) /* an edge between two chosen sides is seen twice */
        for (int64_t i = 0; i < chosen->count; i++) {
            const face_t *f = FACE(c, chosen->at[i] >> 1);
            for (int64_t k = f->begin; k < f->begin + f->size; k++) {
                edge_t *e = EDGE(c, c->ring.at[k] >> 1);
                if (pass == 0) {
                    e->mark++;
                } else if (e->mark == 1) {
                    int64_t half = c->ring.at[k] ^ (chosen->at[i] & 1) ^ 1;
                    int64_t *leaving = c->leaving.at + start_of(c, half);
                    *leaving = *leaving == -1 ? half : -2;
                    first = half;
                    total++;
                }
            }
        }
    int64_t half = first, length = 0;
    while (half >= 0 && length < total) {
        push(c, &c->ring, half);
        length++;
        half = c->leaving.at[start_of(c, half ^ 1)];
        if (half == first) break;
    }
    int simple = length == total && half == first && length > 2;
    for (int64_t i = 0; i < chosen->count; i++) {
        const face_t *f = FACE(c, chosen->at[i] >> 1);
        for (int64_t k = f->begin; k < f->begin + f->size; k++) {
            edge_t *e = EDGE(c, c->ring.at[k] >> 1);
            e->mark = 0;
            c->leaving.at[e->a] = c->leaving.at[e->b] = -1;
        }
    }
    if (!simple) {
        c->ring.count = at;
        return 0;
    }
    int64_t unit = c->zero->label[c->unit.at[j]];
    int64_t face = add_face(c, -1, at, c->layer, unit), begin = c->shell.count;
    for (int64_t i = 0; i < chosen->count; i++) push(c, &c->shell, chosen->at[i]);
    push(c, &c->shell, 2 * face);
    cell_t *made = room_for(c, &c->cells, 1, sizeof *made);
    *made = (cell_t){begin, c->shell.count - begin, 0};
    begin = c->shell.count;
    cell_t old = *CELL(c, number);
    for (int64_t i = 0; i < old.size; i++) {
        int64_t side = c->shell.at[old.begin + i];
        if (FACE(c, side >> 1)->side != 2) push(c, &c->shell, side);
    }
    push(c, &c->shell, 2 * face + 1);
    FACE(c, face)->side = 0;
    *CELL(c, number) = (cell_t){begin, c->shell.count - begin, 0};
    return 1;
}

/* Cut connected negative sides off a cell, one set after the other. */
static int cut_apart(cut_t *c, int64_t number, int64_t j) {
    int done = 1;
    for (;;) {
        cell_t cell = *CELL(c, number);
        int64_t first = -1;
        for (int64_t i = 0; i < cell.size && first < 0; i++)
            if (FACE(c, c->shell.at[cell.begin + i] >> 1)->side == -1) first = i;
        if (first < 0) return done;
        c->chosen.count = 0;
        push(c, &c->chosen, c->shell.at[cell.begin + first]);
        FACE(c, c->chosen.at[0] >> 1)->side = 2;
        for (int64_t n = 0; n < c->chosen.count; n++)
            for (int64_t i = 0; i < cell.size; i++) {
                int64_t side = c->shell.at[cell.begin + i], touch = 0;
                face_t *g = FACE(c, side >> 1), *f = FACE(c, c->chosen.at[n] >> 1);
                for (int64_t k = 0; k < f->size && g->side == -1 && !touch; k++)
                    for (int64_t l = 0; l < g->size && !touch; l++)
                        touch = c->ring.at[f->begin + k] >> 1 == c->ring.at[g->begin + l] >> 1;
                if (!touch) continue;
                g->side = 2;
                push(c, &c->chosen, side);
            }
        if (!cut_off(c, number, &c->chosen, j)) done = 0;
        for (int64_t i = 0; i < c->chosen.count; i++) FACE(c, c->chosen.at[i] >> 1)->side = -2;
    }
}

/* Divide a cell of the part along the zero set of function j, whose faces are divided. */
static int cut_cell(cut_t *c, int64_t number, int64_t j) {
    cell_t cell = *CELL(c, number);
    int64_t begin = c->shell.count, above = 0, below = 0, grown = 0;
    for (int64_t i = 0; i < cell.size; i++) {
        int64_t side = c->shell.at[cell.begin + i];
        const face_t *f = FACE(c, side >> 1);
        int64_t from = f->stamp == j ? f->from : 0, to = f->stamp == j ? f->to : 0;
        grown += to - from;
        push(c, &c->shell, side);
        for (int64_t k = from; k < to; k++) push(c, &c->shell, 2 * k + (side & 1));
    }
    if (!grown) {
        c->shell.count = begin;
        begin = cell.begin;
    }
    *CELL(c, number) = cell = (cell_t){begin, cell.size + grown, cell.open};
    for (int64_t i = 0; i < cell.size; i++) {
        face_t *f = FACE(c, c->shell.at[cell.begin + i] >> 1);
        f->side = side_of(c, c->shell.at[cell.begin + i] >> 1, j);
        above += f->side > 0;
        below += f->side < 0;
    }
    if (!above || !below) return 1;
    while (c->leaving.count < c->vertex.count) push(c, &c->leaving, -1);
    c->chosen.count = 0;
    for (int64_t i = 0; i < cell.size; i++) {
        int64_t side = c->shell.at[cell.begin + i];
        if (FACE(c, side >> 1)->side == -1) push(c, &c->chosen, side);
    }
    for (int64_t i = 0; i < c->chosen.count; i++) FACE(c, c->chosen.at[i] >> 1)->side = 2;
    if (cut_off(c, number, &c->chosen, j)) return 1;
    for (int64_t i = 0; i < c->chosen.count; i++) FACE(c, c->chosen.at[i] >> 1)->side = -1;
    return cut_apart(c, number, j);
}

static void clear_part(cut_t *c) {
    c->vertex.count = c->ring.count = c->shell.count = 0;
    c->next.count = c->leaving.count = c->uvw.count = c->z.count = c->round = 0;
    c->value.count = c->sign.count = c->faces.count = c->edges.count = c->cells.count = 0;
}

/* Write the faces of the part from a number on that are there, with the edges that they need. */
static void write_faces(cut_t *c, int64_t from) {
    result_t *own = &c->own;
    for (int64_t f = from; f < c->faces.count; f++) {
        face_t *face = FACE(c, f);
        if (face->round < c->round) continue;
        face->face = c->whole->face_layer.count + own->face_layer.count;
        for (int64_t i = face->begin; i < face->begin + face->size; i++) {
            int64_t half = c->ring.at[i];
            edge_t *e = EDGE(c, half >> 1);
            if (e->half < 0)
                e->half = 2 * new_edge(c, c->vertex.at[e->a], c->vertex.at[e->b], e->layer);
            push(c, &own->corner, e->half ^ (half & 1));
        }
        push(c, &own->face_offset, own->corner.count);
        push(c, &own->face_layer, face->layer);
        push(c, &own->face_unit, face->unit);
    }
}

static void cut_old_face(cut_t *c, int64_t f) {
    const sc_solid *s = c->solid;
    result_t *own = &c->own;
    push(c, &own->first_face, c->whole->face_layer.count + own->face_layer.count);
    find_face_signs(c, f);
    int64_t side = 2 * f, at = own->corner.count;
    find_units(c, &side, 1);
    for (int64_t k = s->face_offset[f]; k < s->face_offset[f + 1]; k++) {
        int64_t e = s->corner[k] >> 1, back = s->corner[k] & 1;
        int64_t from = c->whole->first_edge.at[e], to = c->whole->first_edge.at[e + 1];
        for (int64_t i = 0; i < to - from; i++)
            push(c, &own->corner, 2 * (back ? to - 1 - i : from + i) + back);
    }
    if (!c->unit.count) {
        push(c, &own->face_offset, own->corner.count);
        push(c, &own->face_layer, s->face_layer[f]);
        push(c, &own->face_unit, s->face_unit[f]);
        return;
    }
    clear_part(c);
    int64_t size = own->corner.count - at;
    for (int64_t i = 0; i < size; i++)
        push(c, &c->next, add_vertex(c, c->whole->edge.at[own->corner.at[at + i]]));
    for (int64_t i = 0; i < size; i++)
        push(c, &c->ring, 2 * add_edge(c, i, (i + 1) % size, own->corner.at[at + i], -1));
    own->corner.count = at;
    c->final_edges = size;
    add_face(c, -1, 0, s->face_layer[f], s->face_unit[f]);
    for (int64_t j = 0; j < c->unit.count; j++)
        for (int64_t i = 0, count = c->faces.count; i < count; i++) cut_face(c, i, j);
    write_faces(c, 0);
}

/* Make room for the numbers of so many vertices and edges. */
static void clear_slots(cut_t *c, int64_t count) {
    for (c->mask = 63; c->mask < 2 * count;) c->mask = 2 * c->mask + 1;
    c->slot.count = 0;
    while (c->slot.room < 2 * (c->mask + 1)) {
        c->slot.count = c->slot.room;
        push(c, &c->slot, -1);
    }
    memset(c->slot.at, 0xff, (size_t)(2 * (c->mask + 1)) * sizeof *c->slot.at);
}

/* The place of the number in the part that belongs to a key; it is -1 at first. */
static int64_t *slot_of(cut_t *c, int64_t key) {
    int64_t i = (int64_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> 32) & c->mask, *at = c->slot.at;
    while (at[2 * i] >= 0 && at[2 * i] != key) i = (i + 1) & c->mask;
    at[2 * i] = key;
    return at + 2 * i + 1;
}

/* The numbers in the part of a vertex and of an edge of the result. */
static int64_t part_vertex(cut_t *c, int64_t v) {
    int64_t *at = slot_of(c, 2 * v);
    return *at < 0 ? (*at = add_vertex(c, v)) : *at;
}

static int64_t part_edge(cut_t *c, int64_t e) {
    int64_t *at = slot_of(c, 2 * e + 1);
    if (*at >= 0) return *at;
    const int64_t *ends = c->whole->edge.at + 2 * e;
    int64_t a = part_vertex(c, ends[0]), b = part_vertex(c, ends[1]);
    return *at = add_edge(c, a, b, 2 * e, -1);
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

/* Leave out the cells of the part on which the bounded function cannot vanish. */
static void thin(cut_t *c) {
    int64_t width = c->bodies->units, cells = 0, stamp = 0, kept = 0;
    for (int64_t i = c->uvw.count / 3; i < c->vertex.count; i++) {
        double *uvw = room_for(c, &c->uvw, 3, sizeof *uvw);
        double *z = room_for(c, &c->z, width, sizeof *z);
        find_whole_row(c, c->bodies->uvw, 3, c->vertex.at[i], uvw);
        find_whole_row(c, c->bodies->z, width, c->vertex.at[i], z);
    }
    c->seen.count = c->offset.count = c->corner.count = c->open.count = 0;
    while (c->seen.count < c->vertex.count) push(c, &c->seen, 0);
    for (int64_t i = 0; i < c->cells.count; i++) {
        const cell_t *cell = CELL(c, i);
        if (cell->open) continue;
        push(c, &c->offset, c->corner.count);
        *(uint8_t *)room_for(c, &c->open, 1, 1) = 1;
        cells++;
        stamp++;
        for (int64_t k = cell->begin; k < cell->begin + cell->size; k++) {
            const face_t *f = FACE(c, c->shell.at[k] >> 1);
            for (int64_t l = f->begin; l < f->begin + f->size; l++) {
                int64_t v = start_of(c, c->ring.at[l]);
                if (c->seen.at[v] == stamp) continue;
                c->seen.at[v] = stamp;
                push(c, &c->corner, v);
            }
        }
    }
    push(c, &c->offset, c->corner.count);
    sc_bodies bodies = *c->bodies;
    bodies.vertices = c->vertex.count;
    bodies.cells = cells;
    bodies.uvw = c->uvw.at;
    bodies.z = c->z.at;
    bodies.offset = c->offset.at;
    bodies.corner = c->corner.at;
    bodies.open = c->open.at;
    if (sc_bound_some(c->bounds, &bodies)) longjmp(c->failed, 1);
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

static void write_cell(cut_t *c, int64_t parent) {
    push(c, &c->own.cell_offset, c->own.side.count);
    push(c, &c->own.parent, parent);
}

static void cut_old_cell(cut_t *c, int64_t number) {
    const sc_solid *s = c->solid;
    const result_t *whole = c->whole;
    int64_t begin = s->cell_offset[number], end = s->cell_offset[number + 1], corners = 0;
    find_units(c, s->side + begin, end - begin);
    for (int64_t i = begin; i < end; i++) {
        const int64_t *first = whole->first_face.at + (s->side[i] >> 1);
        corners += whole->face_offset.at[first[1]] - whole->face_offset.at[first[0]];
        for (int64_t k = first[0]; k < first[1] && !c->unit.count; k++)
            push(c, &c->own.side, 2 * k + (s->side[i] & 1));
    }
    if (!c->unit.count) {
        write_cell(c, number);
        return;
    }
    clear_part(c);
    clear_slots(c, corners);
    for (int64_t i = begin; i < end; i++) {
        const int64_t *first = whole->first_face.at + (s->side[i] >> 1);
        for (int64_t k = first[0]; k < first[1]; k++) {
            int64_t at = c->ring.count;
            for (int64_t l = whole->face_offset.at[k]; l < whole->face_offset.at[k + 1]; l++) {
                int64_t half = whole->corner.at[l];
                push(c, &c->ring, 2 * part_edge(c, half >> 1) + (half & 1));
            }
            push(c, &c->shell, 2 * add_face(c, k, at, 0, 0) + (s->side[i] & 1));
        }
    }
    *(cell_t *)room_for(c, &c->cells, 1, sizeof(cell_t)) = (cell_t){0, c->shell.count, 1};
    c->final_edges = c->edges.count;
    int64_t old = c->faces.count, known = 1;
    int done = 1;
    for (int64_t j = 0; j < c->unit.count; j++) {
        for (int64_t i = old, count = c->faces.count; i < count; i++)
            if (FACE(c, i)->round == c->round) cut_face(c, i, j);
        for (int64_t i = 0, count = c->cells.count; i < count; i++) done &= cut_cell(c, i, j);
        if (!c->bodies || (c->cells.count < 2 * known && j + 1 < c->unit.count)) continue;
        thin(c);
        known = c->cells.count;
    }
    write_faces(c, old);
    for (int64_t i = 0; i < c->cells.count; i++) {
        cell_t cell = *CELL(c, i);
        for (int64_t k = cell.begin; k < cell.begin + cell.size; k++) {
            int64_t side = c->shell.at[k];
            push(c, &c->own.side, 2 * FACE(c, side >> 1)->face + (side & 1));
        }
        if (!done) push(c, &c->own.uncut, c->own.parent.count);
        write_cell(c, number);
    }
}

/* One of the loops of a cut, by several threads. */
typedef struct {
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
    if (!setjmp(c->failed)) {
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
    list_t *lists[] = {&c->vertex, &c->unit,  &c->ring, &c->shell,   &c->work, &c->chosen, &c->outer,
                       &c->inner,  &c->next,  &c->slot, &c->leaving, &c->seen, &c->offset, &c->corner};
    table_t *tables[] = {&c->value, &c->sign, &c->faces, &c->edges,
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
        c->words = words;
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
