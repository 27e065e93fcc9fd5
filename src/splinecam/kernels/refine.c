/* Cut the faces of a planar subdivision along the zero sets of functions in general position.
 *
 * 1. Edges (edges.c):   there is a new vertex where a function changes sign along an edge.
 * 2. Chords (chords.c): on a convex face each function that changes sign does so on two edges; its
 *                       zero set is the chord between the two new vertices. Chords with interleaved
 *                       ends cross.
 * 3. Faces (faces.c):   walks along boundaries and pieces of chords give the new faces.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small the
 * status is SC_DEGENERATE, and the caller uses its robust method.
 */
#include "refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_PART = 2048, PARTS = 16 }; /* of a loop that threads share */

static int parallel(run_t *run, int64_t count, sc_work *work) {
    return sc_parallel(run->pool, count, MAX((count + PARTS - 1) / PARTS, MIN_PART), work, run);
}

/* Check that the sizes and indices of a mesh fit together. */
static int fits(const sc_mesh *mesh, const sc_layer *layer) {
    if (mesh->vertices < 0 || mesh->edges < 0 || mesh->faces < 0 || mesh->corners < 0 ||
        layer->units < 0 || layer->units > INT32_MAX)
        return 0;
    if (mesh->width != 2 && mesh->width != 3) return 0;
    if (mesh->offset[0] != 0 || mesh->offset[mesh->faces] != mesh->corners) return 0;
    for (int64_t i = 0; i < mesh->faces; i++)
        if (mesh->offset[i + 1] - mesh->offset[i] < 3 || mesh->offset[i + 1] > mesh->corners)
            return 0;
    uint64_t halves = 2 * (uint64_t)mesh->edges, wrong = 0;
    for (int64_t c = 0; c < mesh->corners; c++) wrong |= (uint64_t)mesh->corner[c] >= halves;
    return !wrong;
}

/* Mark the edges of faces that are not settled. */
static int find_divisible(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    if (!(run->divisible = calloc((size_t)mesh->edges + 1, 1))) return SC_NO_MEMORY;
    for (int64_t i = 0; i < mesh->faces; i++)
        for (int64_t c = mesh->offset[i]; c < mesh->offset[i + 1] && !sc_settled(run, i); c++)
            run->divisible[mesh->corner[c] >> 1] = 1;
    for (int64_t e = 0; e < mesh->edges && run->layer->place; e++) {
        uint64_t a = (uint64_t)mesh->edge[2 * e], b = (uint64_t)mesh->edge[2 * e + 1];
        if (a >= (uint64_t)mesh->vertices || b >= (uint64_t)mesh->vertices ||
            (run->divisible[e] && (sc_row(run, (int64_t)a) < 0 || sc_row(run, (int64_t)b) < 0)))
            return SC_MALFORMED;
    }
    return SC_DONE;
}

/* Find the points of all edges. */
static int find_points(run_t *run) {
    int64_t edges = run->mesh->edges, width = run->mesh->width;
    run->first = malloc((size_t)(edges + 1) * 8);
    if (!run->first) return SC_NO_MEMORY;
    run->first[0] = 0;
    int status = run->layer->settled ? find_divisible(run) : SC_DONE;
    if (!status) status = parallel(run, edges, sc_count_changes);
    if (status) return status;
    for (int64_t e = 0; e < edges; e++) run->first[e + 1] += run->first[e];
    int64_t points = run->points = run->first[edges];
    if (!points) return SC_UNCHANGED;
    run->t = malloc((size_t)(points * (5 + width)) * 8);
    if (!run->t) return SC_NO_MEMORY;
    run->slope_change = run->t + points;
    run->position_error = run->slope_change + points;
    run->point_uv = run->position_error + 2 * points;
    run->unit = (int32_t *)(run->point_uv + points * width);
    return parallel(run, edges, sc_find_points);
}

/* Decide which faces are cut and which are kept, and count what comes before each cut one. */
static int plan_faces(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    int64_t faces = mesh->faces, *sums = malloc((size_t)(5 * (faces + 1)) * sizeof *sums);
    run->cut = sums;
    run->face_chords = malloc((size_t)(2 * faces + 1) * sizeof *run->face_chords);
    if (!sums || !run->face_chords) return SC_NO_MEMORY;
    run->face_crossings = run->face_chords + faces;
    int status = parallel(run, faces, sc_count_crossings);
    if (status) return status;
    int64_t *chords = run->chords_before = sums + 2 * (faces + 1), count = 0;
    int64_t *crossings = run->crossings_before = sums + 3 * (faces + 1);
    int64_t *halves = run->halves_before = sums + 4 * (faces + 1);
    run->kept = sums + faces + 1;
    chords[0] = crossings[0] = halves[0] = 0;
    for (int64_t i = 0; i < faces; i++) {
        int64_t n = run->face_chords[i], x = run->face_crossings[i];
        int64_t size = mesh->offset[i + 1] - mesh->offset[i];
        if (n == 0) {
            run->kept[run->kept_count++] = i;
            continue;
        }
        run->cut[count] = i;
        chords[count + 1] = chords[count] + n;
        crossings[count + 1] = crossings[count] + x;
        halves[count + 1] = halves[count] + size + 4 * (n + x);
        run->max_boundary = MAX(run->max_boundary, size + 2 * n);
        count++;
    }
    run->cut_count = count;
    return SC_DONE;
}

/* How many half-edges a face without chords has in the result. */
static int64_t kept_size(const run_t *run, int64_t face) {
    const sc_mesh *mesh = run->mesh;
    int64_t size = mesh->offset[face + 1] - mesh->offset[face];
    for (int64_t c = mesh->offset[face]; c < mesh->offset[face + 1] && sc_settled(run, face); c++) {
        int64_t e = mesh->corner[c] >> 1;
        size += run->first[e + 1] - run->first[e];
    }
    return size;
}

/* Allocate the result: one block for the subdivision, and one for its history. */
static int allocate(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    int64_t points = made->points = run->points, cut = run->cut_count;
    int64_t chords = made->chords = run->chords_before[cut];
    int64_t crossings = made->crossings = run->crossings_before[cut];
    int64_t max_faces = run->settings->max_faces, from = run->settings->breakpoints_from;
    made->vertices = mesh->vertices + points + crossings;
    made->edges = mesh->edges + points + chords + 2 * crossings;
    made->faces = run->kept_count + cut + chords + crossings;
    made->has_breakpoints = from >= 0 && points + crossings >= from;
    if (max_faces >= 0 && made->faces > max_faces) return SC_TOO_MANY_FACES;
    made->corners = run->halves_before[cut];
    for (int64_t i = 0; i < run->kept_count; i++) made->corners += kept_size(run, run->kept[i]);
    struct { void *array; int64_t count; } arrays[] = { /* all entries have eight bytes */
        {&made->uv, made->vertices * mesh->width}, {&made->edge, 2 * made->edges},
        {&made->offset, made->faces + 1}, {&made->corner, made->corners},
        {&made->edge_layer, made->edges}, {&made->edge_unit, made->edges},
        {&made->vertex_layer, made->vertices},
        /* The history begins here. */
        {&made->point_first, mesh->edges + 1}, {&made->point_edge, points},
        {&made->point_start, points}, {&made->point_end, points}, {&made->point_unit, points},
        {&made->point_index, points}, {&made->point_t, points}, {&made->point_slope_change, points},
        {&made->cross_start, crossings}, {&made->cross_end, crossings},
        {&made->cross_chord, crossings}, {&made->cross_slot, crossings},
        {&made->cross_t, crossings}, {&made->slot_first, chords + 1},
        {&made->slot_unit, 2 * crossings}, {&made->slot_t, 2 * crossings},
        {&made->slot_slope_change, 2 * crossings},
    };
    int count = sizeof arrays / sizeof *arrays, in_mesh = 7;
    int64_t sizes[2] = {0, 0};
    for (int i = 0; i < count; i++) sizes[i >= in_mesh] += 8 * arrays[i].count;
    char *at[2] = {made->block = malloc((size_t)sizes[0]),
                   made->history = malloc((size_t)sizes[1])};
    if (!at[0] || !at[1]) return SC_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        memcpy(arrays[i].array, &at[i >= in_mesh], sizeof(void *));
        at[i >= in_mesh] += 8 * arrays[i].count;
    }
    int64_t faces = cut + chords + crossings, ends = 2 * (faces + chords + crossings);
    run->sizes = malloc((size_t)(ends + run->halves_before[cut]) * 8);
    if (!run->sizes) return SC_NO_MEMORY;
    run->starts = run->sizes + faces;
    run->chord_start = run->starts + faces;
    run->chord_end = run->chord_start + chords;
    run->slot_chord = run->chord_end + chords;
    run->halves = run->slot_chord + 2 * crossings;
    return SC_DONE;
}

/* Copy the half-edges of kept faces and of new ones to their places. */
static int copy_faces(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = made->offset[i], size = made->offset[i + 1] - at;
        int64_t old = i < run->kept_count ? run->kept[i] : -1;
        if (old >= 0 && sc_settled(run, old)) {
            for (int64_t c = mesh->offset[old]; c < mesh->offset[old + 1]; c++) {
                int64_t half = mesh->corner[c], *first = run->first + (half >> 1);
                for (int64_t k = 0; k <= first[1] - first[0]; k++)
                    made->corner[at++] = sc_half(run, half, k);
            }
            continue;
        }
        const int64_t *source = old >= 0 ? mesh->corner + mesh->offset[old]
                                         : run->halves + run->starts[i - run->kept_count];
        for (int64_t k = 0; k < size; k++) made->corner[at + k] = source[k];
    }
    return SC_DONE;
}

/* Write the refined subdivision, except for the chords, which are written already. */
static int write_mesh(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    int64_t edges = mesh->edges, points = run->points, width = mesh->width;
    made->offset[0] = 0;
    for (int64_t i = 0; i < made->faces; i++) {
        int64_t old = i < run->kept_count ? run->kept[i] : -1;
        int64_t size = old >= 0 ? kept_size(run, old) : run->sizes[i - run->kept_count];
        made->offset[i + 1] = made->offset[i] + size;
    }
    memcpy(made->uv, mesh->uv, (size_t)(mesh->vertices * width) * 8);
    memcpy(made->uv + mesh->vertices * width, run->point_uv, (size_t)(points * width) * 8);
    memcpy(made->vertex_layer, mesh->vertex_layer, (size_t)mesh->vertices * 8);
    int64_t layer = run->settings->layer;
    for (int64_t i = mesh->vertices; i < made->vertices; i++) made->vertex_layer[i] = layer;
    for (int64_t e = edges + points; e < made->edges; e++) made->edge_layer[e] = layer;
    memcpy(made->point_t, run->t, (size_t)points * 8);
    memcpy(made->point_slope_change, run->slope_change, (size_t)points * 8);
    made->point_first[edges] = points;
    made->slot_first[made->chords] = 2 * made->crossings;
    int status = parallel(run, edges, sc_divide_edges);
    if (!status) status = parallel(run, made->faces, copy_faces);
    uint8_t *settled = run->layer->settled;
    for (int64_t i = 0; settled && i < mesh->faces; i++) /* kept[i] is not before i */
        settled[i] = i < run->kept_count ? settled[run->kept[i]] : 0;
    return status;
}

/* Find by how much the slopes of results change along chords, at each slot. */
static int find_slope_changes(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_layer *layer = run->layer;
    sc_refined *made = run->made;
    int64_t n = layer->units;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = made->slot_first[i]; k < made->slot_first[i + 1]; k++) {
            int64_t unit = run->unit[run->chord_start[run->slot_chord[k]]];
            double s = made->slot_t[k];
            /* The slope of the other function is most precise from the farther end of the chord. */
            int64_t g = s > 0.5 ? run->chord_start[i] : run->chord_end[i];
            double p = layer->z[sc_row(run, made->point_start[g]) * n + unit];
            double q = layer->z[sc_row(run, made->point_end[g]) * n + unit];
            double slope = fabs(p + run->t[g] * (q - p)) / MAX(s, 1 - s);
            if (layer->slope_difference) slope *= layer->slope_difference[unit];
            made->slot_unit[k] = unit;
            made->slot_slope_change[k] = slope;
        }
    return SC_DONE;
}

static int refine(run_t *run) {
    sc_refined *made = run->made;
    if (!fits(run->mesh, run->layer)) return SC_MALFORMED;
    int status = find_points(run);
    if (!status) status = plan_faces(run);
    if (!status) status = allocate(run);
    if (!status) status = parallel(run, run->cut_count, sc_cut_faces);
    if (!status) status = write_mesh(run);
    if (status || !made->has_breakpoints) return status;
    for (int64_t e = 0; e < run->mesh->edges; e++) {
        int64_t count = run->first[e + 1] - run->first[e];
        made->edge_terms += count * count;
    }
    for (int64_t x = 0; x < made->crossings; x++) {
        int64_t chord = made->cross_chord[x];
        made->inside_terms += made->slot_first[chord + 1] - made->slot_first[chord];
    }
    return parallel(run, made->chords, find_slope_changes);
}

int sc_refine(sc_pool *pool, const sc_mesh *mesh, const sc_layer *layer,
              const sc_settings *settings, sc_refined *refined) {
    if (!pool || !mesh || !layer || !settings || !refined) return SC_MALFORMED;
    memset(refined, 0, sizeof *refined);
    run_t run = {.pool = pool, .mesh = mesh, .layer = layer, .settings = settings};
    run.made = refined;
    run.words = (layer->units + 63) / 64;
    int status = refine(&run);
    void *arrays[] = {run.first, run.t, run.face_chords, run.cut, run.sizes, run.divisible};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    if (status != SC_DONE) {
        free(refined->block);
        free(refined->history);
        memset(refined, 0, sizeof *refined);
    }
    return status;
}

void sc_free(void *block) { free(block); }
