/* Points along segments: the sign changes between neighbouring points, and values at new ones. */
#include <math.h>
#include <string.h>

#include "loops.h"

enum {
    PART = 256,         /* points that a thread takes at a time */
    MOST = 256,         /* sign changes between two points that are sorted here */
};

typedef struct {
    const sc_crossings *given;
    int64_t words;
} search_t;

/* Whether a piece lies between a point and the next one. */
static int has_piece(const sc_crossings *c, int64_t i) {
    return i + 1 < c->rows && c->segment[i] == c->segment[i + 1];
}

static int count_part(void *context, int thread, int64_t begin, int64_t end) {
    const search_t *search = context;
    const sc_crossings *c = search->given;
    int64_t words = search->words;
    int status = SC_DONE;
    for (int64_t i = begin; i < end; i++) {
        int64_t count = 0;
        if (has_piece(c, i)) {
            const uint64_t *a = c->positive + i * words, *b = a + words;
            for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(a[w] ^ b[w]);
        }
        c->count[i] = count;
        if (count > MOST) status = SC_DEGENERATE;
    }
    return status;
}

/* Between two values, as torch does it: exact at both ends. */
static inline double between(double a, double b, double s) {
    return s < 0.5 ? a + s * (b - a) : b - (b - a) * (1 - s);
}

/* The sign changes after point i, in order, into `s`; false where some are too close together. */
static int sorted_changes(const search_t *search, int64_t i, double *s) {
    const sc_crossings *c = search->given;
    const uint64_t *positive = c->positive + i * search->words;
    const double *a = c->z + i * c->units, *b = a + c->units;
    double shift[MOST], coarse = c->uv_error / (c->t[i + 1] - c->t[i]);
    int64_t found = 0;
    for (int64_t w = 0; w < search->words; w++) {
        uint64_t changed = positive[w] ^ positive[w + search->words];
        for (; changed; changed &= changed - 1) {
            int64_t u = 64 * w + __builtin_ctzll(changed), k = found++;
            double change = a[u] - b[u], at = a[u] / change;
            double own = c->error[u] / fabs(change) + coarse;
            for (; k > 0 && s[k - 1] > at; k--) {
                s[k] = s[k - 1];
                shift[k] = shift[k - 1];
            }
            s[k] = at;
            shift[k] = own;
        }
    }
    int clear = 1;
    for (int64_t k = 0; k < found; k++) {
        clear &= MIN(s[k], 1 - s[k]) > MIN(c->safety * shift[k], 0.5);
        if (k) clear &= s[k] - s[k - 1] > c->safety * (shift[k] + shift[k - 1]);
    }
    return clear;
}

static int find_part(void *context, int thread, int64_t begin, int64_t end) {
    const search_t *search = context;
    const sc_crossings *c = search->given;
    int status = SC_DONE;
    for (int64_t i = begin; i < end; i++) {
        int64_t place = i + c->offset[i], count = c->count[i];
        c->new_segment[place] = c->segment[i];
        c->new_t[place] = c->t[i];
        c->before[place] = i;
        c->s[place] = 0;
        if (!count) continue;
        if (!sorted_changes(search, i, c->s + place + 1)) status = SC_DEGENERATE;
        for (int64_t k = place + 1; k <= place + count; k++) {
            c->new_segment[k] = c->segment[i];
            c->new_t[k] = between(c->t[i], c->t[i + 1], c->s[k]);
            c->before[k] = i;
        }
    }
    return status;
}

static int is_malformed(const sc_crossings *c) {
    return !c || c->rows < 0 || c->units < 0 || !c->z || !c->positive || !c->error ||
           !c->segment || !c->t || !c->count;
}

int sc_count_along(sc_pool *pool, const sc_crossings *crossings) {
    if (!pool || is_malformed(crossings)) return SC_MALFORMED;
    search_t search = {crossings, (crossings->units + 63) / 64};
    return sc_parallel(pool, crossings->rows, PART, count_part, &search);
}

int sc_find_along(sc_pool *pool, const sc_crossings *c) {
    if (!pool || is_malformed(c) || !c->offset) return SC_MALFORMED;
    search_t search = {c, (c->units + 63) / 64};
    int64_t total = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        if (c->offset[i] != total || c->count[i] < 0 || c->count[i] > MOST) return SC_MALFORMED;
        total += c->count[i];
    }
    return sc_parallel(pool, c->rows, PART, find_part, &search);
}

/* -- values ----------------------------------------------------------------------------------- */

typedef struct {
    const double *table, *s;
    const int64_t *before;
    int64_t rows, width, rectified;
    double *out;
} rows_t;

static int between_part(void *context, int thread, int64_t begin, int64_t end) {
    const rows_t *job = context;
    int64_t n = job->width;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = job->before[i];
        double s = job->s[i], rest = 1 - s;
        if (p < 0 || p + (s != 0) >= job->rows) return SC_MALFORMED;
        const double *restrict a = job->table + p * n, *restrict b = s ? a + n : a;
        double *restrict out = job->out + i * n;
        if (!s && !job->rectified)
            memcpy(out, a, (size_t)n * sizeof *a);
        else if (!s)
            for (int64_t u = 0; u < n; u++) out[u] = a[u] > 0 ? a[u] : 0;
        else if (s < 0.5)
            for (int64_t u = 0; u < n; u++) out[u] = a[u] + s * (b[u] - a[u]);
        else
            for (int64_t u = 0; u < n; u++) out[u] = b[u] - (b[u] - a[u]) * rest;
        if (s && job->rectified)
            for (int64_t u = 0; u < n; u++) out[u] = out[u] > 0 ? out[u] : 0;
    }
    return SC_DONE;
}

int sc_rows_between(sc_pool *pool, const double *table, int64_t rows, int64_t width,
                    const int64_t *before, const double *s, int64_t count, int64_t rectified,
                    double *out) {
    if (!pool || !table || !before || !s || !out || rows < 0 || width < 0) return SC_MALFORMED;
    rows_t job = {table, s, before, rows, width, rectified, out};
    int64_t step = MAX(1, (1 << 14) / MAX(width, 1));
    return sc_parallel(pool, count, step, between_part, &job);
}

/* -- products --------------------------------------------------------------------------------- */

int sc_fits_along(const sc_dense *dense) {
    uint64_t wrong = dense->uv != NULL || !dense->s, known = (uint64_t)dense->known;
    for (int64_t i = 0; !wrong && i < dense->rows; i++) {
        uint64_t p = (uint64_t)dense->before[i];
        wrong |= p >= known || p + (dense->s[i] != 0) >= known;
    }
    return !wrong;
}

void sc_gather_along(const sc_dense *dense, const loops_t *loops, const int64_t *rows,
                     int64_t count, worker_t *own) {
    int64_t n = dense->units;
    double *out = own->interpolated;
    for (int64_t k = 0; k < count; k++) {
        const double *a = dense->z + dense->before[rows[k]] * n;
        double s = dense->s[rows[k]];
        own->row[k] = s ? out : a;
        if (!s) continue;
        loops->interpolate(a, a + n, s, n, out);
        out += n;
    }
}
