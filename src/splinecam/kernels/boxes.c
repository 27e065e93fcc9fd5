/* Bounds of a chain of products and ReLUs over boxes of its plane; see engine/box_bounds.py. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

enum { BOXES = 64 }; /* that are carried through a product together, while its panel is cached */

typedef struct {
    const sc_chain *chain;
    sc_boxes *boxes;
    const loops_t *loops;
    int64_t widest, units; /* the most units of a layer, and all units */
    float *memory;         /* of all threads */
    int64_t each;          /* numbers of one thread */
} boxes_job_t;

/* One box on its way: the four numbers of each unit (at the centre, to the right, upwards, and the
 * radius) that is not off; those of the layer that is being computed, (4, widest + PANEL); and what
 * is known of each layer. */
typedef struct {
    float *x, *next;
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

/* Replace the units of a layer by lines; first: the number of its first unit. */
static void rectify(const boxes_job_t *job, box_t *box, int64_t width, int64_t first) {
    const sc_chain *chain = job->chain;
    const float *rounded = chain->rounded + first, *norm = chain->norm + first;
    int64_t count = 0, stride = job->widest + PANEL;
    float *slope = box->slope + first, *noise = box->noise + first;
    float *x = box->next, *rounding = box->back;
    float off = 0, passed = 0, *to = box->x;
    double square = 0;
    for (int64_t u = 0; u < width; u++) rounding[u] = rounded[u] + box->off * norm[u];
    job->loops->lines(width, stride, chain->offset + first, rounding, x, slope, noise);
    for (int64_t u = 0; u < width; u++) {
        if (slope[u] == 0) continue;
        for (int k = 0; k < 4; k++) to[k] = x[k * stride + u];
        double reach = fabsf(to[0]) + fabsf(to[1]) + fabsf(to[2]) + to[3];
        square += reach * reach;
        off = MAX(off, rounding[u]);
        passed += noise[u] > 0;
        box->live[count++] = (int32_t)u;
        to += 4;
    }
    box->off = off + sum_error(chain->single, square);
    box->count = count;
    box->passed += passed;
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
    for (int64_t u = 0; u < width; u++) {
        float way = box->way[u];
        box->moved += fabsf(way) * noise[u];
        box->live[count] = (int32_t)u;
        box->way[count] = way * slope[u];
        count += slope[u] != 0;
    }
    box->count = count;
}

/* Bound a function of the outputs of some boxes, backwards from the last layer. */
static void bound_function(const boxes_job_t *job, box_t *block, int64_t count, int64_t begin,
                           int64_t function) {
    const sc_chain *chain = job->chain;
    int64_t m = job->boxes->functions, last = job->units, some = 0;
    float *radius = job->boxes->radius + begin * m + function;
    const float *panel = chain->row + chain->rows;
    box_t *open[BOXES];
    for (int64_t i = 0; i < count; i++)
        if (set_out(job, block + i, function, radius + i * m)) open[some++] = block + i;
    for (int64_t k = chain->products - 1; k > 0 && some; k--) {
        int64_t width = chain->width[k], before = chain->width[k - 1];
        last -= width;
        for (int64_t i = 0; i < some; i++) add_noise(open[i], width, last);
        if (k == 1) break;
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

static void bound_block(const boxes_job_t *job, int thread, int64_t begin, int64_t end) {
    const sc_chain *chain = job->chain;
    int64_t inputs = chain->width[0], count = end - begin, first = 0;
    const float *panel = chain->column;
    float *memory = job->memory + thread * job->each;
    box_t block[BOXES];
    for (int64_t i = 0; i < count; i++) {
        box_t *box = block + i;
        const float *x = job->boxes->inputs + (begin + i) * 3 * inputs;
        float most = 0;
        double square = 0;
        box->x = memory;
        box->next = box->x + 4 * (job->widest + PANEL);
        box->slope = box->next + 4 * (job->widest + PANEL);
        box->noise = box->slope + job->units;
        box->live = (int32_t *)(box->noise + job->units);
        box->way = (float *)(box->live + job->widest);
        box->back = box->way + job->widest + PANEL;
        memory = box->back + job->widest + PANEL;
        box->passed = 0;
        box->count = inputs;
        for (int64_t u = 0; u < inputs; u++) {
            double reach = 0;
            for (int r = 0; r < 3; r++) reach += fabsf(box->x[4 * u + r] = x[r * inputs + u]);
            box->x[4 * u + 3] = 0;
            box->live[u] = (int32_t)u;
            square += reach * reach;
            most = MAX(most, fabsf(x[u]));
        }
        box->off = (float)chain->single * most + sum_error(chain->single, square);
    }
    for (int64_t k = 0; k < chain->products; k++) {
        int64_t width = chain->width[k + 1], units = chain->width[k];
        for (int64_t c = 0; c < panels_of(width); c++, panel += PANEL * units)
            for (int64_t i = 0; i < count; i++)
                job->loops->affine(block[i].count, block[i].live, block[i].x, panel,
                                   block[i].next + PANEL * c, job->widest + PANEL);
        for (int64_t i = 0; i < count; i++) {
            if (k + 1 < chain->products)
                rectify(job, block + i, width, first);
            else
                write_outputs(job, block + i, begin + i);
        }
        first += width;
    }
    for (int64_t j = 0; j < job->boxes->functions; j++)
        bound_function(job, block, count, begin, j);
}

static int bound_boxes(void *context, int thread, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += BOXES)
        bound_block(context, thread, i, MIN(i + BOXES, end));
    return SC_DONE;
}

int sc_bound_boxes(sc_pool *pool, const sc_chain *chain, sc_boxes *boxes) {
    if (!pool || !chain || !boxes || chain->products < 1 || boxes->count < 0 ||
        boxes->functions < 0)
        return SC_MALFORMED;
    boxes_job_t job = {.chain = chain, .boxes = boxes, .loops = sc_loops()};
    int64_t rows = 0, columns = 0;
    for (int64_t k = 0; k <= chain->products; k++) {
        if (chain->width[k] < 1 || chain->width[k] > INT32_MAX / PANEL) return SC_MALFORMED;
        job.widest = MAX(job.widest, chain->width[k]);
        if (k && k < chain->products) job.units += chain->width[k];
        if (k) columns += panels_of(chain->width[k]) * PANEL * chain->width[k - 1];
        if (k > 1 && k < chain->products)
            rows += panels_of(chain->width[k - 1]) * PANEL * chain->width[k];
    }
    if (rows != chain->rows || columns != chain->columns ||
        (!chain->functions && boxes->functions != chain->width[chain->products]))
        return SC_MALFORMED;
    job.each = BOXES * (10 * (job.widest + PANEL) + 2 * job.units + job.widest);
    job.memory = malloc((size_t)sc_threads(pool) * (size_t)job.each * sizeof(float));
    if (!job.memory) return SC_NO_MEMORY;
    int status = sc_parallel(pool, boxes->count, BOXES, bound_boxes, &job);
    free(job.memory);
    return status;
}
