/* Which faces a question is open on, by the squares that bound its functions; see
 * engine/open_part.py. */
#include <math.h>

#include "pool.h"

enum { PART = 256, ROUNDS = 3 }; /* faces that a thread takes at a time; see open_part.py */
enum { CORNERS = 64 };           /* of a face that is looked at */

#define CLOSE 0x1p-30 /* how far beside a square a face may begin, relative to the square */

typedef struct {
    const sc_mesh *mesh;
    const sc_squares *squares;
    uint8_t *open;
} faces_t;

/* The corners of a face, or a point, relative to the square around the domain. */
typedef struct {
    int64_t count;
    double at[2 * CORNERS];
} corners_t;

static inline void place(const sc_squares *squares, const double *uv, double *at) {
    at[0] = (uv[0] - squares->corner_u) / squares->size;
    at[1] = (uv[1] - squares->corner_v) / squares->size;
}

/* The range over a face of a function that is affine on a square, or of its lead over another. */
static void range_of(const sc_squares *squares, const corners_t *face, int64_t square,
                     int64_t function, int64_t other, double range[2]) {
    int64_t m = squares->functions;
    const double *rows = squares->rows + 3 * m * square, *centre = squares->centre + 2 * square;
    double part[3], half = squares->half[square];
    for (int r = 0; r < 3; r++)
        part[r] = rows[r * m + function] - (other < 0 ? 0 : rows[r * m + other]);
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (int64_t i = 0; i < face->count; i++) {
        double u = (face->at[2 * i] - centre[0]) / half;
        double v = (face->at[2 * i + 1] - centre[1]) / half;
        double value = part[0] + u * part[1] + v * part[2];
        range[0] = MIN(range[0], value);
        range[1] = MAX(range[1], value);
    }
}

/* Whether one function is the largest on the part of a face in a square. */
static int leads(const sc_squares *squares, const corners_t *face, int64_t square) {
    int64_t m = squares->functions, best = 0;
    const double *rows = squares->rows + 3 * m * square, *radius = squares->radius + m * square;
    double most = -INFINITY, range[2];
    double u = (face->at[0] - squares->centre[2 * square]) / squares->half[square];
    double v = (face->at[1] - squares->centre[2 * square + 1]) / squares->half[square];
    for (int64_t j = 0; j < m; j++) {
        double value = rows[j] + u * rows[m + j] + v * rows[2 * m + j];
        if (value > most) {
            most = value;
            best = j;
        }
    }
    for (int64_t j = 0; j < m; j++) {
        if (j == best) continue;
        range_of(squares, face, square, best, j, range);
        if (!(range[0] > radius[j] + radius[best])) return 0;
    }
    return 1;
}

/* Whether the sign of a function is certain: 1 or -1, else 0. */
static int sign_of(const sc_squares *squares, const corners_t *face, int64_t square,
                   int64_t function) {
    double range[2], radius = squares->radius[square * squares->functions + function];
    range_of(squares, face, square, function, -1, range);
    return range[0] > radius ? 1 : range[1] < -radius ? -1 : 0;
}

static int settles(const sc_squares *squares, const corners_t *face, int64_t square) {
    if (squares->largest) return leads(squares, face, square);
    if (!squares->start) {
        for (int64_t j = 0; j < squares->functions; j++)
            if (!sign_of(squares, face, square, j)) return 0;
        return 1;
    }
    int all_fail = 1;
    for (int64_t c = 0; c < squares->conjunctions; c++) {
        int holds = 1, fails = 0;
        for (int64_t j = squares->start[c]; j < squares->start[c + 1] && !fails; j++) {
            int sign = sign_of(squares, face, square, j);
            holds &= sign < 0;
            fails |= sign > 0;
        }
        if (holds && !fails) return 1;
        all_fail &= fails;
    }
    return all_fail;
}

/* The finest squares of a level, by rows and columns. */
static const int32_t *squares_of(const sc_squares *squares, int64_t level) {
    int64_t side = (int64_t)1 << level, first = (int64_t)1 << (2 * squares->first);
    return squares->finest + (side * side - first) / 3;
}

/* Whether the squares of a level that meet a box settle the question on a face. */
static int settled_at(const sc_squares *squares, const corners_t *face, int64_t level,
                      const double box[4]) {
    int64_t side = (int64_t)1 << level, last = -1, from[2], to[2];
    const int32_t *finest = squares_of(squares, level);
    for (int i = 0; i < 2; i++) {
        from[i] = MAX((int64_t)floor(box[i] * (double)side - CLOSE), 0);
        to[i] = MIN((int64_t)floor(box[i + 2] * (double)side + CLOSE), side - 1);
    }
    for (int64_t row = from[1]; row <= to[1]; row++)
        for (int64_t column = from[0]; column <= to[0]; column++) {
            int64_t square = finest[row * side + column];
            if (square == last || squares->settled[square]) continue;
            if (!settles(squares, face, square)) return 0;
            last = square;
        }
    return 1;
}

static int look_at_faces(void *context, int thread, int64_t begin, int64_t end) {
    const faces_t *run = context;
    const sc_squares *squares = run->squares;
    const sc_mesh *mesh = run->mesh;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        corners_t face = {mesh->offset[i + 1] - mesh->offset[i], {0}};
        if (!run->open[i] || face.count > CORNERS) continue;
        double box[4] = {INFINITY, INFINITY, -INFINITY, -INFINITY};
        for (int64_t c = 0; c < face.count; c++) {
            int64_t half = mesh->corner[mesh->offset[i] + c];
            double *at = face.at + 2 * c;
            place(squares, mesh->uv + mesh->edge[half] * mesh->width, at);
            for (int k = 0; k < 2; k++) {
                box[k] = MIN(box[k], at[k]);
                box[k + 2] = MAX(box[k + 2], at[k]);
            }
        }
        int fits;
        frexp(MAX(box[2] - box[0], box[3] - box[1]), &fits);
        for (int k = 0; k < ROUNDS && run->open[i]; k++) {
            int64_t level = MIN((int64_t)k - fits, squares->deepest);
            if (level >= squares->first && settled_at(squares, &face, level, box)) run->open[i] = 0;
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

typedef struct {
    const sc_squares *squares;
    const sc_settled_points *points;
} points_t;

static int look_at_points(void *context, int thread, int64_t begin, int64_t end) {
    const points_t *run = context;
    const sc_squares *squares = run->squares;
    const sc_settled_points *points = run->points;
    int64_t n = points->width;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        corners_t point = {1, {0}};
        int64_t square = -1, level = squares->deepest, next;
        double *to = points->values + n * points->row[i];
        place(squares, points->uv + 2 * points->row[i], point.at);
        for (; level >= squares->first; level--) {
            int64_t side = (int64_t)1 << level, column = (int64_t)floor(point.at[0] * (double)side);
            int64_t row = (int64_t)floor(point.at[1] * (double)side);
            row = MAX(MIN(row, side - 1), 0);
            column = MAX(MIN(column, side - 1), 0);
            next = squares_of(squares, level)[row * side + column];
            if (next != square && settles(squares, &point, next)) break;
            square = next;
        }
        if (level < squares->first) {
            for (int64_t j = 0; j < n; j++) to[j] = NAN;
            continue;
        }
        const double *rows = points->rows + 3 * n * next, half = squares->half[next];
        double u = (point.at[0] - squares->centre[2 * next]) / half;
        double v = (point.at[1] - squares->centre[2 * next + 1]) / half;
        for (int64_t j = 0; j < n; j++) to[j] = rows[j] + u * rows[n + j] + v * rows[2 * n + j];
    }
    return SC_DONE;
}

int sc_settled_values(sc_pool *pool, const sc_squares *squares, const sc_settled_points *points) {
    if (!pool || !squares || !points || points->width < 1) return SC_MALFORMED;
    points_t run = {squares, points};
    return sc_parallel(pool, points->count, PART, look_at_points, &run);
}
