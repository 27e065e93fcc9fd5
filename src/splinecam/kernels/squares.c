/* Which faces a question is open on, by the squares that bound its functions; see
 * engine/open_part.py. */
#include <math.h>

#include "pool.h"

enum { PART = 256, ROUNDS = 3 }; /* faces that a thread takes at a time; see open_part.py */

#define CLOSE 0x1p-30 /* how far beside a square a face may begin, relative to the square */

typedef struct {
    const sc_mesh *mesh;
    const sc_squares *squares;
    uint8_t *open;
} faces_t;

/* A corner of a face, relative to the square around the domain. */
static inline void corner_of(const faces_t *run, int64_t place, double at[2]) {
    const sc_mesh *mesh = run->mesh;
    int64_t half = mesh->corner[place];
    const double *uv = mesh->uv + mesh->edge[half] * mesh->width;
    at[0] = (uv[0] - run->squares->corner_u) / run->squares->size;
    at[1] = (uv[1] - run->squares->corner_v) / run->squares->size;
}

/* The range over a face of a function that is affine on a square, or of its lead over another. */
static void range_of(const faces_t *run, int64_t face, int64_t square, int64_t function,
                     int64_t other, double range[2]) {
    const sc_squares *squares = run->squares;
    int64_t m = squares->functions;
    const double *rows = squares->rows + 3 * m * square, *centre = squares->centre + 2 * square;
    double part[3];
    for (int r = 0; r < 3; r++)
        part[r] = rows[r * m + function] - (other < 0 ? 0 : rows[r * m + other]);
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (int64_t i = run->mesh->offset[face]; i < run->mesh->offset[face + 1]; i++) {
        double at[2];
        corner_of(run, i, at);
        double u = (at[0] - centre[0]) / squares->half[square];
        double v = (at[1] - centre[1]) / squares->half[square];
        double value = part[0] + u * part[1] + v * part[2];
        range[0] = MIN(range[0], value);
        range[1] = MAX(range[1], value);
    }
}

/* Whether one function is the largest on the part of a face in a square. */
static int leads(const faces_t *run, int64_t face, int64_t square) {
    const sc_squares *squares = run->squares;
    int64_t m = squares->functions, best = 0;
    const double *rows = squares->rows + 3 * m * square, *radius = squares->radius + m * square;
    double at[2], most = -INFINITY, range[2];
    corner_of(run, run->mesh->offset[face], at);
    double u = (at[0] - squares->centre[2 * square]) / squares->half[square];
    double v = (at[1] - squares->centre[2 * square + 1]) / squares->half[square];
    for (int64_t j = 0; j < m; j++) {
        double value = rows[j] + u * rows[m + j] + v * rows[2 * m + j];
        if (value > most) {
            most = value;
            best = j;
        }
    }
    for (int64_t j = 0; j < m; j++) {
        if (j == best) continue;
        range_of(run, face, square, best, j, range);
        if (!(range[0] > radius[j] + radius[best])) return 0;
    }
    return 1;
}

/* Whether the sign of a function is certain: 1 or -1, else 0. */
static int sign_of(const faces_t *run, int64_t face, int64_t square, int64_t function) {
    double range[2], radius = run->squares->radius[square * run->squares->functions + function];
    range_of(run, face, square, function, -1, range);
    return range[0] > radius ? 1 : range[1] < -radius ? -1 : 0;
}

static int settles(const faces_t *run, int64_t face, int64_t square) {
    const sc_squares *squares = run->squares;
    if (squares->largest) return leads(run, face, square);
    if (!squares->start) {
        for (int64_t j = 0; j < squares->functions; j++)
            if (!sign_of(run, face, square, j)) return 0;
        return 1;
    }
    int all_fail = 1;
    for (int64_t c = 0; c < squares->conjunctions; c++) {
        int holds = 1, fails = 0;
        for (int64_t j = squares->start[c]; j < squares->start[c + 1] && !fails; j++) {
            int sign = sign_of(run, face, square, j);
            holds &= sign < 0;
            fails |= sign > 0;
        }
        if (holds && !fails) return 1;
        all_fail &= fails;
    }
    return all_fail;
}

/* Whether the squares of a level that meet a box settle the question on a face. */
static int settled_at(const faces_t *run, int64_t face, int64_t level, const double box[4]) {
    const sc_squares *squares = run->squares;
    int64_t side = (int64_t)1 << level, first = (int64_t)1 << (2 * squares->first), last = -1;
    const int32_t *finest = squares->finest + (side * side - first) / 3;
    int64_t from[2], to[2];
    for (int i = 0; i < 2; i++) {
        from[i] = MAX((int64_t)floor(box[i] * (double)side - CLOSE), 0);
        to[i] = MIN((int64_t)floor(box[i + 2] * (double)side + CLOSE), side - 1);
    }
    for (int64_t row = from[1]; row <= to[1]; row++)
        for (int64_t column = from[0]; column <= to[0]; column++) {
            int64_t square = finest[row * side + column];
            if (square == last || squares->settled[square]) continue;
            if (!settles(run, face, square)) return 0;
            last = square;
        }
    return 1;
}

static int look_at_faces(void *context, int thread, int64_t begin, int64_t end) {
    const faces_t *run = context;
    const sc_squares *squares = run->squares;
    (void)thread;
    for (int64_t face = begin; face < end; face++) {
        if (!run->open[face]) continue;
        double box[4] = {INFINITY, INFINITY, -INFINITY, -INFINITY}, at[2];
        for (int64_t i = run->mesh->offset[face]; i < run->mesh->offset[face + 1]; i++) {
            corner_of(run, i, at);
            for (int k = 0; k < 2; k++) {
                box[k] = MIN(box[k], at[k]);
                box[k + 2] = MAX(box[k + 2], at[k]);
            }
        }
        int fits;
        frexp(MAX(box[2] - box[0], box[3] - box[1]), &fits);
        for (int k = 0; k < ROUNDS && run->open[face]; k++) {
            int64_t level = MIN((int64_t)k - fits, squares->deepest);
            if (level >= squares->first && settled_at(run, face, level, box)) run->open[face] = 0;
            if (level == squares->deepest) break; /* there are no smaller squares */
        }
    }
    return SC_DONE;
}

int sc_open_corners(sc_pool *pool, const sc_mesh *mesh, const uint8_t *settled,
                    int64_t *row, int64_t *count) {
    if (!pool || !mesh || !settled || !row || !count) return SC_MALFORMED;
    for (int64_t i = 0; i < mesh->vertices; i++) row[i] = -1;
    for (int64_t face = 0; face < mesh->faces; face++)
        for (int64_t i = mesh->offset[face]; i < mesh->offset[face + 1] && !settled[face]; i++) {
            uint64_t half = (uint64_t)mesh->corner[i];
            if (half >= 2 * (uint64_t)mesh->edges) return SC_MALFORMED;
            uint64_t vertex = (uint64_t)mesh->edge[half];
            if (vertex >= (uint64_t)mesh->vertices) return SC_MALFORMED;
            row[vertex] = 0;
        }
    *count = 0;
    for (int64_t i = 0; i < mesh->vertices; i++)
        if (!row[i]) row[i] = (*count)++;
    return SC_DONE;
}

int sc_open_faces(sc_pool *pool, const sc_mesh *mesh, const sc_squares *squares, uint8_t *open) {
    if (!pool || !mesh || !squares || !open || squares->functions < 1 || squares->first < 0 ||
        squares->deepest < squares->first || squares->deepest > 20)
        return SC_MALFORMED;
    for (int64_t i = 0; i < mesh->corners; i++) /* half-edges: twice the edge, and its direction */
        if (mesh->corner[i] < 0 || mesh->corner[i] >= 2 * mesh->edges) return SC_MALFORMED;
    faces_t run = {mesh, squares, open};
    return sc_parallel(pool, mesh->faces, PART, look_at_faces, &run);
}
