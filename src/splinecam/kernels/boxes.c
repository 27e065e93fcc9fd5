/* Bounds of a chain of products and ReLUs over boxes of its plane, and over convex bodies with given
 * values at their corners; see engine/box_bounds.py and solid/dropping.py. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

#include "bodies.h"

enum { LANES = 8, BOXES = 64 }; /* that are carried through a product together, while its panel is cached */

typedef struct {
    const sc_chain *chain;
    sc_boxes *boxes;
    const sc_bodies *bodies; /* or these */
    const loops_t *loops;
    int64_t ways, start;   /* rows of numbers but the radius; the product before what is given */
    int64_t widest, units; /* the most units of a layer, and all units */
    float *memory;         /* of all threads */
    int64_t each;          /* numbers of one thread */
} boxes_job_t;

/* One box on its way: the four numbers of each unit (at the centre, to the right, upwards, and the
 * radius), (4, widest + PANEL); those of the layer that is being computed; and what is known of each
 * layer. A body has five: at a corner, in three directions, and the radius. */
typedef struct {
    float *x, *next;
    float *share;   /* (corners, 3) how far they are in each direction of a body */
    int64_t corners;
    float *slope, *noise; /* (units) of all layers, one after the other */
    float *way, *back;    /* the slopes of a function at the units of a layer, and before it */
    int32_t *live;        /* of the layer that is multiplied next, units that are not off */
    int64_t count, best;  /* of these units; the output that leads */
    float off, passed;    /* the rounding error of all units; how many units pass a knot */
    float moved;          /* how far noise moves a function */
} box_t;

/* The error of all sums of products with the units of a box: the product of both norms. */
static float sum_error(double single, double square) { return (float)(single * sqrt(square)); }

static int64_t panels_of(int64_t width) { return (width + PANEL - 1) / PANEL; }

/* The sum of the moduli of products, by lanes that the processor adds at once. */
static float sum_of_products(const float *x, const float *y, int64_t count) {
    float sum[LANES] = {0};
    int64_t whole = count & -LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += fabsf(x[i + k] * y[i + k]);
    for (int64_t i = whole; i < count; i++) sum[0] += fabsf(x[i] * y[i]);
    for (int k = 1; k < LANES; k++) sum[0] += sum[k];
    return sum[0];
}

/* List the units of a layer that are not off, and turn to the next one. */
static void list_units(const boxes_job_t *job, box_t *box, int64_t width, int64_t first) {
    const float *slope = box->slope + first, *noise = box->noise + first;
    double square = 0;
    float off = job->loops->moduli(width, job->widest + PANEL, job->ways + 1, slope, box->back,
                                  box->next, box->way, &square);
    box->off = FLT_MIN + off + sum_error(job->chain->single, square);
    int64_t count = 0;
    for (int64_t u = 0; u < width; u++) {
        box->live[count] = (int32_t)u;
        count += slope[u] != 0;
    }
    box->count = count;
    float *x = box->x;
    box->x = box->next;
    box->next = x;
    if (job->bodies) return;
    int32_t passed = 0;
    for (int64_t u = 0; u < width; u++) passed += noise[u] > 0;
    box->passed += (float)passed;
}

/* Replace the units of a layer by lines; first: the number of its first unit. */
static void rectify(const boxes_job_t *job, box_t *box, int64_t width, int64_t first) {
    const sc_chain *chain = job->chain;
    const float *rounded = chain->rounded + first, *norm = chain->norm + first;
    const float *offset = chain->offset + first;
    int64_t stride = job->widest + PANEL;
    float *slope = box->slope + first, *noise = box->noise + first;
    float *rounding = box->back;
    for (int64_t u = 0; u < width; u++) rounding[u] = rounded[u] + box->off * norm[u];
    if (job->bodies)
        job->loops->corner_lines(width, stride, box->corners, box->share, offset, rounding,
                                 box->next, slope, noise);
    else
        job->loops->lines(width, stride, offset, rounding, box->next, slope, noise);
    list_units(job, box, width, first);
}

/* Write the outputs of a box, their rounding, and which output leads at its centre. */
static void write_outputs(const boxes_job_t *job, box_t *box, int64_t index) {
    const sc_chain *chain = job->chain;
    int64_t n = chain->width[chain->products];
    float *to = job->boxes->outputs + index * 3 * n;
    const float *norm = chain->norm + job->units, *rounded = chain->rounded + job->units;
    int64_t stride = job->widest + PANEL;
    box->best = 0;
    for (int64_t j = 0; j < n; j++) {
        box->next[j] += chain->offset[job->units + j];
        for (int r = 0; r < 3; r++) to[r * n + j] = box->next[r * stride + j];
        job->boxes->rounding[index * n + j] = rounded[j] + box->off * norm[j];
        if (box->next[j] > box->next[box->best]) box->best = j;
    }
    job->boxes->passed[index] = box->passed;
}

/* Set out from a function at the last layer; false if its radius is good enough as it is. */
static int set_out(const boxes_job_t *job, box_t *box, int64_t function, float *radius) {
    const sc_chain *chain = job->chain;
    int64_t wide = chain->width[chain->products - 1], best = chain->functions ? -1 : box->best;
    const float *row = (chain->functions ? chain->functions : chain->last) + function * wide;
    const float *other = chain->last + MAX(best, 0) * wide;
    *radius = best < 0 ? INFINITY : 0;
    if (function == best) return 0;
    if (best >= 0) { /* of a class that is far behind, the signs of the noise need not be known */
        const float *mine = box->next + function, *lead = box->next + best;
        int64_t s = job->widest + PANEL;
        *radius = mine[3 * s] + lead[3 * s];
        float reach = fabsf(lead[s] - mine[s]) + fabsf(lead[2 * s] - mine[2 * s]);
        if (lead[0] - mine[0] - reach > 2 * *radius) return 0;
    }
    for (int64_t u = 0; u < wide; u++) box->way[u] = row[u] - (best < 0 ? 0 : other[u]);
    box->moved = 0;
    return 1;
}

/* Add how far the noise of a layer moves the function, and list the units that pass it on. */
static void add_noise(box_t *box, int64_t width, int64_t first) {
    const float *slope = box->slope + first, *noise = box->noise + first;
    int64_t count = 0;
    box->moved += sum_of_products(box->way, noise, width);
    for (int64_t u = 0; u < width; u++) {
        float way = box->way[u];
        box->live[count] = (int32_t)u;
        box->way[count] = way * slope[u];
        count += slope[u] != 0;
    }
    box->count = count;
}

/* Bound a function of the outputs of some boxes, backwards from the last layer. */
static void bound_function(const boxes_job_t *job, box_t *block, int64_t count,
                           int64_t function, float *radius, int64_t m) {
    const sc_chain *chain = job->chain;
    int64_t last = job->units, some = 0;
    const float *panel = chain->row + chain->rows;
    box_t *open[BOXES];
    for (int64_t i = 0; i < count; i++)
        if (set_out(job, block + i, function, radius + i * m)) open[some++] = block + i;
    for (int64_t k = chain->products - 1; k > job->start && some; k--) {
        int64_t width = chain->width[k], before = chain->width[k - 1];
        last -= width;
        for (int64_t i = 0; i < some; i++) add_noise(open[i], width, last);
        if (k == job->start + 1) break;
        panel -= panels_of(before) * PANEL * width;
        for (int64_t c = 0; c < panels_of(before); c++)
            for (int64_t i = 0; i < some; i++)
                job->loops->way(open[i]->count, open[i]->live, open[i]->way,
                                panel + c * PANEL * width, open[i]->back + c * PANEL);
        for (int64_t i = 0; i < some; i++) {
            float *way = open[i]->way;
            open[i]->way = open[i]->back;
            open[i]->back = way;
        }
    }
    for (int64_t i = 0; i < some; i++) {
        float *found = radius + (open[i] - block) * m;
        *found = MIN(*found, open[i]->moved);
    }
}

static void place(const boxes_job_t *job, box_t *box, float *memory) {
    int64_t stride = job->widest + PANEL;
    box->x = memory;
    box->next = box->x + 5 * stride;
    box->slope = box->next + 5 * stride;
    box->noise = box->slope + job->units;
    box->live = (int32_t *)(box->noise + job->units);
    box->way = (float *)(box->live + job->widest);
    box->back = box->way + stride;
    box->share = box->back + stride;
    box->passed = 0;
}

/* Multiply a block with the products from a number on, and rectify what follows. */
static void multiply(const boxes_job_t *job, box_t *block, int64_t count, int64_t from) {
    const sc_chain *chain = job->chain;
    const float *panel = chain->column;
    int64_t first = 0;
    for (int64_t k = 0; k < chain->products; k++) {
        int64_t width = chain->width[k + 1], units = chain->width[k];
        for (int64_t c = 0; c < panels_of(width); c++, panel += PANEL * units)
            for (int64_t i = 0; i < count && k >= from; i++)
                (job->bodies ? job->loops->affine4 : job->loops->affine)(
                    block[i].count, block[i].live, block[i].x, panel, block[i].next + PANEL * c,
                    job->widest + PANEL);
        for (int64_t i = 0; i < count && k >= from && k + 1 < chain->products; i++)
            rectify(job, block + i, width, first);
        first += width;
    }
}

static void bound_block(const boxes_job_t *job, int thread, int64_t begin, int64_t end) {
    const sc_chain *chain = job->chain;
    int64_t inputs = chain->width[0], count = end - begin, m = job->boxes->functions;
    int64_t stride = job->widest + PANEL;
    float *memory = job->memory + thread * BOXES * job->each;
    box_t block[BOXES];
    for (int64_t i = 0; i < count; i++) {
        box_t *box = block + i;
        const float *x = job->boxes->inputs + (begin + i) * 3 * inputs;
        float most = 0;
        double square = 0;
        place(job, box, memory + i * job->each);
        box->count = inputs;
        for (int64_t u = 0; u < inputs; u++) {
            double reach = 0;
            for (int r = 0; r < 3; r++) reach += fabsf(box->x[r * stride + u] = x[r * inputs + u]);
            box->x[3 * stride + u] = 0;
            box->live[u] = (int32_t)u;
            square += reach * reach;
            most = MAX(most, fabsf(x[u]));
        }
        box->off = (float)chain->single * most + sum_error(chain->single, square);
    }
    multiply(job, block, count, 0);
    for (int64_t i = 0; i < count; i++) write_outputs(job, block + i, begin + i);
    for (int64_t j = 0; j < m; j++)
        bound_function(job, block, count, j, job->boxes->radius + begin * m + j, m);
}

static int bound_boxes(void *context, int thread, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += BOXES)
        bound_block(context, thread, i, MIN(i + BOXES, end));
    return SC_DONE;
}

/* The sizes of a job, and memory for each thread. numbers: what one box has beside its units. */
static int open_boxes(int64_t threads, boxes_job_t *job, int64_t numbers) {
    const sc_chain *chain = job->chain;
    int64_t rows = 0, columns = 0;
    job->loops = sc_loops();
    for (int64_t k = 0; k <= chain->products; k++) {
        if (chain->width[k] < 1 || chain->width[k] > INT32_MAX / PANEL) return SC_MALFORMED;
        job->widest = MAX(job->widest, chain->width[k]);
        if (k && k < chain->products) job->units += chain->width[k];
        if (k) columns += panels_of(chain->width[k]) * PANEL * chain->width[k - 1];
        if (k > 1 && k < chain->products)
            rows += panels_of(chain->width[k - 1]) * PANEL * chain->width[k];
    }
    if (rows != chain->rows || columns != chain->columns) return SC_MALFORMED;
    job->each = 12 * (job->widest + PANEL) + 2 * job->units + job->widest + numbers;
    job->memory = malloc((size_t)(threads * BOXES * job->each) * sizeof(float));
    return job->memory ? SC_DONE : SC_NO_MEMORY;
}

int sc_bound_boxes(sc_pool *pool, const sc_chain *chain, sc_boxes *boxes) {
    if (!pool || !chain || !boxes || chain->products < 1 || boxes->count < 0 ||
        boxes->functions < 0 ||
        (!chain->functions && boxes->functions != chain->width[chain->products]))
        return SC_MALFORMED;
    boxes_job_t job = {.chain = chain, .boxes = boxes, .ways = 3};
    int status = open_boxes(sc_threads(pool), &job, 0);
    if (!status) status = sc_parallel(pool, boxes->count, BOXES, bound_boxes, &job);
    free(job.memory);
    return status;
}

/* The units of the first layer on a body. What is not affine there, if only by rounding, is noise. */
static void enter(const boxes_job_t *job, box_t *box, const int64_t *corner) {
    int64_t chosen[4], n = job->chain->width[job->start + 1], stride = job->widest + PANEL, first = 0;
    double most[3];
    span(job->bodies->uvw, corner, box->corners, box->share, chosen, most);
    for (int64_t k = 1; k <= job->start; k++) first += job->chain->width[k];
    const double *z[4];
    float *x = box->next, *off = x + 4 * stride;
    for (int r = 0; r < 4; r++) z[r] = job->bodies->z + chosen[r] * n;
    memset(x, 0, 5 * (size_t)stride * sizeof *x);
    for (int64_t u = 0; u < n; u++) x[u] = (float)z[0][u];
    for (int r = 1; r < 4; r++)
        for (int64_t u = 0; u < n; u++)
            x[r * stride + u] = (float)(most[r - 1] * (z[r][u] - z[0][u]));
    for (int64_t u = 0; u < n; u++) {
        float size = fabsf(x[u]) + fabsf(x[stride + u]) + fabsf(x[2 * stride + u]);
        box->back[u] = (float)job->chain->single * (size + fabsf(x[3 * stride + u])) + FLT_MIN;
    }
    for (int64_t i = 0; i < box->corners; i++)
        job->loops->misfit(n, stride, box->share + 3 * i, job->bodies->z + corner[i] * n, x, off);
    memset(box->way, 0, (size_t)stride * sizeof *x); /* no offsets */
    float *slope = box->slope + first, *noise = box->noise + first;
    job->loops->corner_lines(n, stride, box->corners, box->share, box->way, box->back, x, slope,
                             noise);
    memcpy(noise, off, (size_t)n * sizeof *noise);
    list_units(job, box, n, first);
}

/* Whether the only output of a body may vanish on it. */
static int open_on(const boxes_job_t *job, const box_t *box, float moved) {
    int64_t n = job->units, stride = job->widest + PANEL;
    float offset = job->chain->offset[n], low = INFINITY, high = -INFINITY, *x = box->next;
    for (int64_t i = 0; i < box->corners; i++) {
        float value = x[0] + offset;
        for (int r = 0; r < 3; r++) value += box->share[3 * i + r] * x[(r + 1) * stride];
        low = MIN(low, value);
        high = MAX(high, value);
    }
    /* The slopes backwards round by less than the same share of the radius forwards. */
    double radius = UPWARDS * moved + (UPWARDS - 1) * x[4 * stride] + job->chain->rounded[n];
    radius += box->off * job->chain->norm[n] + job->bodies->margin;
    return !(low > radius || high < -radius);
}

static int bound_bodies(void *context, int thread, int64_t begin, int64_t end) {
    const boxes_job_t *job = context;
    const sc_bodies *bodies = job->bodies;
    box_t block[BOXES];
    int64_t cell[BOXES], count = 0;
    for (int64_t i = begin; i < end; i++) {
        if (bodies->open[i]) {
            box_t *box = block + count;
            place(job, box, job->memory + (thread * BOXES + count) * job->each);
            box->corners = bodies->offset[i + 1] - bodies->offset[i];
            enter(job, box, bodies->corner + bodies->offset[i]);
            cell[count++] = i;
        }
        if (!count || (count < BOXES && i + 1 < end)) continue;
        float moved[BOXES];
        multiply(job, block, count, job->start + 1);
        bound_function(job, block, count, 0, moved, 1);
        for (int64_t k = 0; k < count; k++)
            bodies->open[cell[k]] = (uint8_t)open_on(job, block + k, moved[k]);
        count = 0;
    }
    return SC_DONE;
}

static int fits(const sc_chain *chain, const sc_bodies *bodies) {
    return chain && bodies && chain->products >= 2 && bodies->layer >= 0 &&
           bodies->layer + 1 < chain->products && chain->functions &&
           chain->width[chain->products] == 1 && bodies->units == chain->width[bodies->layer + 1];
}

/* The most corners of a body. */
static int64_t most_corners(const sc_bodies *bodies) {
    int64_t most = 0;
    for (int64_t i = 0; i < bodies->cells; i++)
        most = MAX(most, bodies->offset[i + 1] - bodies->offset[i]);
    return most;
}

int sc_bound_bodies(sc_pool *pool, const sc_chain *chain, const sc_bodies *bodies) {
    if (!pool || !fits(chain, bodies)) return SC_MALFORMED;
    for (int64_t i = 0; i < bodies->cells; i++) {
        if (bodies->offset[i + 1] <= bodies->offset[i] || bodies->offset[i] < 0) return SC_MALFORMED;
        for (int64_t k = bodies->offset[i]; k < bodies->offset[i + 1]; k++)
            if ((uint64_t)bodies->corner[k] >= (uint64_t)bodies->vertices) return SC_MALFORMED;
    }
    boxes_job_t job = {.chain = chain, .bodies = bodies, .ways = 4, .start = bodies->layer};
    int status = open_boxes(sc_threads(pool), &job, 3 * most_corners(bodies));
    if (!status) status = sc_parallel(pool, bodies->cells, 4 * BOXES, bound_bodies, &job);
    free(job.memory);
    return status;
}

struct sc_bounds {
    boxes_job_t job;
    int64_t corners;
};

int sc_bounds_new(const sc_chain *chain, const sc_bodies *bodies, sc_bounds **made) {
    *made = NULL;
    if (!fits(chain, bodies)) return SC_MALFORMED;
    sc_bounds *bounds = *made = calloc(1, sizeof *bounds);
    if (!bounds) return SC_NO_MEMORY;
    bounds->job = (boxes_job_t){.chain = chain, .ways = 4, .start = bodies->layer};
    return open_boxes(1, &bounds->job, 0);
}

int sc_bound_some(sc_bounds *bounds, const sc_bodies *bodies) {
    boxes_job_t *job = &bounds->job;
    int64_t most = most_corners(bodies);
    if (most > bounds->corners) {
        job->each += 3 * (2 * most - bounds->corners);
        bounds->corners = 2 * most;
        float *memory = realloc(job->memory, (size_t)(BOXES * job->each) * sizeof(float));
        if (!memory) return SC_NO_MEMORY;
        job->memory = memory;
    }
    job->bodies = bodies;
    return bound_bodies(job, 0, 0, bodies->cells);
}

void sc_bounds_free(sc_bounds *bounds) {
    if (bounds) free(bounds->job.memory);
    free(bounds);
}
