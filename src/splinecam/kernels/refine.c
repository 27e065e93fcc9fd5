/* Cut the faces of a planar subdivision along the zero sets of functions, where nothing is close.
 *
 * 1. Edges:  where a function changes sign along an edge there is a new vertex.
 * 2. Chords: on a convex face each function that changes sign does so on two edges; its zero set
 *            is the chord between the two new vertices.
 * 3. Faces:  chords with interleaved ends cross; the pieces of boundary and chords are walked
 *            around into new faces, one for each chord and each crossing besides the first.
 *
 * Every decision is made with a margin that covers rounding. Where the margin is too small the
 * status is SC_DELICATE and the caller uses its robust method.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "pool.h"

enum { PART = 2048, PARTS = 16, SHORT = 24 };

typedef struct {
    sc_pool *pool;
    const sc_mesh *mesh;
    const sc_layer *layer;
    const sc_settings *settings;
    sc_refined *made;
    int64_t words;
    /* Per new vertex on an edge, in order along each edge. */
    int64_t *first; /* (edges + 1) */
    int32_t *unit;
    double *t, *bend, *place, *blur; /* blur: how far rounding may shift the vertex, (points, 2) */
    /* Per face: its chords and crossings. */
    int32_t *face_chords, *face_crossings;
    /* Faces with chords, and per such face the chords, crossings and half-edges before it. */
    int64_t touched_faces, kept_faces;
    int64_t *touched, *kept, *before, *passed, *begins;
    int64_t most_size; /* half-edges of the largest divided boundary */
    /* Per new face its half-edges in `halves`. */
    int64_t *sizes, *starts, *halves;
    int64_t *chord_start, *chord_end; /* new vertices on edges, (chords) */
    int64_t *slot_chord;              /* the other chord at each slot */
} run_t;

static int64_t part_of(int64_t count) { return MAX((count + PARTS - 1) / PARTS, PART); }

static int64_t total_of(const int64_t *first, int64_t count) { return first[count]; }

/* -- edges ---------------------------------------------------------------------------------- */

static int count_changes(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const int64_t *edge = run->mesh->edge;
    int64_t words = run->words, vertices = run->mesh->vertices;
    (void)thread;
    for (int64_t e = begin; e < end; e++) {
        int64_t a = edge[2 * e], b = edge[2 * e + 1], count = 0;
        if ((uint64_t)a >= (uint64_t)vertices || (uint64_t)b >= (uint64_t)vertices)
            return SC_MALFORMED;
        const uint64_t *p = run->layer->positive + a * words, *q = run->layer->positive + b * words;
        for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(p[w] ^ q[w]);
        run->first[e + 1] = count;
    }
    return SC_DONE;
}

/* The point between two others, exact at both ends; a third coordinate is the same at both. */
static inline void between(const double *a, const double *b, double t, int64_t width, double *out) {
    double x = b[0] - a[0], y = b[1] - a[1];
    if (t < 0.5) {
        out[0] = a[0] + t * x;
        out[1] = a[1] + t * y;
    } else {
        out[0] = b[0] - (1 - t) * x;
        out[1] = b[1] - (1 - t) * y;
    }
    if (width > 2) out[2] = a[2];
}

static int cut_edges(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    const sc_layer *layer = run->layer;
    double least = run->settings->uv_error, safety = run->settings->safety;
    int64_t words = run->words, n = layer->units, width = mesh->width;
    double *t = run->t, *bend = run->bend;
    int32_t *unit = run->unit;
    (void)thread;
    for (int64_t e = begin; e < end; e++) {
        int64_t start = run->first[e], stop = run->first[e + 1], g = start;
        if (start == stop) continue;
        int64_t a = mesh->edge[2 * e], b = mesh->edge[2 * e + 1];
        const uint64_t *p = layer->positive + a * words, *q = layer->positive + b * words;
        const double *za = layer->z + a * n, *zb = layer->z + b * n;
        for (int64_t w = 0; w < words; w++)
            for (uint64_t bits = p[w] ^ q[w]; bits; bits &= bits - 1) {
                int64_t c = 64 * w + __builtin_ctzll(bits), i = g++;
                if (c >= n) return SC_MALFORMED;
                double drop = za[c] - zb[c], at = za[c] / drop;
                for (; i > start && t[i - 1] > at; i--) {
                    t[i] = t[i - 1];
                    bend[i] = bend[i - 1];
                    unit[i] = unit[i - 1];
                }
                t[i] = at;
                bend[i] = fabs(drop);
                unit[i] = (int32_t)c;
            }
        const double *ua = mesh->uv + a * width, *ub = mesh->uv + b * width;
        double x = ub[0] - ua[0], y = ub[1] - ua[1], length = sqrt(x * x + y * y), reach = 0;
        double nearest = MIN(t[start], 1 - t[stop - 1]);
        if (!(nearest * length > least)) return SC_DELICATE;
        for (g = start; g < stop; g++) {
            double shift = layer->error[unit[g]] / bend[g], known = reach;
            reach = shift + least / length;
            if (g > start && !(t[g] - t[g - 1] > safety * (known + reach))) return SC_DELICATE;
            if (layer->jump) bend[g] *= layer->jump[unit[g]];
            between(ua, ub, t[g], width, run->place + g * width);
            run->blur[2 * g] = x * shift;
            run->blur[2 * g + 1] = y * shift;
        }
    }
    return SC_DONE;
}

/* -- the chords of one face ----------------------------------------------------------------- */

/* What is known of one face while it is cut. Arrays grow with the largest face so far. */
typedef struct {
    int64_t *opened; /* (units) chords whose second end is still to come, zero between faces */
    /* Per chord: where its ends are on the boundary, its new vertices there, its first slot. */
    int64_t *low, *high, *start, *stop, *slot_first, *slot_next;
    double *x, *y, *dx, *dy, *length, *error; /* its line */
    /* Per slot: twice the crossing (+ 1 on its second chord), the chord, the crossing's other
     * slot, the fraction of the chord, and the error of that. */
    int64_t *met, *chord, *other;
    double *along, *reach;
    int64_t *one, *two, *slot; /* per crossing: its chords, and (twice as many) its slots */
    int64_t *sorted;           /* room to sort slots */
    double *sorted_along, *sorted_reach;
    /* Per place of the divided boundary: its half-edge, and twice the chord that ends there
     * (+ 1 for its second end) or -1; per end of a chord its place. */
    int64_t *half, *ends_here, *place;
    int64_t chord_room, slot_room, place_room;
} face_t;

/* All entries have eight bytes, and the arrays of a kind follow each other in the structure. */
static int grow(face_t *f, size_t first, size_t last, int64_t *room, int64_t count) {
    if (count <= *room) return 1;
    for (size_t at = first; at <= last; at += sizeof(void *)) {
        void *array, *bigger;
        memcpy(&array, (char *)f + at, sizeof array);
        if (!(bigger = realloc(array, (size_t)count * 16))) return 0;
        memcpy((char *)f + at, &bigger, sizeof bigger);
    }
    *room = 2 * count;
    return 1;
}

#define GROW(f, first, last, room, count) \
    grow(f, offsetof(face_t, first), offsetof(face_t, last), &(f)->room, count)

static int room_for_chords(face_t *f, int64_t n) { return GROW(f, low, error, chord_room, n + 1); }

static int room_for_crossings(face_t *f, int64_t x) {
    return GROW(f, met, sorted_reach, slot_room, 2 * x);
}

static int room_for_places(face_t *f, int64_t n) { return GROW(f, half, place, place_room, n); }

static int face_open(face_t *f, int64_t units) {
    memset(f, 0, sizeof *f);
    f->opened = calloc((size_t)MAX(units, 1), sizeof *f->opened);
    return f->opened != NULL;
}

static void face_close(face_t *f) {
    for (size_t at = 0; at <= offsetof(face_t, place); at += sizeof(void *)) {
        void *array;
        memcpy(&array, (char *)f + at, sizeof array);
        free(array);
    }
}

/* The chords of a face in the order of their first ends; the result is their number, or -1 where
 * a function has other than two ends. Their ends are counted along the boundary for now. */
static int64_t find_chords(const run_t *run, int64_t face, face_t *f) {
    const int64_t *corner = run->mesh->corner, *first = run->first;
    int64_t n = 0, marks = 0, left = 0, fine = 1;
    for (int64_t c = run->mesh->offset[face]; c < run->mesh->offset[face + 1]; c++) {
        int64_t e = corner[c] >> 1, back = corner[c] & 1;
        for (int64_t k = 0; k < first[e + 1] - first[e]; k++, marks++) {
            int64_t g = back ? first[e + 1] - 1 - k : first[e] + k, unit = run->unit[g];
            int64_t which = f->opened[unit];
            if (which == 0) {
                f->opened[unit] = n + 1;
                f->low[n] = marks;
                f->start[n++] = g;
                left++;
            } else if (which > 0) {
                f->opened[unit] = -1;
                f->high[which - 1] = marks;
                f->stop[which - 1] = g;
                left--;
            } else {
                fine = 0;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) f->opened[run->unit[f->start[i]]] = 0;
    return fine && left == 0 ? n : -1;
}

/* How many pairs of chords have interleaved ends; they are written if asked for. */
static int64_t find_pairs(int64_t n, face_t *f, int write) {
    int64_t x = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t high = f->high[i];
        for (int64_t j = i + 1; j < n && f->low[j] < high; j++)
            if (f->high[j] > high) {
                if (write) {
                    f->one[x] = i;
                    f->two[x] = j;
                }
                x++;
            }
    }
    return x;
}

static int count_crossings(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    face_t f;
    int status = face_open(&f, run->layer->units) ? SC_DONE : SC_NO_MEMORY;
    (void)thread;
    for (int64_t i = begin; i < end && !status; i++) {
        int64_t marks = 0, sides = 0, last = 0, total = 0;
        for (int64_t c = mesh->offset[i]; c < mesh->offset[i + 1]; c++) {
            int64_t e = mesh->corner[c] >> 1, extra = first[e + 1] - first[e];
            if (!extra) continue;
            marks += extra;
            sides++;
            last = run->unit[first[e]];
            total += last;
        }
        run->face_chords[i] = (int32_t)(marks >> 1);
        run->face_crossings[i] = 0;
        /* Most faces have no chord, or the one of a function that vanishes on two sides. */
        if (marks == 0 || (marks == 2 && sides == 2 && total == 2 * last)) continue;
        if (marks > 2 * run->settings->most_chords) {
            status = SC_DELICATE;
            break;
        }
        if (!room_for_chords(&f, marks)) {
            status = SC_NO_MEMORY;
            break;
        }
        int64_t n = find_chords(run, i, &f);
        if (n < 0) {
            status = SC_DELICATE;
            break;
        }
        int64_t x = find_pairs(n, &f, 0);
        if (x > INT32_MAX / 4) status = SC_DELICATE;
        run->face_chords[i] = (int32_t)n;
        run->face_crossings[i] = (int32_t)x;
    }
    face_close(&f);
    return status;
}

/* The half-edges of the divided boundary of a face, and the places of the ends of chords on it. */
static int64_t find_boundary(const run_t *run, int64_t face, face_t *f) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    int64_t p = 0, mark = 0;
    for (int64_t c = mesh->offset[face]; c < mesh->offset[face + 1]; c++) {
        int64_t e = mesh->corner[c] >> 1, back = mesh->corner[c] & 1;
        int64_t extra = first[e + 1] - first[e];
        for (int64_t k = 0; k <= extra; k++, p++) {
            int64_t piece = back ? extra - k : k;
            int64_t edge = piece == 0 ? e : mesh->edges + first[e] + piece - 1;
            f->half[p] = 2 * edge + back;
            f->ends_here[p] = -1;
            if (k) f->place[mark++] = p;
        }
    }
    return p;
}

/* The lines of the chords; 0 where a chord is too short to have a direction. */
static int find_lines(const run_t *run, int64_t n, face_t *f) {
    double least = run->settings->uv_error;
    int64_t width = run->mesh->width;
    for (int64_t i = 0; i < n; i++) {
        int64_t low = f->place[f->low[i]], high = f->place[f->high[i]];
        int64_t g = f->start[i], h = f->stop[i];
        const double *p = run->place + g * width, *q = run->place + h * width;
        double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y);
        f->low[i] = low;
        f->high[i] = high;
        f->ends_here[low] = 2 * i;
        f->ends_here[high] = 2 * i + 1;
        if (!(length > least)) return 0;
        /* Both ends are uncertain; the estimate is better the more steeply the line meets the
         * edge, so the smaller one counts. */
        double one = fabs(run->blur[2 * g] * y - run->blur[2 * g + 1] * x);
        double two = fabs(run->blur[2 * h] * y - run->blur[2 * h + 1] * x);
        f->x[i] = p[0];
        f->y[i] = p[1];
        f->dx[i] = x;
        f->dy[i] = y;
        f->length[i] = length;
        f->error[i] = MIN(one, two) / length + least;
    }
    return 1;
}

/* Sort the slots [begin, end) by their fraction, keeping the order of equal ones. */
static void sort_slots(face_t *f, int64_t begin, int64_t end) {
    if (end - begin <= SHORT) {
        for (int64_t k = begin + 1; k < end; k++) {
            double along = f->along[k], reach = f->reach[k];
            int64_t met = f->met[k], i = k;
            for (; i > begin && f->along[i - 1] > along; i--) {
                f->along[i] = f->along[i - 1];
                f->reach[i] = f->reach[i - 1];
                f->met[i] = f->met[i - 1];
            }
            f->along[i] = along;
            f->reach[i] = reach;
            f->met[i] = met;
        }
        return;
    }
    int64_t middle = begin + (end - begin) / 2, i = begin, j = middle, k = begin;
    sort_slots(f, begin, middle);
    sort_slots(f, middle, end);
    while (i < middle || j < end) {
        int64_t from = j >= end || (i < middle && f->along[i] <= f->along[j]) ? i++ : j++;
        f->sorted_along[k] = f->along[from];
        f->sorted_reach[k] = f->reach[from];
        f->sorted[k++] = f->met[from];
    }
    size_t count = (size_t)(end - begin);
    memcpy(f->along + begin, f->sorted_along + begin, count * sizeof *f->along);
    memcpy(f->reach + begin, f->sorted_reach + begin, count * sizeof *f->reach);
    memcpy(f->met + begin, f->sorted + begin, count * sizeof *f->met);
}

/* The slots of all chords: where they cross, in order along each; 0 for parallel chords. */
static int find_slots(int64_t n, int64_t x, face_t *f) {
    for (int64_t i = 0; i <= n; i++) f->slot_first[i] = 0;
    for (int64_t k = 0; k < x; k++) {
        f->slot_first[f->one[k] + 1]++;
        f->slot_first[f->two[k] + 1]++;
    }
    for (int64_t i = 0; i < n; i++) {
        f->slot_first[i + 1] += f->slot_first[i];
        f->slot_next[i] = f->slot_first[i];
    }
    for (int64_t k = 0; k < x; k++) {
        int64_t i = f->one[k], j = f->two[k];
        double gx = f->x[j] - f->x[i], gy = f->y[j] - f->y[i];
        double ux = f->dx[i], uy = f->dy[i], vx = f->dx[j], vy = f->dy[j];
        double area = ux * vy - uy * vx;
        if (area == 0) return 0;
        /* A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long
         * on i. */
        double strip = (f->error[i] + f->error[j]) / fabs(area);
        int64_t p = f->slot_next[i]++, q = f->slot_next[j]++;
        f->along[p] = (gx * vy - gy * vx) / area;
        f->reach[p] = strip * f->length[j];
        f->met[p] = 2 * k;
        f->along[q] = (gx * uy - gy * ux) / area;
        f->reach[q] = strip * f->length[i];
        f->met[q] = 2 * k + 1;
    }
    for (int64_t i = 0; i < n; i++) {
        sort_slots(f, f->slot_first[i], f->slot_first[i + 1]);
        for (int64_t k = f->slot_first[i]; k < f->slot_first[i + 1]; k++) {
            f->chord[k] = i;
            f->slot[f->met[k]] = k;
        }
    }
    for (int64_t k = 0; k < 2 * x; k++) f->other[k] = f->slot[f->met[k] ^ 1];
    return 1;
}

/* Whether all crossings are farther from each other and from the ends than rounding reaches. */
static int well_apart(const run_t *run, int64_t n, const face_t *f) {
    double least = run->settings->uv_error, safety = run->settings->safety;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = f->slot_first[i];
        double end = least / f->length[i];
        for (int64_t k = first; k < f->slot_first[i + 1]; k++) {
            double s = f->along[k], reach = f->reach[k], edge = MIN(s, 1 - s);
            if (!(edge > safety * (reach + end))) return 0;
            if (k > first && !(s - f->along[k - 1] > safety * (reach + f->reach[k - 1]))) return 0;
        }
    }
    return 1;
}

/* -- cutting faces -------------------------------------------------------------------------- */

/* Divide a face by its only chord. Most faces have one chord and need none of the rest. */
static int halve(const run_t *run, int64_t face, int64_t which, face_t *f) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    int64_t before = run->before[which], passed = run->passed[which];
    int64_t begins = run->begins[which], written = begins, last = run->begins[which + 1];
    int64_t piece = before + 2 * passed, chord = mesh->edges + total_of(first, mesh->edges) + piece;
    int64_t later = 0, marks = 0, g = 0, h = 0, *out = run->halves, width = mesh->width;
    for (int64_t c = mesh->offset[face]; c < mesh->offset[face + 1]; c++) {
        int64_t e = mesh->corner[c] >> 1, back = mesh->corner[c] & 1;
        int64_t extra = first[e + 1] - first[e];
        for (int64_t k = 0; k <= extra; k++) {
            int64_t at = back ? extra - k : k;
            int64_t half = 2 * (at == 0 ? e : mesh->edges + first[e] + at - 1) + back;
            if (k) {
                g = h;
                h = first[e] + (back ? at : at - 1);
                if (marks == 0) out[written++] = 2 * chord;
                marks++;
            }
            if (marks == 1)
                f->half[later++] = half;
            else
                out[written++] = half;
        }
    }
    int64_t size = written - begins, other = run->touched_faces + before;
    for (int64_t k = 0; k < later; k++) out[written++] = f->half[k];
    out[written++] = 2 * chord + 1;
    if (marks != 2 || written != last) return SC_MALFORMED;
    const double *p = run->place + g * width, *q = run->place + h * width;
    double x = q[0] - p[0], y = q[1] - p[1];
    if (!(sqrt(x * x + y * y) > run->settings->uv_error)) return SC_DELICATE;
    run->chord_start[before] = g;
    run->chord_end[before] = h;
    run->made->slot_first[before] = 2 * passed;
    run->made->edge[2 * chord] = mesh->vertices + g;
    run->made->edge[2 * chord + 1] = mesh->vertices + h;
    run->made->edge_unit[chord] = run->unit[g];
    run->starts[which] = begins;
    run->sizes[which] = size;
    run->starts[other] = begins + size;
    run->sizes[other] = last - begins - size;
    return SC_DONE;
}

static void write_crossings(const run_t *run, int64_t x, int64_t before, int64_t passed,
                            const face_t *f) {
    sc_refined *made = run->made;
    int64_t vertices = run->mesh->vertices, width = run->mesh->width;
    double *uv = made->uv + (made->vertices - made->crossings) * width;
    for (int64_t k = 0; k < 2 * x; k++) {
        made->slot_t[2 * passed + k] = f->along[k];
        run->slot_chord[2 * passed + k] = before + f->chord[f->other[k]];
    }
    for (int64_t k = 0; k < x; k++) {
        int64_t i = f->one[k], slot = f->slot[2 * k], g = f->start[i], h = f->stop[i];
        int64_t at = passed + k;
        made->cross_chord[at] = before + i;
        made->cross_slot[at] = 2 * passed + slot;
        made->cross_start[at] = vertices + g;
        made->cross_end[at] = vertices + h;
        made->cross_t[at] = f->along[slot];
        between(run->place + g * width, run->place + h * width, f->along[slot], width,
                uv + at * width);
    }
}

/* The pieces of one chord after the other. */
static void write_chords(const run_t *run, int64_t n, int64_t before, int64_t passed,
                         const face_t *f) {
    sc_refined *made = run->made;
    int64_t points = total_of(run->first, run->mesh->edges), on_edges = run->mesh->vertices;
    int64_t inside = on_edges + points + passed;
    int64_t piece = run->mesh->edges + points + before + 2 * passed;
    for (int64_t i = 0; i < n; i++) {
        int64_t last = on_edges + f->start[i], unit = run->unit[f->start[i]];
        run->chord_start[before + i] = f->start[i];
        run->chord_end[before + i] = f->stop[i];
        made->slot_first[before + i] = 2 * passed + f->slot_first[i];
        for (int64_t k = f->slot_first[i]; k < f->slot_first[i + 1]; k++, piece++) {
            made->edge[2 * piece] = last;
            last = inside + (f->met[k] >> 1);
            made->edge[2 * piece + 1] = last;
            made->edge_unit[piece] = unit;
        }
        made->edge[2 * piece] = last;
        made->edge[2 * piece + 1] = on_edges + f->stop[i];
        made->edge_unit[piece++] = unit;
    }
}

/* Walk around one new face, from a place of the boundary or from a slot upwards. The result is
 * where its half-edges end, or -1 if they do not fit. first: the first piece of the chords. */
static int64_t walk(int64_t place, int64_t slot, int64_t places, int64_t first, int64_t written,
                    int64_t most, const face_t *f, int64_t *out) {
    int64_t i = slot >= 0 ? f->chord[slot] : 0, up = 1;
    while (written < most) {
        if (slot == -1) { /* along the boundary, up to the next chord */
            out[written++] = f->half[place++];
            if (place == places) return written;
            if (f->ends_here[place] < 0) continue;
            i = f->ends_here[place] >> 1;
            up = !(f->ends_here[place] & 1);
            slot = up ? f->slot_first[i] - 1 : f->slot_first[i + 1];
            if (written == most) return -1;
        }
        if (up) { /* the piece after this slot */
            slot++;
            out[written++] = 2 * (first + slot + i);
            if (slot == f->slot_first[i + 1]) {
                slot = -1;
                place = f->high[i];
                continue;
            }
            up = !(f->met[slot] & 1);
        } else { /* the piece before it */
            out[written++] = 2 * (first + slot + i) + 1;
            slot--;
            if (slot < f->slot_first[i] || (f->met[slot] & 1)) return written;
        }
        slot = f->other[slot];
        i = f->chord[slot];
    }
    return -1;
}

/* Cut a face by n chords with x crossings. */
static int cut_face(const run_t *run, int64_t face, int64_t which, face_t *f) {
    int64_t before = run->before[which], passed = run->passed[which], begins = run->begins[which];
    int64_t n = run->before[which + 1] - before, x = run->passed[which + 1] - passed;
    int64_t last = run->begins[which + 1], points = total_of(run->first, run->mesh->edges);
    if (!room_for_chords(f, n) || !room_for_crossings(f, x)) return SC_NO_MEMORY;
    if (find_chords(run, face, f) != n) return SC_MALFORMED;
    find_pairs(n, f, 1);
    int64_t places = find_boundary(run, face, f);
    if (!find_lines(run, n, f) || !find_slots(n, x, f)) return SC_DELICATE;
    if (!well_apart(run, n, f)) return SC_DELICATE;
    write_crossings(run, x, before, passed, f);
    write_chords(run, n, before, passed, f);
    int64_t first = run->mesh->edges + points + before + 2 * passed, written = begins;
    int64_t faces = run->touched_faces, chords = run->before[faces];
    for (int64_t k = 0; k < 1 + n + x; k++) { /* the first corner, each chord, each crossing */
        int64_t at = k == 0 || k > n ? 0 : f->low[k - 1];
        int64_t slot = k > n ? f->slot[2 * (k - 1 - n)] : -1;
        int64_t made = k == 0   ? which
                       : k <= n ? faces + before + k - 1
                                : faces + chords + passed + k - 1 - n;
        run->starts[made] = written;
        written = walk(at, slot, places, first, written, last, f, run->halves);
        if (written < 0) return SC_DELICATE;
        run->sizes[made] = written - run->starts[made];
    }
    return written == last ? SC_DONE : SC_DELICATE;
}

static int cut_faces(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    face_t f;
    int status = face_open(&f, run->layer->units) ? SC_DONE : SC_NO_MEMORY;
    (void)thread;
    if (!status && !room_for_places(&f, run->most_size)) status = SC_NO_MEMORY;
    for (int64_t i = begin; i < end && !status; i++) {
        int64_t face = run->touched[i];
        status = run->before[i + 1] - run->before[i] == 1 ? halve(run, face, i, &f)
                                                          : cut_face(run, face, i, &f);
    }
    face_close(&f);
    return status;
}

/* -- the refined subdivision ---------------------------------------------------------------- */

/* Which faces have chords and which are kept as they are, and what comes before each. */
static int plan(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    int64_t faces = mesh->faces, *sums = malloc((size_t)(5 * (faces + 1)) * sizeof *sums);
    if (!sums) return SC_NO_MEMORY;
    run->touched = sums;
    run->kept = sums + faces + 1;
    run->before = run->kept + faces + 1;
    run->passed = run->before + faces + 1;
    run->begins = run->passed + faces + 1;
    int64_t count = 0, left = 0;
    run->before[0] = run->passed[0] = run->begins[0] = run->most_size = 0;
    for (int64_t i = 0; i < faces; i++) {
        int64_t n = run->face_chords[i], x = run->face_crossings[i];
        int64_t size = mesh->offset[i + 1] - mesh->offset[i];
        if (n == 0) {
            run->kept[left++] = i;
            continue;
        }
        run->touched[count] = i;
        run->before[count + 1] = run->before[count] + n;
        run->passed[count + 1] = run->passed[count] + x;
        run->begins[count + 1] = run->begins[count] + size + 4 * (n + x);
        run->most_size = MAX(run->most_size, size + 2 * n);
        count++;
    }
    run->touched_faces = count;
    run->kept_faces = left;
    return SC_DONE;
}

/* One block for the subdivision and one for how it came about; every entry has eight bytes. */
static int allocate(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    int64_t points = total_of(run->first, mesh->edges), touched = run->touched_faces;
    int64_t chords = run->before[touched], crossings = run->passed[touched];
    made->points = points;
    made->chords = chords;
    made->crossings = crossings;
    made->vertices = mesh->vertices + points + crossings;
    made->edges = mesh->edges + points + chords + 2 * crossings;
    made->faces = run->kept_faces + touched + chords + crossings;
    int64_t least = run->settings->least_bends;
    made->bends = least >= 0 && points + crossings >= least;
    int64_t most = run->settings->most_faces;
    if (most >= 0 && made->faces > most) return SC_TOO_MANY;
    made->corners = run->begins[touched];
    for (int64_t i = 0; i < run->kept_faces; i++)
        made->corners += mesh->offset[run->kept[i] + 1] - mesh->offset[run->kept[i]];
    struct { void *array; int64_t count; } arrays[] = {
        {&made->uv, made->vertices * mesh->width}, {&made->edge, 2 * made->edges},
        {&made->offset, made->faces + 1}, {&made->corner, made->corners},
        {&made->edge_layer, made->edges}, {&made->edge_unit, made->edges},
        {&made->vertex_layer, made->vertices},
        /* from here on in the other block */
        {&made->point_first, mesh->edges + 1}, {&made->point_edge, points},
        {&made->point_start, points}, {&made->point_end, points}, {&made->point_unit, points},
        {&made->point_index, points}, {&made->point_t, points}, {&made->point_bend, points},
        {&made->cross_start, crossings}, {&made->cross_end, crossings},
        {&made->cross_chord, crossings}, {&made->cross_slot, crossings},
        {&made->cross_t, crossings}, {&made->slot_first, chords + 1},
        {&made->slot_unit, 2 * crossings}, {&made->slot_t, 2 * crossings},
        {&made->slot_bend, 2 * crossings},
    };
    int count = sizeof arrays / sizeof *arrays, kept = 7;
    int64_t sizes[2] = {0, 0};
    for (int i = 0; i < count; i++) sizes[i >= kept] += 8 * arrays[i].count;
    char *at[2] = {made->block = malloc((size_t)sizes[0]), made->history = malloc((size_t)sizes[1])};
    if (!at[0] || !at[1]) return SC_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        memcpy(arrays[i].array, &at[i >= kept], sizeof(void *));
        at[i >= kept] += 8 * arrays[i].count;
    }
    made->slot_first[chords] = 2 * crossings;
    return SC_DONE;
}

static int divide_edges(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    int64_t count = mesh->edges, vertices = mesh->vertices;
    (void)thread;
    memcpy(made->point_first + begin, run->first + begin, (size_t)(end - begin) * 8);
    for (int64_t e = begin; e < end; e++) {
        int64_t a = mesh->edge[2 * e], b = mesh->edge[2 * e + 1], last = e;
        made->edge[2 * e] = a;
        made->edge[2 * e + 1] = b;
        made->edge_layer[e] = mesh->edge_layer[e];
        made->edge_unit[e] = mesh->edge_unit[e];
        for (int64_t g = run->first[e]; g < run->first[e + 1]; g++) {
            int64_t piece = count + g;
            made->edge[2 * piece] = vertices + g;
            made->edge[2 * piece + 1] = b;
            made->edge[2 * last + 1] = vertices + g;
            made->edge_layer[piece] = mesh->edge_layer[e];
            made->edge_unit[piece] = mesh->edge_unit[e];
            last = piece;
            made->point_edge[g] = e;
            made->point_start[g] = a;
            made->point_end[g] = b;
            made->point_unit[g] = run->unit[g];
            made->point_index[g] = g;
        }
    }
    return SC_DONE;
}

static int copy_faces(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = made->offset[i], size = made->offset[i + 1] - at;
        const int64_t *source = i < run->kept_faces
                                    ? mesh->corner + mesh->offset[run->kept[i]]
                                    : run->halves + run->starts[i - run->kept_faces];
        for (int64_t k = 0; k < size; k++) made->corner[at + k] = source[k];
    }
    return SC_DONE;
}

/* By how much the slopes of results change along chords, at each slot. */
static int find_bends(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_layer *layer = run->layer;
    sc_refined *made = run->made;
    int64_t n = layer->units;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = made->slot_first[i]; k < made->slot_first[i + 1]; k++) {
            int64_t unit = run->unit[run->chord_start[run->slot_chord[k]]];
            double s = made->slot_t[k];
            /* The farther end of the chord tells best how steep the other function is. */
            int64_t g = s > 0.5 ? run->chord_start[i] : run->chord_end[i];
            double p = layer->z[made->point_start[g] * n + unit];
            double q = layer->z[made->point_end[g] * n + unit];
            double value = fabs(p + run->t[g] * (q - p)) / MAX(s, 1 - s);
            made->slot_unit[k] = unit;
            made->slot_bend[k] = layer->jump ? layer->jump[unit] * value : value;
        }
    return SC_DONE;
}

static int check(const sc_mesh *mesh, const sc_layer *layer) {
    if (mesh->vertices < 0 || mesh->edges < 0 || mesh->faces < 0 || mesh->corners < 0 ||
        layer->units < 0 || layer->units > INT32_MAX)
        return 0;
    if (mesh->width != 2 && mesh->width != 3) return 0;
    if (mesh->offset[0] != 0 || mesh->offset[mesh->faces] != mesh->corners) return 0;
    for (int64_t i = 0; i < mesh->faces; i++)
        if (mesh->offset[i + 1] - mesh->offset[i] < 3 || mesh->offset[i + 1] > mesh->corners)
            return 0;
    uint64_t most = 2 * (uint64_t)mesh->edges, wrong = 0;
    for (int64_t c = 0; c < mesh->corners; c++) wrong |= (uint64_t)mesh->corner[c] >= most;
    return !wrong;
}

static int refine(run_t *run) {
    const sc_mesh *mesh = run->mesh;
    sc_refined *made = run->made;
    int64_t edges = mesh->edges, faces = mesh->faces, width = mesh->width;
    int status;
    if (!check(mesh, run->layer)) return SC_MALFORMED;
    run->first = malloc((size_t)(edges + 1) * 8);
    if (!run->first) return SC_NO_MEMORY;
    run->first[0] = 0;
    status = sc_parallel(run->pool, edges, part_of(edges), count_changes, run);
    if (status) return status;
    for (int64_t e = 0; e < edges; e++) run->first[e + 1] += run->first[e];
    size_t points = (size_t)run->first[edges];
    if (!points) return SC_UNCHANGED;
    run->t = malloc(points * 8 * (size_t)(5 + width));
    run->face_chords = malloc((size_t)(2 * faces + 1) * sizeof *run->face_chords);
    if (!run->t || !run->face_chords) return SC_NO_MEMORY;
    run->bend = run->t + points;
    run->blur = run->bend + points;
    run->place = run->blur + 2 * points;
    run->unit = (int32_t *)(run->place + points * (size_t)width);
    run->face_crossings = run->face_chords + faces;
    status = sc_parallel(run->pool, edges, part_of(edges), cut_edges, run);
    if (!status) status = sc_parallel(run->pool, faces, part_of(faces), count_crossings, run);
    if (!status) status = plan(run);
    if (!status) status = allocate(run);
    if (status) return status;
    int64_t new_faces = run->touched_faces + made->chords + made->crossings;
    int64_t touched = run->touched_faces, ends = 2 * (new_faces + made->chords + made->crossings);
    run->sizes = malloc((size_t)(ends + run->begins[touched]) * 8);
    if (!run->sizes) return SC_NO_MEMORY;
    run->starts = run->sizes + new_faces;
    run->chord_start = run->starts + new_faces;
    run->chord_end = run->chord_start + made->chords;
    run->slot_chord = run->chord_end + made->chords;
    run->halves = run->slot_chord + 2 * made->crossings;
    status = sc_parallel(run->pool, touched, part_of(touched), cut_faces, run);
    if (status) return status;
    made->offset[0] = 0;
    for (int64_t i = 0; i < made->faces; i++) {
        int64_t old = i < run->kept_faces ? run->kept[i] : -1;
        int64_t size = old >= 0 ? mesh->offset[old + 1] - mesh->offset[old]
                                : run->sizes[i - run->kept_faces];
        made->offset[i + 1] = made->offset[i] + size;
    }
    memcpy(made->uv, mesh->uv, (size_t)(mesh->vertices * width) * 8);
    memcpy(made->uv + mesh->vertices * width, run->place, points * 8 * (size_t)width);
    memcpy(made->vertex_layer, mesh->vertex_layer, (size_t)mesh->vertices * 8);
    for (int64_t i = mesh->vertices; i < made->vertices; i++) made->vertex_layer[i] = run->settings->op;
    for (int64_t e = edges + (int64_t)points; e < made->edges; e++)
        made->edge_layer[e] = run->settings->op;
    memcpy(made->point_t, run->t, points * 8);
    memcpy(made->point_bend, run->bend, points * 8);
    made->point_first[edges] = (int64_t)points;
    status = sc_parallel(run->pool, edges, part_of(edges), divide_edges, run);
    if (!status) status = sc_parallel(run->pool, made->faces, part_of(made->faces), copy_faces, run);
    if (status || !made->bends) return status;
    for (int64_t e = 0; e < edges; e++) {
        int64_t count = run->first[e + 1] - run->first[e];
        made->edge_terms += count * count;
    }
    for (int64_t x = 0; x < made->crossings; x++) {
        int64_t chord = made->cross_chord[x];
        made->inside_terms += made->slot_first[chord + 1] - made->slot_first[chord];
    }
    return sc_parallel(run->pool, made->chords, part_of(made->chords), find_bends, run);
}

int sc_refine(sc_pool *pool, const sc_mesh *mesh, const sc_layer *layer,
              const sc_settings *settings, sc_refined *refined) {
    if (!pool || !mesh || !layer || !settings || !refined) return SC_MALFORMED;
    memset(refined, 0, sizeof *refined);
    run_t run = {.pool = pool, .mesh = mesh, .layer = layer, .settings = settings};
    run.made = refined;
    run.words = (layer->units + 63) / 64;
    int status = refine(&run);
    void *arrays[] = {run.first, run.t, run.face_chords, run.touched, run.sizes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    if (status != SC_DONE) {
        free(refined->block);
        free(refined->history);
        memset(refined, 0, sizeof *refined);
    }
    return status;
}

void sc_free(void *block) { free(block); }
