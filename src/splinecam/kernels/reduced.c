/* Bounds of a chain on squares that keep the noise of each unit apart, with its sign.
 *
 * On a small square most units stay on one side of zero. So the chain is an affine function of the
 * square and of the noise of the other units. Each of these is itself an affine function of the
 * square and of the noise of units in earlier layers. This reduced chain is exact but for rounding.
 * That of a quarter of a square follows from that of the square, without the chain.
 * See engine/box_bounds.py. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

enum { MOST = 512, WAYS = 4 }; /* units with noise at most; numbers of a unit but for noise */

/* A row is an affine function (at the centre, to the right and upwards), and coefficients of noise:
 * for a unit, of the units in earlier layers. The rows of the units come first, then those of the
 * outputs and of the functions; the errors of all rows lie behind them. */
typedef struct {
    int64_t units, ends, numbers;   /* rows of units, other rows, and numbers of all rows */
    int32_t before[MOST];           /* the units in earlier layers */
    float slope[MOST], noise[MOST]; /* a rectified unit: slope times its row, plus noise, +- noise */
    float row[];
} net_t;

typedef struct {
    const sc_chain *chain;
    const sc_reductions *given;
    const loops_t *loops;
    int64_t widest, outputs, ends;
    char *memory; /* of all threads */
    size_t each;  /* bytes of one */
} job_t;

/* What a thread works with: the units of a layer that are not off, one row for each. */
typedef struct {
    float *way, *next;          /* (WAYS, stride), and of the next layer; see boxes.c */
    float *x, *y;               /* coefficients of noise, in rows of some panels */
    float *packed, *rounding;   /* factors of some units; (units) */
    float *slope, *noise;       /* (units) of those that may be on */
    int32_t *live, *on;         /* the units of the rows, and those of the next layer */
    int64_t count;              /* of rows */
    float off;                  /* the rounding error of all units */
    net_t *net;                 /* that is being made */
    float *error;               /* of its rows */
} work_t;

static int64_t padded(int64_t count) { return (count + PANEL - 1) / PANEL * PANEL; }

/* The coefficients of noise in a row. */
static int64_t terms_of(const net_t *net, int64_t row) {
    return row < net->units ? net->before[row] : net->units;
}

/* Begin the next row of a net. */
static float *new_row(work_t *at, float error, int64_t terms) {
    net_t *net = at->net;
    float *row = net->row + net->numbers;
    at->error[net->units + net->ends] = error;
    net->numbers += 3 + terms;
    return row;
}

/* Note a unit with noise, whose row was made. */
static void new_unit(work_t *at, int64_t before, float slope, float noise) {
    net_t *net = at->net;
    net->before[net->units] = (int32_t)before;
    net->slope[net->units] = slope;
    net->noise[net->units] = noise;
    net->units++;
}

/* -- from the chain ------------------------------------------------------------------------- */

static void enter(const job_t *job, work_t *at, const float *x) {
    int64_t inputs = job->chain->width[0], stride = job->widest + PANEL;
    double square = 0;
    float most = 0;
    at->count = inputs;
    for (int64_t u = 0; u < inputs; u++) {
        double reach = 0;
        for (int r = 0; r < 3; r++) reach += fabsf(at->way[r * stride + u] = x[r * inputs + u]);
        at->way[3 * stride + u] = 0;
        at->live[u] = (int32_t)u;
        square += reach * reach;
        most = MAX(most, fabsf(x[u]));
    }
    at->off = (float)(job->chain->single * (most + sqrt(square)));
}

/* List the units that may be on: the noise of one more layer is bounded without its signs. */
static int64_t list_on(const job_t *job, work_t *at, int64_t width, int64_t first, int all) {
    const sc_chain *chain = job->chain;
    const float *offset = chain->offset + first;
    int64_t stride = job->widest + PANEL, some = 0;
    float *x = at->next, *right = x + stride, *up = right + stride, *wide = up + stride;
    for (int64_t u = 0; u < width; u++) {
        x[u] += offset[u];
        at->rounding[u] = chain->rounded[first + u] + at->off * chain->norm[first + u];
        float reach = fabsf(right[u]) + fabsf(up[u]) + UPWARDS * wide[u] + at->rounding[u];
        at->on[some] = (int32_t)u;
        some += all | (x[u] + reach > 0);
    }
    return some;
}

/* Find the coefficients of noise of some units of the next layer. */
static void mix(const job_t *job, work_t *at, const float *column, int64_t units, int64_t some) {
    int64_t wide = padded(at->net->units);
    for (int64_t i = 0; i < some && wide; i += MIXED) {
        int64_t rows = MIN(MIXED, some - i);
        for (int64_t r = 0; r < MIXED; r++) {
            int64_t j = at->on[i + MIN(r, rows - 1)];
            const float *panel = column + j / PANEL * PANEL * units + j % PANEL;
            for (int64_t k = 0; k < at->count; k++)
                at->packed[k * MIXED + r] = panel[(int64_t)at->live[k] * PANEL];
        }
        job->loops->mix(at->count, at->packed, at->x, wide, wide, at->y + i * wide);
    }
}

static float sum_of_noise(const net_t *net, const float *row, int64_t terms) {
    float sum[8] = {0};
    for (int64_t i = 0; i < (terms & -8); i += 8)
        for (int k = 0; k < 8; k++) sum[k] += fabsf(row[i + k]) * net->noise[i + k];
    for (int64_t i = terms & -8; i < terms; i++) sum[0] += fabsf(row[i]) * net->noise[i];
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    return UPWARDS * sum[0];
}

/* How far a rectified unit with a range around zero may be from the line in the middle. */
static float noise_of(float slope, float below, float above) {
    return -0.5f * UPWARDS * below * slope + FLT_EPSILON * above; /* as the slope is rounded */
}

/* Replace the units of a layer by lines, and note those with noise; false if they are too many. */
static int rectify(const job_t *job, work_t *at, int64_t some) {
    net_t *net = at->net;
    int64_t stride = job->widest + PANEL, before = net->units, wide = padded(before), count = 0;
    float off = 0;
    double square = 0;
    for (int64_t i = 0; i < some; i++) {
        int64_t u = at->on[i];
        float *y = at->y + i * wide, *to = at->way + u;
        float middle = at->next[u], right = at->next[stride + u], up = at->next[2 * stride + u];
        float spread = sum_of_noise(net, y, before), rounding = at->rounding[u];
        float reach = fabsf(right) + fabsf(up) + spread + rounding;
        float above = middle + reach, below = MIN(middle - reach, 0);
        if (!(above > 0)) continue;
        float slope = above / (above - below);
        float noise = below < 0 ? noise_of(slope, below, above) : 0;
        at->slope[count] = slope;
        at->noise[count] = 0;
        if (noise > 0) {
            if (net->units == MOST) return 0;
            float *row = new_row(at, rounding, before);
            row[0] = middle;
            row[1] = right;
            row[2] = up;
            memcpy(row + 3, y, (size_t)before * sizeof *y);
            at->noise[count] = (float)(net->units + 1 - before);
            new_unit(at, before, slope, noise);
        }
        to[0] = middle * slope + noise;
        to[stride] = right * slope;
        to[2 * stride] = up * slope;
        to[3 * stride] = spread * slope + noise;
        float size = fabsf(to[0]) + fabsf(to[stride]) + fabsf(to[2 * stride]) + to[3 * stride];
        square += (double)size * size;
        off = MAX(off, rounding);
        at->live[count] = (int32_t)u;
        at->on[count++] = (int32_t)i; /* where its noise is */
    }
    int64_t new = padded(net->units);
    for (int64_t i = 0; i < count; i++) {
        const float *y = at->y + at->on[i] * wide;
        float *to = at->x + i * new;
        for (int64_t k = 0; k < before; k++) to[k] = at->slope[i] * y[k];
        for (int64_t k = before; k < new; k++) to[k] = 0;
        if (at->noise[i] > 0) to[before + (int64_t)at->noise[i] - 1] = 1;
    }
    at->count = count;
    at->off = FLT_MIN + off + (float)(job->chain->single * sqrt(square));
    return 1;
}

/* The rows of the outputs, and of the functions of the last layer, if there are any. */
static void find_ends(const job_t *job, work_t *at, int64_t wide) {
    const sc_chain *chain = job->chain;
    net_t *net = at->net;
    int64_t stride = job->widest + PANEL, units = net->units, before = padded(units);
    for (int64_t j = 0; j < job->outputs; j++) {
        float *row = new_row(at, at->rounding[j], units);
        for (int r = 0; r < 3; r++) row[r] = at->next[r * stride + j];
        memcpy(row + 3, at->y + j * before, (size_t)units * sizeof *row);
        net->ends++;
    }
    for (int64_t f = 0; f < job->ends - job->outputs; f++) {
        float *row = new_row(at, 0, units);
        const float *factor = chain->functions + f * wide;
        memset(row, 0, (size_t)(3 + units) * sizeof *row);
        for (int64_t k = 0; k < at->count; k++)
            for (int64_t i = 0; i < units; i++)
                row[3 + i] += factor[at->live[k]] * at->x[k * before + i];
        net->ends++;
    }
}

/* Make the net of a square; false if too many units have noise. */
static int expand(const job_t *job, work_t *at, const float *x) {
    const sc_chain *chain = job->chain;
    const float *column = chain->column;
    int64_t first = 0, stride = job->widest + PANEL;
    enter(job, at, x);
    for (int64_t k = 0; k < chain->products; k++) {
        int64_t units = chain->width[k], width = chain->width[k + 1], last = k + 1 == chain->products;
        for (int64_t c = 0; c < padded(width); c += PANEL)
            job->loops->affine(at->count, at->live, at->way, column + c * units, at->next + c,
                               stride);
        int64_t some = list_on(job, at, width, first, last);
        mix(job, at, column, units, some);
        if (last)
            find_ends(job, at, units);
        else if (!rectify(job, at, some))
            return 0;
        /* Other layers are likely to have as many. */
        if (!last && at->net->units * (chain->products - 1) > job->given->most * (k + 1)) return 0;
        column += padded(width) * units;
        first += width;
    }
    return 1;
}

/* -- from the net of a larger square -------------------------------------------------------- */

/* The rows of a net that has only been looked at so far: their first number, what the noise of the
 * old units is by that of the new ones, as rows of `wide` numbers, and how large each may be. */
typedef struct {
    const net_t *old;
    const float *row, *error;
    const double *place;
    float size[MOST];
    int32_t own[MOST]; /* the new unit that an old one is, or -1 */
    int64_t stride, wide, last;
} quarter_t;

/* Write MIXED rows of the old net, from a number on, for the quarter. All have as many terms. */
static void substitute(const job_t *job, work_t *at, const quarter_t *from, int64_t rows,
                       int64_t terms) {
    const double *place = from->place;
    for (int64_t r = 0; r < MIXED; r++) {
        const float *row = from->row + MIN(r, rows - 1) * (3 + terms);
        for (int64_t k = 0; k < terms; k++) at->packed[k * MIXED + r] = row[3 + k];
    }
    job->loops->mix(terms, at->packed, at->x, from->stride, from->wide, at->y);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = from->row + r * (3 + terms);
        float *to = at->y + r * from->stride;
        to[0] += (float)(row[0] + place[0] * row[1] + place[1] * row[2]);
        to[1] += 0.5f * row[1];
        to[2] += 0.5f * row[2];
    }
}

/* The rounding of a row that was substituted: of the product of two norms. */
static float rounding_of(const quarter_t *from, const float *row, int64_t terms, double single) {
    double square = 0;
    for (int64_t k = 0; k < terms; k++) {
        double part = row[3 + k] * from->size[k];
        square += part * part;
    }
    double reach = fabs(row[0]) + fabs(row[1]) + fabs(row[2]);
    return (float)(single * (reach + sqrt(square)));
}

/* Find the line of an old unit with a row on the quarter, and note the unit if it has noise. */
static void find_line(work_t *at, quarter_t *from, int64_t unit, const float *row, float error,
                      int64_t before) {
    net_t *net = at->net;
    const net_t *old = from->old;
    float spread = sum_of_noise(net, row + 3, before), *to = at->x + unit * from->stride;
    float reach = fabsf(row[1]) + fabsf(row[2]) + spread + error;
    float above = MAX(row[0] + reach, 0), below = MIN(row[0] - reach, 0);
    float slope = above > 0 ? above / (above - below) : 0;
    float noise = above > 0 && below < 0 ? noise_of(slope, below, above) : 0;
    float change = slope - old->slope[unit], shift = noise - old->noise[unit];
    for (int64_t i = 0; i < from->wide; i++) to[i] = change * row[i];
    to[0] += shift;
    from->size[unit] = fabsf(change) * (fabsf(row[0]) + reach) + fabsf(shift) + noise;
    from->own[unit] = noise > 0 ? (int32_t)net->units : -1;
    if (!(noise > 0)) return;
    float *kept = new_row(at, error, before);
    memcpy(kept, row, (size_t)(3 + before) * sizeof *kept);
    new_unit(at, before, slope, noise);
}

/* Make the net of a quarter of a square from that of the square. */
static void reduce(const job_t *job, work_t *at, const net_t *old, const double *place) {
    net_t *net = at->net;
    quarter_t from = {.old = old, .row = old->row, .error = old->row + old->numbers, .place = place};
    from.stride = padded(3 + old->units);
    for (int64_t j = 0, next; j < old->units + old->ends; j = next) { /* layer by layer */
        int64_t terms = terms_of(old, j), before = net->units, wide = padded(3 + before);
        int64_t end = j < old->units ? old->units : old->units + old->ends;
        for (next = j; next < end && terms_of(old, next) == terms;) next++;
        for (int64_t k = 0; k < terms; k++) {
            float *row = at->x + k * from.stride;
            memset(row + from.wide, 0, (size_t)(wide - from.wide) * sizeof *row);
        }
        for (int64_t k = from.last; k < terms; k++) /* its own noise */
            if (from.own[k] >= 0) at->x[k * from.stride + 3 + from.own[k]] = 1;
        from.wide = wide;
        from.last = terms;
        for (int64_t i = j; i < next; i += MIXED) {
            int64_t rows = MIN(MIXED, next - i);
            substitute(job, at, &from, rows, terms);
            for (int64_t r = 0; r < rows; r++) {
                const float *row = at->y + r * from.stride;
                float error = from.error[i + r];
                error += rounding_of(&from, from.row + r * (3 + terms), terms, job->chain->single);
                if (i + r < old->units) {
                    find_line(at, &from, i + r, row, error, before);
                    continue;
                }
                float *to = new_row(at, error, before);
                memcpy(to, row, (size_t)(3 + before) * sizeof *to);
                net->ends++;
            }
            from.row += rows * (3 + terms);
        }
    }
}

/* -- results -------------------------------------------------------------------------------- */

/* Write what is known of the outputs on a square. */
static void write_ends(const job_t *job, const work_t *at, int64_t square) {
    const sc_reductions *given = job->given;
    const net_t *net = at->net;
    int64_t n = job->outputs, m = job->ends - n, each = 3 + net->units, best = 0;
    const float *rows = net->row + net->numbers - net->ends * each;
    float *outputs = given->outputs + square * 3 * n;
    for (int64_t j = 0; j < n; j++) {
        for (int r = 0; r < 3; r++) outputs[r * n + j] = rows[j * each + r];
        given->rounding[square * n + j] = at->error[net->units + j];
        if (outputs[j] > outputs[best]) best = j;
    }
    int64_t count = m ? m : n;
    for (int64_t f = 0; f < count; f++) {
        const float *row = rows + (m ? n + f : f) * each + 3, *other = rows + best * each + 3;
        double moved = 0;
        for (int64_t i = 0; i < net->units; i++)
            moved += fabs((double)row[i] - (m ? 0 : other[i])) * net->noise[i];
        if (m) moved += at->error[net->units + n + f];
        given->radius[square * count + f] = (float)moved;
    }
    given->passed[square] = (float)net->units;
}

static int keep(const work_t *at, net_t **kept) {
    const net_t *net = at->net;
    size_t rows = sizeof *net + (size_t)net->numbers * sizeof(float);
    size_t errors = (size_t)(net->units + net->ends) * sizeof(float);
    char *block = malloc(rows + errors);
    if (!block) return SC_NO_MEMORY;
    memcpy(block, net, rows);
    memcpy(block + rows, at->error, errors);
    *kept = (net_t *)block;
    return SC_DONE;
}

static void *take(char **memory, size_t bytes) {
    void *found = *memory;
    *memory += (bytes + 63) & ~(size_t)63;
    return found;
}

/* Divide the memory of a thread; with none, only its size is found. */
static size_t divide(const job_t *job, char *memory, work_t *at) {
    size_t number = sizeof(float), units = (size_t)job->widest + PANEL;
    size_t rows = MOST + (size_t)job->ends, most = MAX(units, MOST);
    char *from = memory;
    at->way = take(&memory, WAYS * units * number);
    at->next = take(&memory, WAYS * units * number);
    at->x = take(&memory, (MOST + PANEL) * most * number);
    at->y = take(&memory, (MOST + PANEL) * most * number);
    at->packed = take(&memory, MIXED * most * number);
    at->rounding = take(&memory, units * number);
    at->slope = take(&memory, units * number);
    at->noise = take(&memory, units * number);
    at->live = take(&memory, units * number);
    at->on = take(&memory, units * number);
    at->error = take(&memory, rows * number);
    at->net = take(&memory, sizeof(net_t) + rows * (3 + MOST) * number);
    return (size_t)(memory - from);
}

static int reduce_squares(void *context, int thread, int64_t begin, int64_t end) {
    const job_t *job = context;
    const sc_reductions *given = job->given;
    int64_t inputs = job->chain->width[0];
    work_t at;
    divide(job, job->memory + (size_t)thread * job->each, &at);
    for (int64_t i = begin; i < end; i++) {
        net_t *old = ((net_t **)given->parent)[i];
        at.net->units = at.net->ends = at.net->numbers = 0;
        given->net[i] = 0;
        given->passed[i] = -1;
        if (old)
            reduce(job, &at, old, given->place + 2 * i);
        else if (!expand(job, &at, given->inputs + i * 3 * inputs))
            continue;
        write_ends(job, &at, i);
        if (keep(&at, (net_t **)given->net + i)) return SC_NO_MEMORY;
    }
    return SC_DONE;
}

int sc_reduce_squares(sc_pool *pool, const sc_chain *chain, const sc_reductions *given) {
    if (!pool || !chain || !given || chain->products < 1 || given->count < 0) return SC_MALFORMED;
    job_t job = {.chain = chain, .given = given, .loops = sc_loops()};
    for (int64_t k = 0; k <= chain->products; k++) {
        if (chain->width[k] < 1 || chain->width[k] > INT32_MAX / PANEL) return SC_MALFORMED;
        job.widest = MAX(job.widest, chain->width[k]);
    }
    job.outputs = chain->width[chain->products];
    job.ends = job.outputs + (chain->functions ? given->functions : 0);
    work_t none;
    job.each = divide(&job, NULL, &none);
    size_t bytes = (size_t)sc_threads(pool) * job.each;
    char *memory = malloc(bytes + 64);
    if (!memory) return SC_NO_MEMORY;
    job.memory = memory + (64 - (uintptr_t)memory % 64);
    int status = sc_parallel(pool, given->count, 8, reduce_squares, &job);
    free(memory);
    return status;
}

void sc_free_nets(const int64_t *net, int64_t count) {
    for (int64_t i = 0; i < count; i++) free(((net_t *const *)net)[i]);
}
