/* Values of many vertices, a block at a time: products, interpolation, ranges and signs. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernel.h"
#include "pool.h"

enum {
    BLOCK = 1 << 16,            /* numbers that a thread has in its cache */
    FEWEST_ROWS = 32,           /* rows of a block, however wide ... */
    MOST_ROWS = 128,            /* ... or narrow */
    WORTH_SHARING = 1 << 12,    /* numbers below which another thread does not pay */
    WORTH_A_THREAD = 1 << 22,   /* products below which no thread is started */
    CELL = 4,                   /* rows in a cell of the grid that gives their order */
    NARROW = 4,                 /* columns below which rows are multiplied one by one */
    AHEAD = 4,                  /* rows that are asked for before they are read */
    AT_HAND = 16,               /* rows that are looked at while they are in the nearest cache */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static const double ZEROS[64]; /* as many as a tile has columns at most */

#define P1(i) 1ull << (i)
#define P4(i) P1(i), P1(i + 1), P1(i + 2), P1(i + 3)
#define P16(i) P4(i), P4(i + 4), P4(i + 8), P4(i + 12)
static const uint64_t PLACES[64] = {P16(0), P16(16), P16(32), P16(48)};

/* What one thread has for itself. */
typedef struct {
    sc_sight sight; /* in the end the ranges are united */
    double *size;   /* (units of sight) */
    double *weight; /* of the slope changes of a line, or their sums */
    int64_t *found; /* the new rows at the slope changes of a line */
    /* For a block of a product: its rows, of which some are mixed, packed parts of both factors,
     * and the units that are not zero in all rows. */
    const double **row, *y;
    double *mixed, *x, *peak;
    int32_t *unit;
} worker_t;

typedef struct {
    void (*see)(const double *, const int64_t *, int64_t, int64_t, worker_t *);
    void (*fill)(double *, int64_t, const sc_lines *, const int64_t *, int64_t, int64_t, double *);
    void (*sum)(double *, int64_t, const sc_lines *, int64_t, int64_t, worker_t *);
    void (*mix)(const double *, const double *, double, int64_t, double *);
    void (*block)(const sc_dense *, const int64_t *, int64_t, worker_t *, double *);
    void (*bound)(const sc_dense *);
    int64_t tile_rows, tile_columns;
} loops_t;

#if defined(__x86_64__)
#define SUFFIX _sse2
#define TARGET
#define LANES 2
#define TILE_ROWS 4
#define TILE_VECTORS 2
#include "rows.h"
#define SUFFIX _avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECTORS 2
#include "rows.h"
#define SUFFIX _avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define LANES 8
#define TILE_ROWS 8
#define TILE_VECTORS 3
#include "rows.h"
#else
#define SUFFIX _plain
#define TARGET
#define LANES 2
#define TILE_ROWS 6
#define TILE_VECTORS 4
#include "rows.h"
#endif

/* The instructions of this machine decide, not those of the one that compiled the library. */
#if defined(__x86_64__)
/* Whether the processor has the given feature bits, and the system saves the registers. */
static int has(unsigned ebx, unsigned states) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & states) != states || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (b & ebx) == ebx;
}
static const loops_t *loops(void) {
    if (has(bit_AVX2 | bit_AVX512F | bit_AVX512DQ, 0xe6)) return &loops_avx512;
    return has(bit_AVX2, 0x06) ? &loops_avx2 : &loops_sse2;
}
#else
static const loops_t *loops(void) { return &loops_plain; }
#endif

int64_t sc_version(void) { return 2; }

/* -- looking at rows ------------------------------------------------------------------------ */

typedef struct {
    const loops_t *loops;
    const sc_dense *dense;
    const sc_lines *lines;
    double *table;
    int64_t width, begin, step;
    int64_t *order, *line_rows, *starts; /* rows of the product; new rows by block */
    sc_sight *sight;
    int threads;
    worker_t *workers;
    char *room; /* of all threads */
    double *panels; /* the columns of the product, a tile after the other: (?, units, columns) */
} job_t;

/* most: slope changes of a line. */
static int open_job(job_t *job, sc_sight *sight, int threads, int64_t most) {
    int64_t step = job->dense ? job->step : 0, units = job->dense ? job->dense->units : 0;
    int64_t n = sight->units, tall = step + job->loops->tile_rows; /* enough for NARROW columns */
    const struct { size_t array; int64_t count; } parts[] = {
        {offsetof(worker_t, sight.low), n}, {offsetof(worker_t, sight.high), n},
        {offsetof(worker_t, size), n}, {offsetof(worker_t, weight), MAX(most, 4 * job->width)},
        {offsetof(worker_t, found), most}, {offsetof(worker_t, row), step},
        {offsetof(worker_t, mixed), (step + 2) * units}, {offsetof(worker_t, x), tall * units},
        {offsetof(worker_t, peak), units}, {offsetof(worker_t, unit), units},
    };
    int count = sizeof parts / sizeof *parts;
    int64_t total = 1;
    for (int i = 0; i < count; i++) total += parts[i].count;
    job->sight = sight;
    job->threads = threads;
    job->workers = calloc((size_t)threads, sizeof *job->workers);
    char *at = job->room = malloc((size_t)threads * (size_t)total * 8);
    if (!job->workers || !at) return 0;
    for (worker_t *own = job->workers; own < job->workers + threads; own++) {
        own->sight = *sight;
        own->y = job->panels;
        for (int i = 0; i < count; at += 8 * parts[i++].count)
            memcpy((char *)own + parts[i].array, &at, sizeof at);
        own->sight.zeros = 0;
        for (int64_t u = 0; u < n; u++) {
            own->sight.low[u] = INFINITY;
            own->sight.high[u] = -INFINITY;
        }
    }
    return 1;
}

static void close_job(job_t *job) {
    sc_sight *sight = job->sight;
    for (int i = 0; job->workers && job->room && i < job->threads; i++) {
        const sc_sight *own = &job->workers[i].sight;
        sight->zeros |= own->zeros;
        for (int64_t u = 0; u < sight->units; u++) {
            sight->low[u] = MIN(own->low[u], sight->low[u]);
            sight->high[u] = MAX(own->high[u], sight->high[u]);
        }
    }
    free(job->workers);
    free(job->room);
    free(job->panels);
    free(job->order);
    free(job->line_rows);
    free(job->starts);
}

static int64_t rows_of(int64_t width) {
    return MIN(MAX(BLOCK / MAX(width, 1), FEWEST_ROWS), MOST_ROWS);
}

static int64_t part_of(int64_t width) { return MAX(rows_of(width), WORTH_SHARING / MAX(width, 1)); }

static int see_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    for (int64_t i = begin; i < end; i += AT_HAND) {
        int64_t from = job->begin + i, to = job->begin + MIN(i + AT_HAND, end);
        job->loops->see(job->table, NULL, from, to, &job->workers[thread]);
    }
    return SC_DONE;
}

int sc_see(sc_pool *pool, const double *table, int64_t rows, int64_t begin, int64_t end,
           sc_sight *sight) {
    if (!pool || !table || !sight || begin < 0 || end > rows || sight->units < 0)
        return SC_MALFORMED;
    job_t job = {.loops = loops(), .table = (double *)table, .begin = begin};
    int status = SC_NO_MEMORY;
    if (open_job(&job, sight, sc_threads(pool), 0))
        status = sc_parallel(pool, end - begin, part_of(sight->units), see_part, &job);
    close_job(&job);
    return status;
}

/* -- new rows on lines ---------------------------------------------------------------------- */

static int check_lines(const sc_lines *lines, int64_t rows, int64_t *most) {
    if (lines->first < 0 || lines->count < 0 || lines->first + lines->count > rows) return 0;
    uint64_t wrong = 0;
    for (int64_t i = 0; i < lines->count; i++) {
        wrong |= (uint64_t)lines->p[i] >= (uint64_t)lines->first;
        wrong |= (uint64_t)lines->q[i] >= (uint64_t)lines->first;
    }
    if (!lines->lines) return !wrong;
    for (int64_t i = 0; i < lines->count; i++)
        wrong |= (uint64_t)lines->line[i] >= (uint64_t)lines->lines;
    for (int64_t i = 0; i < lines->lines; i++) {
        int64_t count = lines->offset[i + 1] - lines->offset[i];
        wrong |= count < 0;
        *most = MAX(*most, count);
    }
    wrong |= lines->offset[0] != 0 || lines->offset[lines->lines] != lines->entries;
    for (int64_t k = 0; k < lines->entries; k++)
        wrong |= (uint64_t)lines->unit[k] >= (uint64_t)lines->units;
    return !wrong;
}

/* Running sums take the rows line by line, and every row at one of its line's slope changes. */
static int check_sums(const sc_lines *lines) {
    uint64_t wrong = lines->count && !lines->lines;
    if (wrong) return 0;
    for (int64_t i = 0; i < lines->count; i++) {
        int64_t line = lines->line[i], at = lines->at[i];
        wrong |= at < lines->offset[line] || at >= lines->offset[line + 1];
        wrong |= i > 0 && line < lines->line[i - 1];
    }
    return !wrong;
}

static void fill_rows(job_t *job, int thread, const int64_t *rows, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += AT_HAND) {
        int64_t last = MIN(i + AT_HAND, end), first = job->lines->first;
        int64_t from = rows ? i : first + i, to = rows ? last : first + last;
        worker_t *own = &job->workers[thread];
        job->loops->fill(job->table, job->width, job->lines, rows, i, last, own->weight);
        job->loops->see(job->table, rows, from, to, own);
    }
}

static int fill_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    const int64_t *rows = job->line_rows ? job->line_rows + job->begin : NULL;
    fill_rows(job, thread, rows, begin, end);
    return SC_DONE;
}

/* The new rows of some lines by running sums. */
static int sum_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    job->loops->sum(job->table, job->width, job->lines, begin, end, &job->workers[thread]);
    return SC_DONE;
}

/* The values at new vertices from those of the vertices before them. */
static int follow_lines(job_t *job, sc_pool *pool, const sc_lines *lines, int64_t way) {
    int64_t part = part_of(job->width);
    job->lines = lines;
    if (way == SC_TERMS) return sc_parallel(pool, lines->count, part, fill_part, job);
    int64_t mean = lines->entries / (lines->lines + 1) + 1;
    int status = sc_parallel(pool, lines->lines, part / mean + 1, sum_part, job);
    if (status || !job->sight->units) return status;
    job->begin = lines->first;
    return sc_parallel(pool, lines->count, part, see_part, job);
}

int sc_fill(sc_pool *pool, double *table, int64_t rows, int64_t width, const sc_lines *lines,
            int64_t way, sc_sight *sight) {
    int64_t most = 0;
    if (!pool || !table || !lines || !sight || width < 0 || !check_lines(lines, rows, &most) ||
        (sight->units && sight->units != width) ||
        (way != SC_TERMS && (way != SC_SUMS || !check_sums(lines))))
        return SC_MALFORMED;
    int status = SC_NO_MEMORY;
    job_t job = {.loops = loops(), .table = table, .width = width};
    if (open_job(&job, sight, sc_threads(pool), most))
        status = follow_lines(&job, pool, lines, way);
    close_job(&job);
    return status;
}

/* -- products ------------------------------------------------------------------------------- */

/* The place of a cell of a grid of side 2^levels on Hilbert's curve. */
static int64_t hilbert(int64_t x, int64_t y, int levels) {
    int64_t place = 0;
    for (int64_t half = (int64_t)1 << levels >> 1; half; half >>= 1) {
        int64_t right = (x & half) != 0, upper = (y & half) != 0;
        place += half * half * ((3 * right) ^ upper);
        x &= half - 1;
        y &= half - 1;
        if (!upper) {
            if (right) {
                x = half - 1 - x;
                y = half - 1 - y;
            }
            int64_t swap = x;
            x = y;
            y = swap;
        }
    }
    return place;
}

static int64_t cell_of(double value, int64_t side) {
    double at = (value + 1) * 0.5 * (double)side;
    return !(at > 0) ? 0 : at >= (double)side ? side - 1 : (int64_t)at;
}

/* Order rows along Hilbert's curve over [-1, 1]^2, so that neighbours come together. */
static int find_order(const sc_dense *dense, int64_t rows, int64_t *order, int64_t *rank) {
    int levels = 0, wanted = dense->width >= NARROW; /* few columns are multiplied row by row */
    while (wanted && levels < 15 && ((int64_t)CELL << 2 * (levels + 1)) <= rows) levels++;
    int64_t side = (int64_t)1 << levels;
    int32_t *cell = malloc((size_t)(rows + 1) * sizeof *cell);
    int64_t *first = calloc((size_t)(side * side + 1), sizeof *first);
    if (cell && first) {
        for (int64_t i = 0; i < rows; i++) {
            const double *uv = dense->uv + i * dense->uv_width;
            cell[i] = (int32_t)hilbert(cell_of(uv[0], side), cell_of(uv[1], side), levels);
            first[cell[i] + 1]++;
        }
        for (int64_t c = 0; c < side * side; c++) first[c + 1] += first[c];
        for (int64_t i = 0; i < rows; i++) {
            rank[i] = first[cell[i]]++;
            order[rank[i]] = i;
        }
    }
    free(cell);
    free(first);
    return cell && first;
}

/* Order lines by the block that holds both of their ends, those between blocks last. */
static int find_lines(job_t *job, const int64_t *rank, int64_t blocks) {
    const sc_lines *lines = job->lines;
    int64_t count = lines->count;
    int32_t *block = malloc((size_t)(count + 1) * sizeof *block);
    job->line_rows = malloc((size_t)(count + 1) * 8);
    job->starts = calloc((size_t)blocks + 3, 8);
    int fine = block && job->line_rows && job->starts;
    if (fine) {
        int64_t *next = job->starts + 1;
        for (int64_t i = 0; i < count; i++) {
            int64_t one = rank[lines->p[i]] / job->step, two = rank[lines->q[i]] / job->step;
            block[i] = (int32_t)(one == two ? one : blocks);
            next[block[i] + 1]++;
        }
        for (int64_t b = 0; b <= blocks; b++) next[b + 1] += next[b];
        for (int64_t i = 0; i < count; i++) job->line_rows[next[block[i]]++] = lines->first + i;
    }
    free(block);
    return fine;
}

/* What is multiplied at an older vertex, or at one on an edge between older ones. */
static const double *row_of(const job_t *job, int64_t row, double *room) {
    const sc_lines *edges = job->dense->edges;
    int64_t n = job->dense->units, i = row - job->dense->known;
    const double *z = job->dense->z;
    if (i < 0) return z + row * n;
    job->loops->mix(z + edges->p[i] * n, z + edges->q[i] * n, edges->t[i], n, room);
    return room;
}

/* The rows that a block multiplies; those of new vertices are mixed. */
static void gather(const job_t *job, const int64_t *rows, int64_t count, worker_t *own) {
    const sc_lines *inside = job->dense->inside;
    int64_t n = job->dense->units;
    double *ends = own->mixed, *out = ends + 2 * n;
    for (int64_t k = 0; k < count; k++) {
        int64_t i = inside ? rows[k] - inside->first : -1;
        if (i < 0) {
            own->row[k] = row_of(job, rows[k], out);
        } else {
            const double *a = row_of(job, inside->p[i], ends);
            const double *b = row_of(job, inside->q[i], ends + n);
            job->loops->mix(a, b, inside->t[i], n, out);
            own->row[k] = out;
        }
        out += own->row[k] == out ? n : 0;
    }
}

static int product_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    worker_t *own = &job->workers[thread];
    for (int64_t i = begin; i < end; i += job->step) {
        int64_t last = MIN(i + job->step, end);
        gather(job, job->order + i, last - i, own);
        job->loops->block(job->dense, job->order + i, last - i, own, job->table);
        for (int64_t k = i; k < last; k += AT_HAND)
            job->loops->see(job->table, job->order, k, MIN(k + AT_HAND, last), own);
        if (job->lines) {
            int64_t b = i / job->step;
            fill_rows(job, thread, job->line_rows, job->starts[b], job->starts[b + 1]);
        }
    }
    return SC_DONE;
}

static int pack_columns(job_t *job) {
    int64_t n = job->dense->units, m = job->dense->width, wide = job->loops->tile_columns;
    double *to = job->panels = malloc((size_t)(n * (m + wide)) * 8 + 8);
    for (int64_t c = 0; to && c < m && m >= NARROW; c += wide)
        for (int64_t u = 0; u < n; u++, to += wide)
            for (int64_t j = 0; j < wide; j++)
                to[j] = c + j < m ? job->dense->column[u * m + c + j] : 0;
    return to != NULL;
}

static int order_rows(job_t *job, int64_t rows) {
    job->order = malloc((size_t)(rows + 1) * 8);
    int64_t *rank = malloc((size_t)(rows + 1) * 8);
    int fine = job->order && rank && find_order(job->dense, rows, job->order, rank);
    if (fine && job->lines) fine = find_lines(job, rank, (rows + job->step - 1) / job->step);
    free(rank);
    return fine;
}

static int multiply(job_t *job, sc_pool *pool) {
    const sc_dense *dense = job->dense;
    int64_t rows = dense->edge_way == SC_DIRECT ? dense->rows : dense->known;
    if (dense->edge_way == SC_TERMS) job->lines = dense->edges;
    if (!order_rows(job, rows)) return SC_NO_MEMORY;
    int small = rows * dense->units * dense->width < WORTH_A_THREAD;
    int status = sc_parallel(pool, rows, small ? rows : job->step, product_part, job);
    if (status || dense->edge_way == SC_DIRECT) return status;
    if (dense->edge_way == SC_TERMS) { /* lines between blocks, now that all their ends are known */
        job->begin = job->starts[(rows + job->step - 1) / job->step];
        int64_t left = dense->edges->count - job->begin;
        status = sc_parallel(pool, left, part_of(job->width), fill_part, job);
        free(job->line_rows);
        job->line_rows = NULL;
    } else {
        status = follow_lines(job, pool, dense->edges, dense->edge_way);
    }
    return status ? status : follow_lines(job, pool, dense->inside, dense->inside_way);
}

static int check_new(const sc_dense *dense, int64_t *most) {
    const sc_lines *edges = dense->edges, *inside = dense->inside;
    if (!edges != !inside) return 0;
    if (!edges) return dense->rows == dense->known && dense->edge_way == SC_DIRECT;
    if (edges->first != dense->known || inside->first != dense->known + edges->count ||
        inside->first + inside->count != dense->rows || dense->edge_way < SC_DIRECT ||
        dense->edge_way > SC_SUMS || dense->inside_way < SC_DIRECT || dense->inside_way > SC_SUMS ||
        (dense->edge_way == SC_DIRECT) != (dense->inside_way == SC_DIRECT))
        return 0;
    return check_lines(edges, dense->rows, most) && check_lines(inside, dense->rows, most) &&
           (dense->edge_way != SC_SUMS || check_sums(edges)) &&
           (dense->inside_way != SC_SUMS || check_sums(inside));
}

int sc_dense_layer(sc_pool *pool, const sc_dense *dense, double *table, sc_sight *sight) {
    int64_t most = 0;
    if (!pool || !dense || !table || !sight || dense->known < 0 || dense->known > dense->rows ||
        dense->units < 0 || dense->units > INT32_MAX || dense->width < 0 ||
        !check_new(dense, &most) || (sight->units && sight->units != dense->width))
        return SC_MALFORMED;
    int64_t width = dense->width;
    int status = SC_NO_MEMORY;
    job_t job = {.loops = loops(), .dense = dense, .table = table, .width = width,
                 .step = rows_of(MAX(dense->units, width))};
    double *modulus = dense->bounds, *error = modulus + SC_ERROR * width;
    job.loops->bound(dense);
    for (int64_t j = 0; j < sight->units; j++) {
        sight->least[j] = dense->safety * error[j];
        sight->low[j] = INFINITY;
        sight->high[j] = -INFINITY;
    }
    if (pack_columns(&job) && open_job(&job, sight, sc_threads(pool), most))
        status = multiply(&job, pool);
    close_job(&job);
    for (int64_t j = 0; j < sight->units; j++) {
        double later = error[j] + dense->eps * modulus[j], high = sight->high[j];
        modulus[SC_LATER_ERROR * width + j] = later;
        modulus[SC_POSITIVE_MODULUS * width + j] = MAX(high, 0);
        modulus[SC_POSITIVE_ERROR * width + j] = high >= 0 ? later : 0;
    }
    return status;
}
