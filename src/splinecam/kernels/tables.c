/* Functions of one variable each, given by tables of their linear pieces, at rows of numbers. */
#include "pool.h"

enum {
    PART = 128, /* rows that a thread takes at a time */
    UNITS = 8,  /* whose pieces are searched together, so that none waits for another's */
};

typedef struct {
    const sc_tables *tables;
    const double *z;
    double *out;
} table_values_t;

/* Write the functions of at most UNITS units next to each other. */
static inline void write_units(const sc_tables *tables, int64_t unit, int64_t count,
                               const double *z, double *out) {
    int64_t n = tables->units, left = tables->levels;
    int64_t piece[UNITS] = {0}; /* times n: where it lies in the tables */
    const double *level = tables->level + unit;
    while (left > 0) { /* halve what is left, without branches to be predicted */
        int64_t half = (left + 1) / 2, step = half * n;
        const double *last = level + step - n;
        for (int64_t j = 0; j < count; j++) piece[j] += last[piece[j] + j] < z[j] ? step : 0;
        left -= half;
    }
    for (int64_t j = 0; j < count; j++) {
        int64_t at = piece[j] + unit + j;
        out[j] = tables->value[at] + (z[j] - tables->start[at]) * tables->slope[at];
    }
}

static int write_rows(void *context, int thread, int64_t begin, int64_t end) {
    const table_values_t *run = context;
    const sc_tables *tables = run->tables;
    int64_t n = tables->units;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const double *z = run->z + row * n;
        double *out = run->out + row * n;
        int64_t u = 0;
        for (; u + UNITS <= n; u += UNITS) write_units(tables, u, UNITS, z + u, out + u);
        write_units(tables, u, n - u, z + u, out + u);
    }
    return SC_DONE;
}

int sc_table_values(sc_pool *pool, const sc_tables *tables, const double *z, int64_t rows,
                    double *out) {
    if (!pool || !tables || !z || !out || rows < 0 || tables->units < 0 || tables->levels < 0)
        return SC_MALFORMED;
    table_values_t run = {tables, z, out};
    return sc_parallel(pool, rows, PART, write_rows, &run);
}
