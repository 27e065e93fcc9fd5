/* A walk over the faces of a partition, which knows the affine maps of all layers on each face.
 *
 * From a face to its neighbour a single unit bends, as a rule. Each later layer then changes by a
 * product of one column, with a number for each of its units, and of the affine function that the
 * unit is, with three numbers. This costs one row through each later factor.
 *
 * Derivatives come about on the same way. `pull` adds up the weights of the maps on the faces so
 * far. A change counts on all faces after it: its weights are those of the whole walk, less those
 * so far. The second part goes back to the factors at the change. The first is that of maps which
 * never changed, so that it goes back from layer to layer once, at the end.
 */
#include "walk_steps.h"

#include <stdlib.h>

#include "loops.h"
#include "overlay.h"

/* Faces that a thread walks over at least; the most parts, and the most derivatives of all. */
enum { PART = 4096, MOST_PARTS = 16, MOST_DERIVATIVES = 1 << 24 };

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void walk_avx2(walker_t *w, int64_t i, int64_t j) {
    walk_over(w, i, j);
}
__attribute__((target("avx512f,avx512dq,avx2,fma"))) static void walk_avx512(walker_t *w,
                                                                             int64_t i, int64_t j) {
    walk_over(w, i, j);
}
#endif

static void walk_plainly(walker_t *w, int64_t i, int64_t j) { walk_over(w, i, j); }

/* The first place in a block at which whole registers are read fastest. */
static double *aligned(double *block) {
    return block + (-(uintptr_t)block / sizeof *block & (LANES - 1));
}

static int64_t rounded_up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static int walk_part(const walk_t *walk, int64_t part) {
    size_t n = (size_t)walk->units, rows = (size_t)walk->rows;
    walker_t w = {.walk = walk};
    size_t layers = (size_t)walk->chain->layers, queued = 3 * QUEUE * rows;
    double *block = calloc(17 * rows + layers * queued + LANES, sizeof *block);
    w.piece = calloc(3 * n + 1, sizeof *w.piece);
    w.queue = calloc(layers, sizeof *w.queue);
    if (!block || !w.piece || !w.queue) {
        free(block);
        free(w.piece);
        free(w.queue);
        return SC_NO_MEMORY;
    }
    w.z = aligned(block), w.pull = w.z + 3 * rows, w.column = w.pull + 3 * rows;
    w.output = w.column + rows, w.map = w.output + 3 * rows, w.slope = w.map + 3 * rows;
    w.constant = w.slope + rows;
    w.lower = w.constant + rows, w.upper = w.lower + rows;
    w.found = w.piece + n, w.active = w.found + n;
    for (size_t k = 0; k < layers; k++) {
        w.queue[k].slope = w.upper + rows + k * queued;
        w.queue[k].bent = w.queue[k].slope + QUEUE * rows;
        w.queue[k].back = w.queue[k].bent + QUEUE * rows;
    }
    if (walk->derivatives) {
        w.factor = aligned(walk->derivatives) + part * walk->numbers;
        w.offset = w.factor + walk->factors;
    }
    int64_t faces = walk->mesh->faces, taped = walk->weights->taped / walk->parts;
    if (walk->weights->tape && taped) {
        w.tape = walk->weights->tape + part * taped, w.end = w.tape + taped;
        w.writes = !!walk->weights->maps, w.reads = !w.writes;
    }
    int64_t begin = faces * part / walk->parts, stop = faces * (part + 1) / walk->parts;
    void (*run)(walker_t *, int64_t, int64_t) = walk_plainly;
#if defined(__x86_64__) /* what loops.c found: larger tiles go with larger registers */
    int64_t tile = sc_loops()->tile_rows;
    if (tile > 4) run = tile > 6 ? walk_avx512 : walk_avx2;
#endif
    run(&w, begin, stop);
    free(block);
    free(w.piece);
    free(w.queue);
    return SC_DONE;
}

static int walk_parts(void *context, int thread, int64_t begin, int64_t stop) {
    int status = SC_DONE;
    for (int64_t part = begin; part < stop && !status; part++) status = walk_part(context, part);
    return status;
}

/* The face beyond a side of a face, the layer of the line between, and the side below in a pile. */
typedef struct {
    int32_t face, layer, below;
} side_t;

/* Find the sides of all faces, corner after corner. */
static int find_sides(const sc_mesh *mesh, side_t *sides) {
    int32_t *left = malloc((size_t)mesh->edges * 2 * sizeof *left);
    if (!left) return SC_NO_MEMORY;
    memset(left, -1, (size_t)mesh->edges * 2 * sizeof *left);
    for (int64_t f = 0; f < mesh->faces; f++)
        for (int64_t c = mesh->offset[f]; c < mesh->offset[f + 1]; c++)
            left[mesh->corner[c]] = (int32_t)f;
    for (int64_t c = 0; c < mesh->corners; c++) {
        int64_t half = mesh->corner[c];
        sides[c] = (side_t){left[half ^ 1], (int32_t)MAX(mesh->edge_layer[half >> 1], 0), -1};
    }
    free(left);
    return SC_DONE;
}

int sc_order_faces(sc_pool *pool, const sc_mesh *mesh, int64_t layers, int64_t *order) {
    if (!pool || !mesh || !order || layers < 1 || !sc_fits(mesh)) return SC_MALFORMED;
    for (int64_t e = 0; e < mesh->edges; e++)
        if (mesh->edge_layer[e] >= layers) return SC_MALFORMED;
    int64_t faces = mesh->faces, *crossed = order + faces, count = 0;
    side_t *sides = malloc((size_t)mesh->corners * sizeof *sides);
    int64_t *top = malloc((size_t)layers * sizeof *top); /* of a pile of sides for each layer */
    uint8_t *seen = calloc((size_t)faces, 1);
    int status = sides && top && seen ? find_sides(mesh, sides) : SC_NO_MEMORY;
    for (int64_t k = 0; k < layers && !status; k++) top[k] = -1;
    for (int64_t start = 0; start < faces && !status; start++) {
        int64_t next = start, layer = 0;
        while (next >= 0 && !seen[next]) {
            seen[next] = 1;
            order[count] = next;
            crossed[count++] = layer;
            for (int64_t c = mesh->offset[next]; c < mesh->offset[next + 1]; c++) {
                if (sides[c].face < 0 || seen[sides[c].face]) continue;
                sides[c].below = (int32_t)top[sides[c].layer];
                top[sides[c].layer] = c;
                __builtin_prefetch(sides + mesh->offset[sides[c].face]);
            }
            next = -1;
            for (layer = layers - 1; layer >= 0 && next < 0; layer -= next < 0)
                while (top[layer] >= 0 && next < 0) {
                    const side_t *own = sides + top[layer];
                    if (!seen[own->face]) next = own->face;
                    top[layer] = own->below;
                }
        }
    }
    free(sides);
    free(top);
    free(seen);
    return status;
}

/* The places of the products, and the last that counts. */
static void lay_out(walk_t *walk) {
    const int64_t *width = walk->chain->width, layers = walk->chain->layers;
    const sc_weights *given = walk->weights;
    for (int64_t m = 0; m <= layers; m++) {
        walk->first[m] = walk->rows;
        walk->before[m] = walk->factors;
        walk->rows += width[m + 1];
        walk->factors += width[m] * width[m + 1];
    }
    walk->units = walk->rows - width[layers + 1];
    walk->numbers = rounded_up(walk->factors + walk->rows);
    walk->rows = rounded_up(walk->rows);
    walk->last = layers - 1;
    walk->looks = given->output || given->map || given->maps ? layers : layers - 1;
    int64_t most = MIN(MOST_PARTS, MOST_DERIVATIVES / walk->numbers);
    walk->parts = MAX(MIN(walk->mesh->faces / PART, most), 1);
}

static int fits(const sc_mesh *mesh, const sc_bends *chain, const sc_weights *given) {
    if (!mesh || !chain || !given || !given->order || !sc_fits(mesh)) return 0;
    if (chain->layers < 1 || chain->knots < 0) return 0;
    for (int64_t m = 0; m < chain->layers + 2; m++)
        if (chain->width[m] < 1) return 0;
    for (int64_t f = 0; f < mesh->faces; f++)
        if (given->order[f] < 0 || given->order[f] >= mesh->faces ||
            given->order[mesh->faces + f] < 0)
            return 0;
    for (int64_t v = 0; v < mesh->vertices && given->corner; v++)
        if (given->corner[v] < 0 || given->corner[v] >= mesh->corners) return 0;
    for (int64_t e = 0; e < mesh->edges; e++) {
        int64_t layer = mesh->edge_layer[e], unit = mesh->edge_unit[e];
        if (layer >= chain->layers || (layer >= 0 && (unit < 0 || unit >= chain->width[layer + 1])))
            return 0;
    }
    return 1;
}

int sc_walk(sc_pool *pool, const sc_mesh *mesh, const sc_bends *chain, const sc_weights *given) {
    if (!pool || !fits(mesh, chain, given)) return SC_MALFORMED;
    walk_t walk = {.mesh = mesh, .chain = chain, .weights = given};
    size_t products = (size_t)chain->layers + 1;
    int64_t *block = calloc(2 * products * sizeof *block + (size_t)mesh->corners, 1);
    if (!block) return SC_NO_MEMORY;
    walk.first = block, walk.before = block + products;
    walk.moves = (uint8_t *)(walk.before + products);
    lay_out(&walk);
    for (int64_t v = 0; v < mesh->vertices && given->corner; v++)
        walk.moves[given->corner[v]] = 1;
    size_t size = (size_t)(walk.parts * walk.numbers + LANES);
    if (given->factor) walk.derivatives = calloc(size, sizeof *walk.derivatives);
    int status = given->factor && !walk.derivatives ? SC_NO_MEMORY : SC_DONE;
    if (!status) status = sc_parallel(pool, walk.parts, 1, walk_parts, &walk);
    int64_t offsets = walk.units + chain->width[chain->layers + 1];
    for (int64_t part = 0; part < walk.parts && !status && given->factor; part++) {
        const double *own = aligned(walk.derivatives) + part * walk.numbers;
        for (int64_t i = 0; i < walk.factors; i++) given->factor[i] += own[i];
        for (int64_t i = 0; i < offsets; i++) given->offset[i] += own[walk.factors + i];
    }
    free(walk.derivatives);
    free(block);
    return status;
}

int sc_widest_corners(sc_pool *pool, const sc_mesh *mesh, int64_t *corner, double *sine) {
    if (!pool || !mesh || !corner || !sine || !sc_fits(mesh)) return SC_MALFORMED;
    typedef struct {
        double size, lengths; /* of the triangle, and the product of the squares of its sides */
        int64_t corner;
    } widest_t;
    widest_t *widest = malloc((size_t)mesh->vertices * sizeof *widest);
    if (!widest) return SC_NO_MEMORY;
    for (int64_t v = 0; v < mesh->vertices; v++) widest[v] = (widest_t){-INFINITY, 1, 0};
    for (int64_t f = 0; f < mesh->faces; f++) {
        int64_t begin = mesh->offset[f], stop = mesh->offset[f + 1];
        int64_t own = mesh->edge[mesh->corner[begin]];
        const double *at = mesh->uv + mesh->width * own;
        const double *last = mesh->uv + mesh->width * mesh->edge[mesh->corner[stop - 1]];
        double p = last[0] - at[0], q = last[1] - at[1], back = p * p + q * q;
        for (int64_t h = begin; h < stop; h++) {
            int64_t after = mesh->edge[mesh->corner[h + 1 < stop ? h + 1 : begin]];
            int64_t later = sc_vertex_ahead(mesh, h);
            __builtin_prefetch(mesh->uv + mesh->width * later);
            __builtin_prefetch(widest + later);
            const double *next = mesh->uv + mesh->width * after;
            double x = next[0] - at[0], y = next[1] - at[1], ahead = x * x + y * y;
            if (x * q - y * p > widest[own].size)
                widest[own] = (widest_t){x * q - y * p, ahead * back, h};
            own = after, at = next, p = -x, q = -y, back = ahead;
        }
    }
    for (int64_t v = 0; v < mesh->vertices; v++) {
        corner[v] = widest[v].corner;
        sine[v] = widest[v].size / sqrt(widest[v].lengths);
    }
    free(widest);
    return SC_DONE;
}
