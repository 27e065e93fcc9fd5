/* The division of one edge, face or cell of a complex: for solid.c, and for solid.cu on a GPU.
 *
 * An item is divided by itself: it reads what is known of the whole, and what it adds is numbered
 * behind that. The source is C and CUDA. */
#ifndef SOLID_PART_H
#define SOLID_PART_H

#include "solid_signs.h"

/* Divide an edge where functions change sign along it, unless they vanish at a point before. */
static void cut_edge(cut_t *c, int64_t e) {
    const sc_solid *s = c->solid;
    int64_t a = s->edge[2 * e], b = s->edge[2 * e + 1], n = c->zero->units;
    c->work.count = 0; /* the numbers of the points, in order */
    for (int64_t w = 0; w < c->words; w++) {
        uint64_t pa = c->positive[a * c->words + w], na = c->negative[a * c->words + w];
        uint64_t pb = c->positive[b * c->words + w], nb = c->negative[b * c->words + w];
        for (uint64_t bits = (pa & nb) | (na & pb); bits; bits &= bits - 1) {
            int64_t k = 64 * w + LOWEST_BIT(bits), place = 0, count = c->work.count;
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

/* Add a vertex to the part: v, perhaps at a fraction t from p to q, where function k vanishes. */
static int64_t add_point(cut_t *c, int64_t v, int64_t p, int64_t q, double t, int64_t k) {
    corner_t made = {v, p, q, t, 0, 0};
    int64_t m = c->unit.count, i = c->vertices.count;
    double *value = (double *)room_for(c, &c->value, m, sizeof *value);
    int8_t *signs = (int8_t *)room_for(c, &c->sign, m, 1);
    for (int64_t j = 0; j < m; j++) {
        int64_t unit = c->unit.at[j];
        int sign;
        if (p < 0) {
            value[j] = value_at(c, v, unit, &sign);
        } else {
            value[j] = unit == k ? 0 : between(VALUE(c, p, j), VALUE(c, q, j), t);
            sign = sign_between(c, value[j], unit, SIGN(c, p, j), SIGN(c, q, j));
        }
        signs[j] = (int8_t)sign;
        made.above |= (uint64_t)(sign > 0) << (j & 63);
        made.below |= (uint64_t)(sign < 0) << (j & 63);
    }
    *(corner_t *)room_for(c, &c->vertices, 1, sizeof made) = made;
    return i;
}

static int64_t add_edge(cut_t *c, int64_t a, int64_t b, int64_t half, int64_t layer) {
    edge_t made = {a, b, a, b, half, layer, -1, -1, 0};
    *(edge_t *)room_for(c, &c->edges, 1, sizeof made) = made;
    return c->edges.count - 1;
}

static int64_t start_of(const cut_t *c, int64_t half) {
    const edge_t *e = EDGE(c, half >> 1);
    return half & 1 ? e->b : e->a;
}

/* Give a face the half-edges that begin in `ring`. */
static void set_ring(cut_t *c, int64_t number, int64_t begin) {
    face_t *f = FACE(c, number);
    f->begin = begin;
    f->size = c->ring.count - begin;
    f->above = f->below = 0;
    for (int64_t i = begin; i < c->ring.count; i++) {
        const corner_t *v = VERTEX(c, start_of(c, c->ring.at[i]));
        f->above |= v->above;
        f->below |= v->below;
    }
}

static int64_t add_face(cut_t *c, int64_t face, int64_t begin, int64_t layer, int64_t unit) {
    face_t made = {face, -1, 0, 0, 0, 0, layer, unit, 0, c->round, -1, 0, 0, 0};
    *(face_t *)room_for(c, &c->faces, 1, sizeof made) = made;
    set_ring(c, c->faces.count - 1, begin);
    return c->faces.count - 1;
}

static void split_edge(cut_t *c, int64_t number, int64_t j) {
    edge_t *e = EDGE(c, number);
    int64_t p = e->p, q = e->q, b = e->b;
    if (SIGN(c, p, j) * SIGN(c, q, j) >= 0) {
        p = e->a;
        q = e->b;
    }
    double t = VALUE(c, p, j) / (VALUE(c, p, j) - VALUE(c, q, j));
    int64_t k = c->unit.at[j], layer = e->layer;
    int64_t v = new_vertex(c, VERTEX(c, p)->vertex, VERTEX(c, q)->vertex, t, k);
    v = add_point(c, v, p, q, t, k);
    int64_t child = add_edge(c, v, b, -1, layer);
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
    if (!((FACE(c, f)->above & FACE(c, f)->below) >> (j & 63) & 1)) return;
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
    begin = c->ring.count;
    for (int64_t i = 0; i < c->chosen.count; i++) push(c, &c->ring, c->chosen.at[i]);
    set_ring(c, f, begin);
}

/* Which side of function j a face of the part is on; where rounding has left both, the larger. */
static int64_t side_of(const cut_t *c, int64_t f, int64_t j) {
    double low = 0, high = 0;
    face_t *face = FACE(c, f);
    if (face->known == j) return face->found;
    face->known = j;
    for (int64_t i = 0; i < face->size; i++) {
        int64_t v = start_of(c, c->ring.at[face->begin + i]);
        if (SIGN(c, v, j) > 0) high = MAX(high, VALUE(c, v, j));
        if (SIGN(c, v, j) < 0) low = MIN(low, VALUE(c, v, j));
        if (high > -low && !(face->below >> (j & 63) & 1)) break;
        if (high < -low && !(face->above >> (j & 63) & 1)) break;
    }
    return face->found = high > -low ? 1 : high < -low ? -1 : 0;
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
    cell_t made = {begin, c->shell.count - begin, 0};
    *(cell_t *)room_for(c, &c->cells, 1, sizeof made) = made;
    begin = c->shell.count;
    cell_t old = *CELL(c, number);
    for (int64_t i = 0; i < old.size; i++) {
        int64_t side = c->shell.at[old.begin + i];
        if (FACE(c, side >> 1)->side != 2) push(c, &c->shell, side);
    }
    push(c, &c->shell, 2 * face + 1);
    FACE(c, face)->side = 0;
    cell_t left = {begin, c->shell.count - begin, 0};
    *CELL(c, number) = left;
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
    uint64_t signs[2] = {0};
    for (int64_t i = 0; i < cell.size; i++) {
        int64_t side = c->shell.at[cell.begin + i];
        const face_t *f = FACE(c, side >> 1);
        int64_t from = f->stamp == j ? f->from : 0, to = f->stamp == j ? f->to : 0;
        grown += to - from;
        signs[0] |= f->above;
        signs[1] |= f->below;
        push(c, &c->shell, side);
        for (int64_t k = from; k < to; k++) push(c, &c->shell, 2 * k + (side & 1));
    }
    if (!grown) {
        c->shell.count = begin;
        begin = cell.begin;
        if (!((signs[0] & signs[1]) >> (j & 63) & 1)) return 1;
    }
    cell.begin = begin;
    cell.size += grown;
    *CELL(c, number) = cell;
    for (int64_t i = 0; i < cell.size; i++) {
        face_t *f = FACE(c, c->shell.at[cell.begin + i] >> 1);
        f->side = side_of(c, c->shell.at[cell.begin + i] >> 1, j);
        above += f->side > 0;
        below += f->side < 0;
    }
    if (!above || !below) return 1;
    while (c->leaving.count < c->vertices.count) push(c, &c->leaving, -1);
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
    c->vertices.count = c->ring.count = c->shell.count = 0;
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
                e->half = 2 * new_edge(c, VERTEX(c, e->a)->vertex, VERTEX(c, e->b)->vertex, e->layer);
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
        push(c, &c->next, add_point(c, c->whole->edge.at[own->corner.at[at + i]], -1, -1, 0, -1));
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
    int64_t size = 2 * (c->mask + 1);
    if (c->slot.room < size) {
        c->slot.at = (int64_t *)renew(c, c->slot.at, 0, (size_t)size * sizeof *c->slot.at);
        c->slot.room = size;
    }
    for (int64_t i = 0; i < size; i++) c->slot.at[i] = -1;
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
    if (*at >= 0) return *at;
    if (v < c->rows) return *at = add_point(c, v, -1, -1, 0, -1);
    double t;
    const int64_t *point = point_of(c, v, &t);
    int64_t p = part_vertex(c, point[0]), q = part_vertex(c, point[1]);
    return *at = add_point(c, v, p, q, t, point[2]);
}

static int64_t part_edge(cut_t *c, int64_t e) {
    int64_t *at = slot_of(c, 2 * e + 1);
    if (*at >= 0) return *at;
    const int64_t *ends = c->whole->edge.at + 2 * e;
    int64_t a = part_vertex(c, ends[0]), b = part_vertex(c, ends[1]);
    return *at = add_edge(c, a, b, 2 * e, -1);
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
    cell_t uncut = {0, c->shell.count, 1};
    *(cell_t *)room_for(c, &c->cells, 1, sizeof uncut) = uncut;
    c->final_edges = c->edges.count;
    int64_t old = c->faces.count, known = 1;
    int done = 1;
    for (int64_t j = 0; j < c->unit.count; j++) {
        for (int64_t i = old, count = c->faces.count; i < count; i++)
            if (FACE(c, i)->round == c->round) cut_face(c, i, j);
        for (int64_t i = 0, count = c->cells.count; i < count; i++) done &= cut_cell(c, i, j);
        int wait = c->bodies && (c->waits || c->cells.count < 3 * known);
        if (!c->bodies || (wait && j + 1 < c->unit.count)) continue;
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

#endif
