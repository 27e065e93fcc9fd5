/* The steps of a walk, which walk.c compiles for several instruction sets. */
#pragma once

#include <math.h>
#include <string.h>

#include "pool.h"
#include "walk.h"

enum { LANES = 8, QUEUE = 4, AHEAD = 8 };
typedef double vec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef double half __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
typedef int64_t ints __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const sc_mesh *mesh;
    const sc_bends *chain;
    const sc_weights *weights;
    int64_t last, looks; /* the last layer; those whose units are looked at */
    int64_t parts, units, rows, factors; /* rows: units and outputs, and some more */
    int64_t *first;  /* (products) of each product, the first of its rows and ... */
    int64_t *before; /* ... the first of its factors */
    uint8_t *moves;           /* (corners) as which vertices move */
    double *derivatives;      /* (parts, numbers) by the factors and the offsets */
    int64_t numbers;
} walk_t;

/* Changes by units of one layer whose derivatives are not found yet. */
typedef struct {
    int64_t count, unit[QUEUE];
    double jump[QUEUE];
    /* (QUEUE, rows) of the units after those: the slopes, by how much their results change, and
     * derivatives by the changes before their functions. */
    double *slope, *bent, *back;
} queue_t;

typedef struct {
    const walk_t *walk;
    double *z, *pull;           /* of each product (3, units after it) */
    double *slope, *constant;   /* (units) of the piece that each unit is on, and ... */
    double *lower, *upper;      /* ... where that begins and ends */
    int64_t *piece, *found, *active;
    double *column;             /* (rows) a change */
    double *output;             /* (3, outputs) weights of maps that were not taken back */
    double *map;                /* (3, outputs) the last product, if it is known */
    int64_t known, pulled;      /* whether it is; whether there are such weights */
    double *factor, *offset;    /* derivatives, or NULL */
    queue_t *queue;             /* (layers) */
    double *tape, *end;         /* where it goes on, and ends; for each face: how many units bend, */
    int64_t reads, writes;      /* which ones, and columns of later layers; -1 where nothing more is */
    int64_t bends;              /* how many did on a face */
} walker_t;

/* The sum of the numbers in a register. */
INLINE double sum_of(vec x) {
    half both = *(const half *)&x + *((const half *)&x + 1);
    return (both[0] + both[2]) + (both[1] + both[3]);
}

/* Add a multiple of one row to another. */
INLINE void add(double by, const double *row, int64_t n, double *restrict to) {
    for (int64_t j = 0; j < n; j++) to[j] += by * row[j];
}

/* The product of two rows. */
INLINE double dot(const double *row, const double *other, int64_t n) {
    vec sum = {0};
    double rest = 0;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += *(const vec *)(row + j) * *(const vec *)(other + j);
    for (; j < n; j++) rest += row[j] * other[j];
    return rest + sum_of(sum);
}

/* The sum of some rows of a matrix with n columns, each times its own number. */
INLINE void combine(const int64_t *rows, int64_t count, const double *by, const double *matrix,
                    int64_t n, double *restrict out) {
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        vec sum[4] = {{0}};
        for (int64_t k = 0; k < count; k++) {
            const double *row = matrix + rows[k] * n + j;
            for (int v = 0; v < 4; v++) sum[v] += by[rows[k]] * *(const vec *)(row + v * LANES);
        }
        for (int v = 0; v < 4; v++) *(vec *)(out + j + v * LANES) = sum[v];
    }
    for (; j < n; j++) {
        out[j] = 0;
        for (int64_t k = 0; k < count; k++) out[j] += by[rows[k]] * matrix[rows[k] * n + j];
    }
}

/* Put a unit on a piece. */
INLINE void put_on(walker_t *w, int64_t unit, int64_t piece) {
    const sc_bends *chain = w->walk->chain;
    int64_t n = w->walk->units;
    w->piece[unit] = piece;
    w->slope[unit] = chain->slope[piece * n + unit];
    w->constant[unit] = chain->value[unit];
    for (int64_t k = 0; k < piece; k++) {
        double jump = chain->slope[(k + 1) * n + unit] - chain->slope[k * n + unit];
        w->constant[unit] -= jump * chain->knot[k * n + unit];
    }
    w->lower[unit] = piece ? chain->knot[(piece - 1) * n + unit] : -INFINITY;
    w->upper[unit] = piece < chain->knots ? chain->knot[piece * n + unit] : INFINITY;
}

/* Write numbers on the tape, if there is room for one more after them. */
INLINE void write(walker_t *w, const double *numbers, int64_t count) {
    if (!w->writes) return;
    w->writes = count < w->end - w->tape;
    *w->tape = -1;
    if (!w->writes) return;
    memcpy(w->tape, numbers, (size_t)count * sizeof *numbers);
    w->tape += count;
}

/* Take a change of the units before product m on to those after it. */
INLINE void take_on(walker_t *w, queue_t *queue, int64_t m) {
    const walk_t *walk = w->walk;
    int64_t given = walk->chain->width[m], size = walk->chain->width[m + 1], active = 0;
    int64_t before = walk->first[m - 1], place = queue->count * walk->rows + before;
    const double *factor = walk->chain->factor + walk->before[m];
    double *bent = queue->bent + place, *out = w->column + walk->first[m];
    for (int64_t i = 0; i < given; i++) {
        double slope = w->slope[before + i];
        queue->slope[place + i] = slope;
        bent[i] = slope * w->column[before + i];
        w->active[active] = i;
        active += slope != 0;
    }
    if (w->reads) {
        memcpy(out, w->tape, (size_t)size * sizeof *out);
        w->tape += size;
        return;
    }
    combine(w->active, active, bent, factor, size, out);
    write(w, out, size);
}

/* Add a change to the units after product m: the product of a column and an affine function. Also
 * find the derivatives by both, for the weights so far. */
INLINE void spread(walker_t *w, queue_t *queue, int64_t m, const double *way, double *total) {
    int64_t n = w->walk->chain->width[m + 1], own = w->walk->first[m], j = 0;
    double *column = w->column + own, *z = w->z + 3 * own, *pull = w->pull + 3 * own;
    double *back = queue->back + queue->count * w->walk->rows + own;
    for (int c = 0; c < 3 && !w->factor; c++) add(way[c], column, n, z + c * n);
    if (!w->factor) return;
    vec sum[3] = {{0}};
    for (; j + LANES <= n; j += LANES) {
        vec x = *(const vec *)(column + j), found = {0};
        for (int c = 0; c < 3; c++) {
            vec weight = *(const vec *)(pull + c * n + j);
            *(vec *)(z + c * n + j) += way[c] * x;
            sum[c] -= weight * x;
            found -= way[c] * weight;
        }
        *(vec *)(back + j) = found;
    }
    for (; j < n; j++) {
        back[j] = 0;
        for (int c = 0; c < 3; c++) {
            z[c * n + j] += way[c] * column[j];
            total[c] -= pull[c * n + j] * column[j];
            back[j] -= way[c] * pull[c * n + j];
        }
    }
    for (int c = 0; c < 3; c++) total[c] += sum_of(sum[c]);
}

/* Take derivatives by changes after product m back, to its factors and the changes before it. */
INLINE void take_back(walker_t *w, const queue_t *queue, int64_t m) {
    const walk_t *walk = w->walk;
    int64_t given = walk->chain->width[m], n = walk->chain->width[m + 1], rows = walk->rows;
    const double *factor = walk->chain->factor + walk->before[m];
    const double *slope = queue->slope + walk->first[m - 1], *back = queue->back + walk->first[m];
    const double *bent = queue->bent + walk->first[m - 1];
    double *restrict made = w->factor + walk->before[m];
    double *restrict out = queue->back + walk->first[m - 1];
    for (int64_t i = 0; i < given; i++) {
        const double *row = factor + i * n;
        double *to = made + i * n, found[QUEUE] = {0}, by[QUEUE], used = 0;
        int64_t j = 0;
        for (int k = 0; k < QUEUE; k++) {
            by[k] = bent[k * rows + i];
            used += fabs(slope[k * rows + i]);
        }
        if (used == 0) continue;
        vec sum[QUEUE] = {{0}};
        for (; j + LANES <= n; j += LANES) {
            vec x = *(const vec *)(row + j), total = *(const vec *)(to + j);
            for (int k = 0; k < QUEUE; k++) {
                vec y = *(const vec *)(back + k * rows + j);
                sum[k] += x * y;
                total += by[k] * y;
            }
            *(vec *)(to + j) = total;
        }
        for (; j < n; j++)
            for (int k = 0; k < QUEUE; k++) {
                found[k] += row[j] * back[k * rows + j];
                to[j] += by[k] * back[k * rows + j];
            }
        for (int k = 0; k < QUEUE; k++) {
            double all = found[k] + sum_of(sum[k]);
            out[k * rows + i] += slope[k * rows + i] * all;
        }
    }
}

/* Find the derivatives by the factors that changes by units of a layer went through. */
INLINE void settle(walker_t *w, int64_t layer) {
    const walk_t *walk = w->walk;
    queue_t *queue = w->queue + layer;
    int64_t size = walk->chain->width[layer + 2];
    for (int64_t k = queue->count; k < QUEUE; k++) /* at the end some places are not used */
        for (int64_t i = 0; i < walk->rows; i++)
            queue->slope[k * walk->rows + i] = queue->bent[k * walk->rows + i] =
                queue->back[k * walk->rows + i] = 0;
    for (int64_t m = walk->last; m > layer + 1; m--) take_back(w, queue, m);
    for (int64_t k = 0; k < queue->count; k++) {
        int64_t row = walk->before[layer + 1] + queue->unit[k] * size;
        const double *back = queue->back + k * walk->rows + walk->first[layer + 1];
        add(queue->jump[k], back, size, w->factor + row);
    }
    queue->count = 0;
}

/* Take the weights of maps back through the last product. */
INLINE void pull_outputs(walker_t *w) {
    const walk_t *walk = w->walk;
    int64_t n = walk->chain->width[walk->last + 1], outputs = walk->chain->width[walk->last + 2];
    int64_t own = walk->first[walk->last], before = walk->before[walk->last + 1], i = 0;
    const double *z = w->z + 3 * own, *slope = w->slope + own, *constant = w->constant + own;
    const double *factor = walk->chain->factor + before;
    double *output = w->output;
    double *pull = w->pull + 3 * own, *made = w->factor + before;
    add(1, output + 2 * outputs, outputs, w->offset + own + n);
    for (; i + LANES <= n; i += LANES) {
        vec x = *(const vec *)(slope + i), given[3], back[3] = {{0}};
        for (int c = 0; c < 3; c++) given[c] = x * *(const vec *)(z + c * n + i);
        given[2] += *(const vec *)(constant + i);
        for (int64_t o = 0; o < outputs; o++) {
            vec row = *(const vec *)(factor + o * n + i), total = {0};
            for (int c = 0; c < 3; c++) {
                total += output[c * outputs + o] * given[c];
                back[c] += output[c * outputs + o] * row;
            }
            *(vec *)(made + o * n + i) += total;
        }
        for (int c = 0; c < 3; c++) *(vec *)(pull + c * n + i) += x * back[c];
    }
    for (; i < n; i++)
        for (int64_t o = 0; o < outputs; o++) {
            made[o * n + i] += output[2 * outputs + o] * constant[i];
            for (int c = 0; c < 3; c++) {
                double by = output[c * outputs + o] * slope[i];
                made[o * n + i] += by * z[c * n + i];
                pull[c * n + i] += by * factor[o * n + i];
            }
        }
    memset(output, 0, 3 * (size_t)outputs * sizeof *output);
    w->pulled = 0;
}

/* Move a unit of the last layer by a jump of its slope: the map changes, and it was another one for
 * the weights so far. */
INLINE void bend_last(walker_t *w, int64_t unit, double jump, const double *way) {
    const walk_t *walk = w->walk;
    int64_t n = walk->chain->width[walk->last + 1], outputs = walk->chain->width[walk->last + 2];
    int64_t before = walk->before[walk->last + 1];
    double *pull = w->pull + 3 * walk->first[walk->last] + unit;
    for (int64_t o = 0, i = before + unit; o < outputs; o++, i += n) {
        double by = jump * walk->chain->factor[i], back = 0;
        for (int c = 0; c < 3; c++) {
            w->map[c * outputs + o] += by * way[c];
            back += way[c] * w->output[c * outputs + o];
            pull[c * n] -= by * w->output[c * outputs + o];
        }
        if (w->factor) w->factor[i] -= jump * back;
    }
}

/* Move a unit of a layer to the next piece, or to the one before: all later layers change. */
INLINE void bend(walker_t *w, int64_t layer, int64_t unit, int up) {
    const walk_t *walk = w->walk;
    queue_t *queue = w->queue + layer;
    int64_t own = walk->first[layer] + unit, n = walk->chain->width[layer + 1];
    const double *z = w->z + 3 * walk->first[layer] + unit;
    double knot = up ? w->upper[own] : w->lower[own], jump = -w->slope[own], total[3] = {0};
    double code = (double)((2 * unit + up) * walk->chain->layers + layer);
    put_on(w, own, w->piece[own] + (up ? 1 : -1));
    jump += w->slope[own];
    w->bends++;
    write(w, &code, 1);
    const double way[3] = {z[0], z[n], z[2 * n] - knot};
    if (layer == walk->last) {
        bend_last(w, unit, jump, way);
        return;
    }
    if (w->pulled) pull_outputs(w);
    w->known = 0;
    int64_t size = walk->chain->width[layer + 2];
    const double *row = walk->chain->factor + walk->before[layer + 1] + unit * size;
    for (int64_t j = 0; j < size; j++) w->column[walk->first[layer + 1] + j] = jump * row[j];
    for (int64_t m = layer + 1; m <= walk->last; m++) {
        if (m > layer + 1) take_on(w, queue, m);
        spread(w, queue, m, way, total);
    }
    if (!w->factor) return;
    for (int c = 0; c < 3; c++) w->pull[3 * walk->first[layer] + c * n + unit] += total[c];
    queue->unit[queue->count] = unit;
    queue->jump[queue->count] = jump;
    if (++queue->count == QUEUE) settle(w, layer);
}

/* Find the units of a layer that are on other pieces at a point, and how many there are. */
INLINE int64_t find_bent(const walker_t *w, int64_t layer, const double *at, int64_t *found) {
    int64_t n = w->walk->chain->width[layer + 1], own = w->walk->first[layer], count = 0, j = 0;
    const double *u = w->z + 3 * own, *v = u + n, *z = v + n;
    const double *lower = w->lower + own, *upper = w->upper + own;
    for (; j + LANES <= n; j += LANES) {
        vec value = at[0] * *(const vec *)(u + j) + at[1] * *(const vec *)(v + j);
        value += *(const vec *)(z + j);
        ints out = value > *(const vec *)(upper + j);
        int64_t any = 0;
        out |= value <= *(const vec *)(lower + j);
        for (int l = 0; l < LANES; l++) any |= out[l];
        for (int l = 0; l < LANES && any; l++) {
            found[count] = j + l;
            count -= out[l];
        }
    }
    for (; j < n; j++) {
        double value = at[0] * u[j] + at[1] * v[j] + z[j];
        found[count] = j;
        count += value > upper[j] || value <= lower[j];
    }
    return count;
}

/* Bend the units of a layer that are on other pieces at a point. */
INLINE void look(walker_t *w, int64_t layer, const double *at) {
    int64_t n = w->walk->chain->width[layer + 1], own = w->walk->first[layer];
    int64_t count = find_bent(w, layer, at, w->found);
    const double *z = w->z + 3 * own;
    for (int64_t k = 0; k < count; k++) {
        int64_t j = w->found[k];
        double value = at[0] * z[j] + at[1] * z[n + j] + z[2 * n + j];
        while (value > w->upper[own + j]) bend(w, layer, j, 1);
        while (value <= w->lower[own + j]) bend(w, layer, j, 0);
    }
}

/* What product m is of: a row for one of its inputs, in the three coordinates. */
INLINE void given_to(const walker_t *w, int64_t m, int64_t i, double *out) {
    const sc_bends *chain = w->walk->chain;
    int64_t n = chain->width[m], own = m ? w->walk->first[m - 1] : 0;
    const double *from = m ? w->z + 3 * own : chain->input;
    for (int c = 0; c < 3; c++) out[c] = from[c * n + i] * (m ? w->slope[own + i] : 1);
    if (m) out[2] += w->constant[own + i];
}

/* A point of a face: the mean of its corners. */
INLINE void find_centre(const sc_mesh *mesh, int64_t face, double *at) {
    int64_t begin = mesh->offset[face], end = mesh->offset[face + 1];
    double part = 1.0 / (double)(end - begin);
    at[0] = at[1] = 0;
    for (int64_t c = begin; c < end; c++) {
        const double *uv = mesh->uv + mesh->width * mesh->edge[mesh->corner[c]];
        at[0] += part * uv[0];
        at[1] += part * uv[1];
    }
}

/* Begin on a face: find the maps of all layers. */
INLINE void begin_at(walker_t *w, int64_t face) {
    const walk_t *walk = w->walk;
    double at[2];
    find_centre(walk->mesh, face, at);
    for (int64_t m = 0; m <= walk->last; m++) {
        int64_t size = walk->chain->width[m + 1], own = walk->first[m];
        double *z = w->z + 3 * own;
        memcpy(z + 2 * size, walk->chain->offset + own, (size_t)size * sizeof *z);
        for (int64_t i = 0; i < walk->chain->width[m]; i++) {
            double x[3];
            given_to(w, m, i, x);
            const double *row = walk->chain->factor + walk->before[m] + i * size;
            for (int c = 0; c < 3; c++) add(x[c], row, size, z + c * size);
        }
        for (int64_t j = 0; j < size; j++) {
            double value = at[0] * z[j] + at[1] * z[size + j] + z[2 * size + j];
            put_on(w, own + j, 0);
            while (value > w->upper[own + j]) put_on(w, own + j, w->piece[own + j] + 1);
        }
    }
}

/* Take all pulls back through the maps of the last face. */
INLINE void end(walker_t *w) {
    const walk_t *walk = w->walk;
    for (int64_t layer = 0; layer < walk->last; layer++) settle(w, layer);
    if (w->pulled) pull_outputs(w);
    for (int64_t m = walk->last; m >= 0; m--) {
        int64_t size = walk->chain->width[m + 1], given = walk->chain->width[m];
        double *pull = w->pull + 3 * walk->first[m];
        add(1, pull + 2 * size, size, w->offset + walk->first[m]);
        for (int64_t i = 0; i < given; i++) {
            double x[3];
            int64_t row = walk->before[m] + i * size;
            given_to(w, m, i, x);
            for (int c = 0; c < 3; c++) {
                add(x[c], pull + c * size, size, w->factor + row);
                if (m)
                    w->pull[3 * walk->first[m - 1] + c * given + i] +=
                        w->slope[walk->first[m - 1] + i] *
                        dot(walk->chain->factor + row, pull + c * size, size);
            }
        }
    }
}

/* Add a multiple of a point to an affine function, one of n. */
INLINE void add_point(double *function, int64_t n, double by, const double *at) {
    function[0] += by * at[0];
    function[n] += by * at[1];
    function[2 * n] += by;
}

/* Pull at a vertex that moves as a corner of this face, between two others: where it goes if one
 * side is moved, it goes along the other side. */
INLINE void pull_corner(walker_t *w, int64_t vertex, const int64_t *edge, const int64_t *beside) {
    const sc_mesh *mesh = w->walk->mesh;
    const sc_weights *given = w->walk->weights;
    int64_t layers = w->walk->chain->layers, outputs = w->walk->chain->width[layers + 1];
    const double *at = mesh->uv + mesh->width * vertex;
    for (int k = 0; k < 2; k++) {
        const double *to = mesh->uv + mesh->width * beside[k];
        double side[2] = {to[0] - at[0], to[1] - at[1]}, rise = 0;
        int64_t layer = mesh->edge_layer[edge[k]], unit = mesh->edge_unit[edge[k]];
        if (layer < 0 || layer >= layers) continue;
        if (given->place)
            rise += given->place[2 * vertex] * side[0] + given->place[2 * vertex + 1] * side[1];
        for (int64_t o = 0; o < outputs && given->output; o++)
            rise += given->output[vertex * outputs + o] *
                    (given->values[beside[k] * outputs + o] - given->values[vertex * outputs + o]);
        int64_t size = w->walk->chain->width[layer + 1];
        const double *z = w->z + 3 * w->walk->first[layer] + unit;
        add_point(w->pull + 3 * w->walk->first[layer] + unit, size,
                  -rise / (z[0] * side[0] + z[size] * side[1]), at);
    }
    for (int64_t o = 0; o < outputs && given->output; o++)
        add_point(w->output + o, outputs, given->output[vertex * outputs + o], at);
}

/* The last product on a face: its map. */
INLINE void find_map(const walker_t *w, double *map) {
    const walk_t *walk = w->walk;
    int64_t n = walk->chain->width[walk->last + 1], outputs = walk->chain->width[walk->last + 2];
    int64_t own = walk->first[walk->last];
    const double *factor = walk->chain->factor + walk->before[walk->last + 1];
    memcpy(map + 2 * outputs, walk->chain->offset + own + n, (size_t)outputs * sizeof *map);
    for (int64_t o = 0; o < outputs; o++, factor += n) {
        double rest[3] = {0, 0, map[2 * outputs + o]};
        const double *z = w->z + 3 * own;
        vec sum[3] = {{0}};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            vec by = *(const vec *)(factor + i) * *(const vec *)(w->slope + own + i);
            for (int c = 0; c < 3; c++) sum[c] += by * *(const vec *)(z + c * n + i);
            sum[2] += *(const vec *)(factor + i) * *(const vec *)(w->constant + own + i);
        }
        for (; i < n; i++) {
            double by = factor[i] * w->slope[own + i];
            for (int c = 0; c < 3; c++) rest[c] += by * z[c * n + i];
            rest[2] += factor[i] * w->constant[own + i];
        }
        for (int c = 0; c < 3; c++) {
            map[c * outputs + o] = rest[c] + sum_of(sum[c]);
        }
    }
}

/* Pull at all that belongs to a face, and write its map. */
INLINE void visit(walker_t *w, int64_t face) {
    const sc_mesh *mesh = w->walk->mesh;
    const sc_weights *given = w->walk->weights;
    int64_t outputs = w->walk->chain->width[w->walk->chain->layers + 1], moved = 0;
    int64_t begin = mesh->offset[face], stop = mesh->offset[face + 1];
    for (int64_t h = begin; h < stop && given->corner; h++) {
        if (!w->walk->moves[h]) continue;
        int64_t next = mesh->corner[h + 1 < stop ? h + 1 : begin];
        int64_t last = mesh->corner[h > begin ? h - 1 : stop - 1];
        const int64_t edge[2] = {last >> 1, mesh->corner[h] >> 1};
        const int64_t beside[2] = {mesh->edge[next], mesh->edge[last]};
        pull_corner(w, mesh->edge[mesh->corner[h]], edge, beside);
        moved = 1;
    }
    if (given->map) add(1, given->map + 3 * outputs * face, 3 * outputs, w->output);
    if (given->map || (given->output && moved)) w->pulled = 1;
    if (!given->maps) return;
    if (!w->known) find_map(w, w->map);
    w->known = 1;
    memcpy(given->maps + 3 * outputs * face, w->map, 3 * (size_t)outputs * sizeof *w->map);
}

/* Read ahead what is known of a face to visit soon: its corners, or what is at these. */
INLINE void fetch(const walk_t *walk, int64_t face, int corners) {
    const sc_mesh *mesh = walk->mesh;
    const sc_weights *given = walk->weights;
    int64_t outputs = walk->chain->width[walk->chain->layers + 1];
    for (int64_t h = mesh->offset[face]; h < mesh->offset[face + 1]; h++) {
        int64_t half = mesh->corner[h];
        if (corners) {
            __builtin_prefetch(mesh->edge + half);
            if (!given->corner) continue;
            __builtin_prefetch(mesh->edge_layer + (half >> 1));
            __builtin_prefetch(mesh->edge_unit + (half >> 1));
            continue;
        }
        int64_t vertex = mesh->edge[half];
        __builtin_prefetch(mesh->uv + mesh->width * vertex);
        if (given->place) __builtin_prefetch(given->place + 2 * vertex);
        if (!given->output) continue;
        __builtin_prefetch(given->output + outputs * vertex);
        __builtin_prefetch(given->values + outputs * vertex);
    }
}

/* Move to a face across a line of a layer: as is on the tape, or by a look at a point there. */
INLINE void move(walker_t *w, int64_t layer, int64_t face) {
    const walk_t *walk = w->walk;
    int64_t layers = walk->chain->layers;
    double *count = w->tape, none = -1, at[2];
    if (w->reads) w->reads = *w->tape >= 0;
    if (w->reads) {
        for (int64_t k = (int64_t)*w->tape++; k > 0; k--) {
            int64_t code = (int64_t)*w->tape++;
            bend(w, code % layers, code / layers / 2, code / layers & 1);
        }
        return;
    }
    w->bends = 0;
    write(w, &none, 1);
    find_centre(walk->mesh, face, at);
    for (int64_t m = layer; m < walk->looks; m++) look(w, m, at);
    if (w->writes) *count = (double)w->bends;
}

INLINE void walk_over(walker_t *w, int64_t begin, int64_t stop) {
    const walk_t *walk = w->walk;
    const int64_t *order = walk->weights->order, *crossed = order + walk->mesh->faces;
    const double *map = walk->weights->map;
    int64_t size = 3 * walk->chain->width[walk->chain->layers + 1], last = stop - 1;
    begin_at(w, order[begin]);
    for (int64_t i = begin; i < stop; i++) {
        int64_t later = order[MIN(i + AHEAD, last)];
        __builtin_prefetch(walk->mesh->offset + later);
        if (map) __builtin_prefetch(map + size * later);
        if (!w->reads) {
            later = walk->mesh->offset[order[MIN(i + AHEAD / 2, last)]];
            __builtin_prefetch(walk->mesh->corner + later);
            __builtin_prefetch(walk->moves + later);
            fetch(walk, order[MIN(i + 3, last)], 1);
            fetch(walk, order[MIN(i + 1, last)], 0);
        }
        if (i > begin) move(w, crossed[i], order[i]);
        visit(w, order[i]);
    }
    if (w->factor) end(w);
}
