/* What a cut of a complex makes, the lists of one thread, and the values and signs of functions at
 * vertices: for solid_part.h. The source is C and CUDA. */
#ifndef SOLID_SIGNS_H
#define SOLID_SIGNS_H

typedef struct {
    int64_t *at, count, room;
} list_t;

typedef struct face {
    int64_t face, stamp, from, to; /* its pieces: itself, and the faces from ... to a function */
    int64_t begin, size;           /* its half-edges in `ring` */
    int64_t layer, unit, side;
    int64_t round;        /* of leaving out cells, in which it was there */
    int64_t known, found; /* the last function of which its side was found, and that side */
    uint64_t above, below; /* SIGNS of its corners */
} face_t;

/* A vertex of the part, perhaps on a line in it. SIGNS: function j is bit j & 63. A bit is set where
 * one of its functions may have the sign, as signs only become none. */
typedef struct corner {
    int64_t vertex, p, q; /* p: -1 for none */
    double t;
    uint64_t above, below;
} corner_t;

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
typedef struct result {
    list_t edge, edge_layer, face_offset, corner, face_layer, face_unit, cell_offset, side, parent;
    list_t point, uncut, first_edge, first_face;
    table_t t;
    int64_t bounded, dropped;
} result_t;

/* The work of one thread. */
typedef struct cut {
    const sc_solid *solid;
    const sc_zero_sets *zero;
    const sc_bodies *bodies; /* of the corners of the solid, or NULL */
    sc_bounds *bounds;
    struct memory memory; /* from which lists grow */
    int64_t words, layer, rows; /* rows: the first vertices, of which there are values */
    int64_t waits; /* whether bounds tell nothing before the last function */
    uint64_t *positive, *negative; /* (vertices, words) */
    uint64_t *above, *below;       /* (faces, words) signs at any corner */
    const result_t *whole; /* what is known */
    result_t own;          /* what the chunk adds */
    /* The part of the complex that is being divided. Its first edges and faces are final. */
    list_t unit, ring, shell, work, chosen, outer, inner, next, leaving, slot, seen, offset;
    list_t corner;
    table_t vertices, value, sign, faces, edges, cells, uvw, z, open;
    int64_t final_edges, round, mask;
} cut_t;

/* Where this file is included it is said how lists grow: what was at `at`, of old bytes, with room for
 * size bytes; and how cells of the part are left out on which the bounded function cannot vanish. */
static void *renew(cut_t *c, void *at, size_t old, size_t size);
static void thin(cut_t *c);

static void *room_for(cut_t *c, table_t *table, int64_t more, size_t size) {
    if (table->count + more > table->room) {
        int64_t room = MAX(table->room + table->room / 2, table->count + more + ROOM);
        table->at = renew(c, table->at, (size_t)table->count * size, (size_t)room * size);
        table->room = room;
    }
    table->count += more;
    return (char *)table->at + (size_t)(table->count - more) * size;
}

static void push(cut_t *c, list_t *list, int64_t value) {
    if (list->count == list->room) {
        size_t old = (size_t)list->count * sizeof *list->at;
        list->room += list->room / 2 + ROOM;
        list->at = (int64_t *)renew(c, list->at, old, (size_t)list->room * sizeof *list->at);
    }
    list->at[list->count++] = value;
}

#define VERTEX(c, i) (((corner_t *)(c)->vertices.at) + (i))
#define FACE(c, i) (((face_t *)(c)->faces.at) + (i))
#define EDGE(c, i) (((edge_t *)(c)->edges.at) + (i))
#define CELL(c, i) (((cell_t *)(c)->cells.at) + (i))
#define VALUE(c, v, j) (((double *)(c)->value.at)[(v) * (c)->unit.count + (j)])
#define SIGN(c, v, j) (((int8_t *)(c)->sign.at)[(v) * (c)->unit.count + (j)])

/* One function, so that a value has the same bits wherever it is computed. */
#ifndef __CUDACC__
__attribute__((noinline))
#endif
static double between(double a, double b, double t) {
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

static int sign_bit(const cut_t *c, int64_t v, int64_t k) {
    int64_t word = v * c->words + (k >> 6);
    return (int)(c->positive[word] >> (k & 63) & 1) - (int)(c->negative[word] >> (k & 63) & 1);
}

/* The value of function k at a vertex of the result, and its sign. One of which there is no value
 * lies between two others. */
static double value_at(const cut_t *c, int64_t v, int64_t k, int *sign) {
    const double *z = c->zero->z + k;
    int64_t n = c->zero->units;
    if (v < c->rows) {
        *sign = sign_bit(c, v, k);
        return z[v * n];
    }
    double t;
    const int64_t *point = point_of(c, v, &t);
    double value = point[2] == k ? 0 : between(z[point[0] * n], z[point[1] * n], t);
    *sign = sign_between(c, value, k, sign_bit(c, point[0], k), sign_bit(c, point[1], k));
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
            push(c, &c->unit, 64 * w + LOWEST_BIT(bits));
    }
}

#endif
