/* Values of many vertices, a block at a time: products, interpolation, ranges and signs. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

enum {
    BLOCK = 1 << 16,        /* numbers that fit into the cache of a core */
    MIN_ROWS = 32,          /* rows of a block, however wide ... */
    MAX_ROWS = 128,         /* ... or narrow */
    MIN_PART = 1 << 12,     /* numbers that are worth another thread */
    MIN_THREADED = 1 << 22, /* products that are worth starting threads */
    MAX_DENSITY = 80,       /* per cent of a matrix that is worth looking at what is zero */
    MAX_SPARSE = 10,        /* per cent that is multiplied number by number, measured */
    CACHED_ROWS = 16,       /* rows that are scanned while they are in the fastest cache */
};

int64_t sc_version(void) { return 9; }

/* -- ranges and signs ----------------------------------------------------------------------- */

typedef struct {
    const loops_t *loops;
    const sc_dense *dense;
    const sc_lines *lines;
    double *table;
    int64_t width, begin, step;
    /* The vertices of a product in order; new rows by block, and where each block's start. */
    int64_t *order, *line_rows, *starts;
    int64_t *to; /* the rows of the result, in the same order */
    sc_sign_range *sign_range;
    int threads;
    worker_t *workers;
    char *memory;   /* of all threads */
    double *panels; /* the columns of the product, tile by tile: (tiles, units, tile_columns) */
    int32_t *span;  /* (units, 2) where the columns that are not zero begin and end, or NULL */
    sparse_t sparse; /* without arrays if the columns are not sparse */
} job_t;

/* Allocate the memory of all threads. longest: the most breakpoints of a line. */
static int open_job(job_t *job, sc_sign_range *sign_range, int threads, int64_t longest) {
    int64_t step = job->dense ? job->step : 0, units = job->dense ? job->dense->units : 0;
    int64_t n = sign_range->units, tall = step + job->loops->tile_rows;
    const struct { size_t array; int64_t count; } parts[] = {
        {offsetof(worker_t, sign_range.low), n}, {offsetof(worker_t, sign_range.high), n},
        {offsetof(worker_t, size), n}, {offsetof(worker_t, found), longest},
        {offsetof(worker_t, weight), MAX(longest, 4 * job->width)},
        {offsetof(worker_t, row), step}, {offsetof(worker_t, interpolated), (step + 2) * units},
        {offsetof(worker_t, x), tall * units}, {offsetof(worker_t, peak), units},
        {offsetof(worker_t, unit), units}, {offsetof(worker_t, chosen), units + 1},
        {offsetof(worker_t, sums), job->sparse.value ? job->width * job->loops->tile_rows : 0},
    };
    int count = sizeof parts / sizeof *parts;
    int64_t total = 1;
    for (int i = 0; i < count; i++) total += parts[i].count;
    job->sign_range = sign_range;
    job->threads = threads;
    job->workers = calloc((size_t)threads, sizeof *job->workers);
    char *at = job->memory = malloc((size_t)threads * (size_t)total * 8);
    if (!job->workers || !at) return 0;
    for (worker_t *own = job->workers; own < job->workers + threads; own++) {
        own->sign_range = *sign_range;
        own->y = job->panels;
        own->span = job->span;
        own->sparse = job->sparse.value ? &job->sparse : NULL;
        for (int i = 0; i < count; at += 8 * parts[i++].count)
            memcpy((char *)own + parts[i].array, &at, sizeof at);
        own->sign_range.zeros = 0;
        for (int64_t u = 0; u < n; u++) {
            own->sign_range.low[u] = INFINITY;
            own->sign_range.high[u] = -INFINITY;
        }
    }
    return 1;
}

/* Merge the ranges of all threads, and free the memory. */
static void close_job(job_t *job) {
    sc_sign_range *sign_range = job->sign_range;
    for (int i = 0; job->workers && job->memory && i < job->threads; i++) {
        const sc_sign_range *own = &job->workers[i].sign_range;
        sign_range->zeros |= own->zeros;
        for (int64_t u = 0; u < sign_range->units; u++) {
            sign_range->low[u] = MIN(own->low[u], sign_range->low[u]);
            sign_range->high[u] = MAX(own->high[u], sign_range->high[u]);
        }
    }
    void *all[] = {job->workers, job->memory, job->panels, job->order, job->to, job->line_rows,
                   job->starts, job->span, job->sparse.start, job->sparse.place,
                   job->sparse.value};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static int64_t rows_of(int64_t n) { return MIN(MAX(BLOCK / MAX(n, 1), MIN_ROWS), MAX_ROWS); }
static int64_t part_of(int64_t width) { return MAX(rows_of(width), MIN_PART / MAX(width, 1)); }

static int scan_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    for (int64_t i = begin; i < end; i += CACHED_ROWS) {
        int64_t from = job->begin + i, to = job->begin + MIN(i + CACHED_ROWS, end);
        job->loops->scan(job->table, NULL, from, to, &job->workers[thread]);
    }
    return SC_DONE;
}

int sc_scan(sc_pool *pool, const double *table, int64_t rows, int64_t begin, int64_t end,
            sc_sign_range *sign_range) {
    if (!pool || !table || !sign_range || begin < 0 || end > rows || sign_range->units < 0)
        return SC_MALFORMED;
    job_t job = {.loops = sc_loops(), .table = (double *)table, .begin = begin};
    int status = SC_NO_MEMORY;
    if (open_job(&job, sign_range, sc_threads(pool), 0))
        status = sc_parallel(pool, end - begin, part_of(sign_range->units), scan_part, &job);
    close_job(&job);
    return status;
}

/* -- new rows on lines ---------------------------------------------------------------------- */

/* Check the sizes and indices of lines, and find the most breakpoints that one has. Running sums
 * need the rows line by line, and every row at one of the breakpoints of its line. */
static int check_lines(const sc_lines *lines, int64_t method, int64_t rows, int64_t *longest) {
    if (lines->first < 0 || lines->count < 0 || lines->first + lines->count > rows) return 0;
    uint64_t wrong = 0, first = (uint64_t)lines->first;
    for (int64_t i = 0; i < lines->count; i++)
        wrong |= ((uint64_t)lines->p[i] >= first) | ((uint64_t)lines->q[i] >= first);
    if (!lines->lines) return !wrong && (method != SC_SUMS || !lines->count);
    for (int64_t i = 0; i < lines->count; i++)
        wrong |= (uint64_t)lines->line[i] >= (uint64_t)lines->lines;
    for (int64_t i = 0; i < lines->lines; i++) {
        int64_t count = lines->offset[i + 1] - lines->offset[i];
        wrong |= count < 0;
        *longest = MAX(*longest, count);
    }
    wrong |= lines->offset[0] != 0 || lines->offset[lines->lines] != lines->breakpoints;
    for (int64_t k = 0; k < lines->breakpoints; k++)
        wrong |= (uint64_t)lines->unit[k] >= (uint64_t)lines->units;
    for (int64_t i = 0; method == SC_SUMS && !wrong && i < lines->count; i++) {
        int64_t line = lines->line[i], at = lines->breakpoint[i];
        wrong |= at < lines->offset[line] || at >= lines->offset[line + 1];
        wrong |= i > 0 && line < lines->line[i - 1];
    }
    return !wrong;
}

static void fill_rows(job_t *job, int thread, const int64_t *rows, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += CACHED_ROWS) {
        int64_t last = MIN(i + CACHED_ROWS, end), first = job->lines->first;
        int64_t from = rows ? i : first + i, to = rows ? last : first + last;
        worker_t *own = &job->workers[thread];
        job->loops->fill(job->table, job->width, job->lines, rows, i, last, own);
        job->loops->scan(job->table, rows, from, to, own);
    }
}

static int fill_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    const int64_t *rows = job->line_rows ? job->line_rows + job->begin : NULL;
    fill_rows(job, thread, rows, begin, end);
    return SC_DONE;
}

static int sum_part(void *context, int thread, int64_t begin, int64_t end) {
    job_t *job = context;
    job->loops->sum(job->table, job->width, job->lines, begin, end, &job->workers[thread]);
    return SC_DONE;
}

/* Compute new rows from the older rows at the ends of their lines. */
static int interpolate_lines(job_t *job, sc_pool *pool, const sc_lines *lines, int64_t method) {
    int64_t part = part_of(job->width);
    job->lines = lines;
    if (method == SC_TERMS) return sc_parallel(pool, lines->count, part, fill_part, job);
    int64_t mean = lines->breakpoints / (lines->lines + 1) + 1;
    int status = sc_parallel(pool, lines->lines, part / mean + 1, sum_part, job);
    if (status || !job->sign_range->units) return status;
    job->begin = lines->first;
    return sc_parallel(pool, lines->count, part, scan_part, job);
}

int sc_fill(sc_pool *pool, double *table, int64_t rows, int64_t width, const sc_lines *lines,
            int64_t method, sc_sign_range *sign_range) {
    int64_t longest = 0;
    if (!pool || !table || !lines || !sign_range || width < 0 ||
        (method != SC_TERMS && method != SC_SUMS) || !check_lines(lines, method, rows, &longest) ||
        (sign_range->units && sign_range->units != width))
        return SC_MALFORMED;
    int status = SC_NO_MEMORY;
    job_t job = {.loops = sc_loops(), .table = table, .width = width};
    if (open_job(&job, sign_range, sc_threads(pool), longest))
        status = interpolate_lines(&job, pool, lines, method);
    close_job(&job);
    return status;
}

/* -- products ------------------------------------------------------------------------------- */

/* Order lines by the block that contains both of their ends; lines between blocks come last. */
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

/* The factor of a product at an older vertex, or at one on an edge, where it is interpolated. */
static const double *row_of(const job_t *job, int64_t row, double *out) {
    const sc_lines *edges = job->dense->edges;
    int64_t n = job->dense->units, i = row - job->dense->known;
    const int64_t *place = job->dense->place;
    const double *z = job->dense->z;
    if (i < 0) return z + (place ? place[row] : row) * n;
    int64_t p = edges->p[i], q = edges->q[i];
    const double *a = z + (place ? place[p] : p) * n, *b = z + (place ? place[q] : q) * n;
    job->loops->interpolate(a, b, edges->t[i], n, out);
    return out;
}

/* Gather the rows that a block multiplies. */
static void gather(const job_t *job, const int64_t *rows, int64_t count, worker_t *own) {
    const sc_lines *inside = job->dense->inside;
    int64_t n = job->dense->units;
    double *ends = own->interpolated, *out = ends + 2 * n;
    if (job->dense->before) return sc_gather_along(job->dense, job->loops, rows, count, own);
    for (int64_t k = 0; k < count; k++) {
        int64_t i = inside ? rows[k] - inside->first : -1;
        if (i < 0) {
            own->row[k] = row_of(job, rows[k], out);
        } else {
            const double *a = row_of(job, inside->p[i], ends);
            const double *b = row_of(job, inside->q[i], ends + n);
            job->loops->interpolate(a, b, inside->t[i], n, out);
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
        job->loops->block(job->dense, job->to + i, last - i, own, job->table);
        for (int64_t k = i; k < last; k += CACHED_ROWS)
            job->loops->scan(job->table, job->to, k, MIN(k + CACHED_ROWS, last), own);
        if (job->lines) {
            int64_t b = i / job->step;
            fill_rows(job, thread, job->line_rows, job->starts[b], job->starts[b + 1]);
        }
    }
    return SC_DONE;
}

/* Copy the columns of the product tile by tile. */
static int pack_columns(job_t *job) {
    int64_t n = job->dense->units, m = job->dense->width, wide = job->loops->tile_columns;
    double *to = job->panels = malloc((size_t)(n * (m + wide)) * 8 + 8);
    for (int64_t c = 0; to && c < m && m >= MIN_TILED; c += wide)
        for (int64_t u = 0; u < n; u++, to += wide)
            for (int64_t j = 0; j < wide; j++)
                to[j] = c + j < m ? job->dense->column[u * m + c + j] : 0;
    return to != NULL;
}

/* List the numbers that are not zero, of which there are so many. */
static int list_numbers(job_t *job, int64_t numbers) {
    int64_t n = job->dense->units, m = job->dense->width, k = 0;
    sparse_t *sparse = &job->sparse;
    sparse->start = malloc((size_t)(n + 1) * 8);
    sparse->place = malloc((size_t)(numbers + 1) * sizeof *sparse->place);
    sparse->value = malloc((size_t)(numbers + 1) * 8);
    if (!sparse->start || !sparse->place || !sparse->value) return 0;
    for (int64_t u = 0; u < n; u++) {
        sparse->start[u] = k;
        for (int64_t j = 0; j < m; j++) {
            if (job->dense->column[u * m + j] == 0) continue;
            sparse->place[k] = (int32_t)j;
            sparse->value[k++] = job->dense->column[u * m + j];
        }
    }
    sparse->start[n] = k;
    return 1;
}

/* Find where the columns of each unit that are not zero begin and end, if that saves enough: in two
 * networks side by side, units of the one have no effect on the other. If most of what lies between
 * is zero as well, as in pruned networks, list the rest. */
static int find_zeros(job_t *job) {
    int64_t n = job->dense->units, m = job->dense->width, total = 0, numbers = 0;
    int32_t *span = job->span = malloc((size_t)(2 * n + 1) * sizeof *span);
    for (int64_t u = 0; span && u < n; u++) {
        const double *column = job->dense->column + u * m;
        int64_t begin = 0, end = m;
        while (begin < end && column[begin] == 0) begin++;
        while (end > begin && column[end - 1] == 0) end--;
        span[2 * u] = (int32_t)begin;
        span[2 * u + 1] = (int32_t)end;
        total += end - begin;
        for (int64_t j = begin; j < end; j++) numbers += column[j] != 0;
    }
    if (!span) return 0;
    if (m >= MIN_TILED && numbers < MAX_SPARSE * total / 100) return list_numbers(job, numbers);
    if (total > MAX_DENSITY * n * m / 100) {
        free(span);
        job->span = NULL;
    }
    return 1;
}

static int order_rows(job_t *job, int64_t rows) {
    job->order = malloc((size_t)(rows + 1) * 8);
    int64_t *rank = malloc((size_t)(rows + 1) * 8);
    int fine = job->order && rank && sc_order_rows(job->dense, rows, job->order, rank);
    if (fine && job->lines) fine = find_lines(job, rank, (rows + job->step - 1) / job->step);
    free(rank);
    return fine;
}

static int multiply(job_t *job, sc_pool *pool) {
    const sc_dense *dense = job->dense;
    int64_t rows = dense->edge_method == SC_DIRECT ? dense->rows : dense->known;
    if (dense->edge_method == SC_TERMS) job->lines = dense->edges;
    if (!order_rows(job, rows)) return SC_NO_MEMORY;
    int64_t all = rows;
    for (int64_t i = 0; dense->wanted && i < all; i++) rows -= dense->wanted[i] < 0;
    job->to = malloc((size_t)(rows + 1) * 8);
    if (!job->to) return SC_NO_MEMORY;
    for (int64_t k = 0; k < rows; k++)
        job->to[k] = dense->wanted ? dense->wanted[job->order[k]] : job->order[k];
    int small = rows * dense->units * dense->width < MIN_THREADED;
    int status = sc_parallel(pool, rows, small ? rows : job->step, product_part, job);
    if (status || dense->edge_method == SC_DIRECT) return status;
    if (dense->edge_method == SC_TERMS) { /* now the ends of lines between blocks are known */
        job->begin = job->starts[(rows + job->step - 1) / job->step];
        int64_t left = dense->edges->count - job->begin;
        status = sc_parallel(pool, left, part_of(job->width), fill_part, job);
        free(job->line_rows);
        job->line_rows = NULL;
    } else {
        status = interpolate_lines(job, pool, dense->edges, dense->edge_method);
    }
    return status ? status : interpolate_lines(job, pool, dense->inside, dense->inside_method);
}

/* Check the new rows of a dense layer. */
static int check_new(const sc_dense *dense, int64_t *longest) {
    const sc_lines *edges = dense->edges, *inside = dense->inside;
    int64_t on_edges = dense->edge_method, within = dense->inside_method;
    if (!edges != !inside) return 0;
    if (dense->before) return !edges && on_edges == SC_DIRECT && sc_fits_along(dense);
    if (!edges) return dense->rows == dense->known && on_edges == SC_DIRECT;
    if (edges->first != dense->known || inside->first != dense->known + edges->count ||
        inside->first + inside->count != dense->rows || on_edges < SC_DIRECT ||
        on_edges > SC_SUMS || within < SC_DIRECT || within > SC_SUMS ||
        (on_edges == SC_DIRECT) != (within == SC_DIRECT))
        return 0;
    return check_lines(edges, on_edges, dense->rows, longest) &&
           check_lines(inside, within, dense->rows, longest);
}

/* Check that all rows which wanted vertices follow from are there. */
static int check_wanted(const sc_dense *dense) {
    const int64_t *place = dense->place, *wanted = dense->wanted, known = dense->known;
    if (!place && !wanted) return 1;
    if (!dense->uv || dense->edge_method != SC_DIRECT) return 0;
    uint64_t wrong = 0, most = (uint64_t)known;
    for (int64_t i = 0; wanted && i < dense->rows; i++) wrong |= wanted[i] >= dense->rows;
    for (int64_t i = 0; place && i < known; i++)
        wrong |= place[i] >= known || (place[i] < 0 && (!wanted || wanted[i] >= 0));
    for (int64_t i = 0; place && dense->edges && i < dense->edges->count; i++)
        wrong |= (uint64_t)place[dense->edges->p[i]] >= most ||
                 (uint64_t)place[dense->edges->q[i]] >= most;
    for (int64_t i = 0; place && dense->inside && i < dense->inside->count; i++) {
        int64_t p = dense->inside->p[i], q = dense->inside->q[i];
        wrong |= (p < known && place[p] < 0) || (q < known && place[q] < 0);
    }
    return !wrong;
}

int sc_dense_layer(sc_pool *pool, const sc_dense *dense, double *table, sc_sign_range *range) {
    int64_t longest = 0;
    if (!pool || !dense || !table || !range || dense->known < 0 || dense->known > dense->rows ||
        dense->units < 0 || dense->units > INT32_MAX || dense->width < 0 ||
        !check_new(dense, &longest) ||
        !check_wanted(dense) || (range->units && range->units != dense->width))
        return SC_MALFORMED;
    int64_t width = dense->width;
    int status = SC_NO_MEMORY;
    job_t job = {.loops = sc_loops(), .dense = dense, .table = table, .width = width,
                 .step = dense->wanted ? MIN_ROWS : rows_of(MAX(dense->units, width))};
    double *modulus = dense->bounds, *error = modulus + SC_ERROR * width;
    job.loops->bound(dense);
    for (int64_t j = 0; j < range->units; j++) {
        range->tolerance[j] = dense->safety * error[j];
        range->low[j] = INFINITY;
        range->high[j] = -INFINITY;
    }
    if (pack_columns(&job) && find_zeros(&job) && open_job(&job, range, sc_threads(pool), longest))
        status = multiply(&job, pool);
    close_job(&job);
    for (int64_t j = 0; j < range->units; j++) {
        double later = error[j] + dense->eps * modulus[j], high = range->high[j];
        modulus[SC_LATER_ERROR * width + j] = later;
        modulus[SC_POSITIVE_MODULUS * width + j] = MAX(high, 0);
        modulus[SC_POSITIVE_ERROR * width + j] = high >= 0 ? later : 0;
    }
    return status;
}
