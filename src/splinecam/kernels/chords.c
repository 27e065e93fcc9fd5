/* The chords of one face: their ends on its boundary, and where they cross. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "refine.h"

enum { INSERTION = 24 }; /* slots that are sorted by insertion */

/* Enlarge all arrays of face_t from field `first` to field `last` so that `count` entries fit.
 * Returns 0 if there is no memory. */
static int grow(face_t *f, size_t first, size_t last, int64_t *capacity, int64_t count) {
    if (count <= *capacity) return 1;
    for (size_t at = first; at <= last; at += sizeof(void *)) {
        void *array, *bigger;
        memcpy(&array, (char *)f + at, sizeof array);
        if (!(bigger = realloc(array, (size_t)count * 2 * sizeof(slot_t)))) return 0;
        memcpy((char *)f + at, &bigger, sizeof bigger);
    }
    *capacity = 2 * count;
    return 1;
}

#define GROW(f, first, last, capacity, count) \
    grow(f, offsetof(face_t, first), offsetof(face_t, last), &(f)->capacity, count)

static int reserve_chords(face_t *f, int64_t n) {
    return GROW(f, low, error, chord_capacity, n + 1);
}

static int reserve_crossings(face_t *f, int64_t x) {
    return GROW(f, slots, slot, slot_capacity, 2 * x);
}

int sc_reserve_places(face_t *f, int64_t count) {
    return GROW(f, half, place, place_capacity, count);
}

int sc_face_open(face_t *f, int64_t units) {
    memset(f, 0, sizeof *f);
    f->opened = calloc((size_t)MAX(units, 1), sizeof *f->opened);
    return f->opened != NULL;
}

void sc_face_close(face_t *f) {
    for (size_t at = 0; at <= offsetof(face_t, place); at += sizeof(void *)) {
        void *array;
        memcpy(&array, (char *)f + at, sizeof array);
        free(array);
    }
}

/* Find the chords of a face in the order of their first ends. Returns their number, or -1 if a
 * function has other than two ends. `low` and `high` count the ends along the boundary for now. */
static int64_t find_chords(const run_t *run, int64_t face, face_t *f) {
    const int64_t *corner = run->mesh->corner, *first = run->first;
    int64_t n = 0, ends = 0, open = 0, fine = 1;
    for (int64_t c = run->mesh->offset[face]; c < run->mesh->offset[face + 1]; c++) {
        int64_t e = corner[c] >> 1, back = corner[c] & 1;
        for (int64_t k = 0; k < first[e + 1] - first[e]; k++, ends++) {
            int64_t g = back ? first[e + 1] - 1 - k : first[e] + k, unit = run->unit[g];
            int64_t which = f->opened[unit];
            if (which == 0) {
                f->opened[unit] = n + 1;
                f->low[n] = ends;
                f->start[n++] = g;
                open++;
            } else if (which > 0) {
                f->opened[unit] = -1;
                f->high[which - 1] = ends;
                f->stop[which - 1] = g;
                open--;
            } else {
                fine = 0;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) f->opened[run->unit[f->start[i]]] = 0;
    return fine && open == 0 ? n : -1;
}

/* Return how many pairs of chords have interleaved ends; write them if `write` is set. */
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

/* Count the chords and crossings of faces. */
int sc_count_crossings(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    face_t f;
    int status = sc_face_open(&f, run->layer->units) ? SC_DONE : SC_NO_MEMORY;
    for (int64_t i = begin; i < end && !status; i++) {
        int64_t ends = 0, sides = 0, last = 0, total = 0;
        for (int64_t c = mesh->offset[i]; c < mesh->offset[i + 1] && !sc_settled(run, i); c++) {
            int64_t e = mesh->corner[c] >> 1, extra = first[e + 1] - first[e];
            if (!extra) continue;
            ends += extra;
            sides++;
            last = run->unit[first[e]];
            total += last;
        }
        run->face_chords[i] = (int32_t)(ends >> 1);
        run->face_crossings[i] = 0;
        /* Most faces have no chord, or a single one that joins two sides. */
        if (ends == 0 || (ends == 2 && sides == 2 && total == 2 * last)) continue;
        if (ends > 2 * run->settings->max_chords)
            status = SC_DEGENERATE;
        else if (!reserve_chords(&f, ends))
            status = SC_NO_MEMORY;
        int64_t n = status ? 0 : find_chords(run, i, &f), x = find_pairs(n, &f, 0);
        if (n < 0 || x > INT32_MAX / 4) status = SC_DEGENERATE;
        run->face_chords[i] = (int32_t)n;
        run->face_crossings[i] = (int32_t)x;
    }
    sc_face_close(&f);
    return status;
}

/* Find the half-edges of the divided boundary of a face, and the places of the ends of chords.
 * Returns the number of half-edges. */
static int64_t find_boundary(const run_t *run, int64_t face, face_t *f) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    int64_t p = 0, ends = 0;
    for (int64_t c = mesh->offset[face]; c < mesh->offset[face + 1]; c++) {
        int64_t half = mesh->corner[c], extra = first[(half >> 1) + 1] - first[half >> 1];
        for (int64_t k = 0; k <= extra; k++, p++) {
            f->half[p] = sc_half(run, half, k);
            f->chord_ends[p] = -1;
            if (k) f->place[ends++] = p;
        }
    }
    return p;
}

/* Find the lines of the chords. Returns 0 if a chord is too short to have a direction. */
static int find_lines(const run_t *run, int64_t n, face_t *f) {
    double uv_error = run->settings->uv_error;
    int64_t width = run->mesh->width;
    for (int64_t i = 0; i < n; i++) {
        int64_t low = f->place[f->low[i]], high = f->place[f->high[i]];
        int64_t g = f->start[i], h = f->stop[i];
        const double *p = run->point_uv + g * width, *q = run->point_uv + h * width;
        double x = q[0] - p[0], y = q[1] - p[1], length = sqrt(x * x + y * y);
        f->low[i] = low;
        f->high[i] = high;
        f->chord_ends[low] = 2 * i;
        f->chord_ends[high] = 2 * i + 1;
        if (!(length > uv_error)) return 0;
        /* The errors of both ends bound the error of the line. The bound is better the more steeply
         * the line meets the edge, so the smaller one is taken. */
        double one = fabs(run->position_error[2 * g] * y - run->position_error[2 * g + 1] * x);
        double two = fabs(run->position_error[2 * h] * y - run->position_error[2 * h + 1] * x);
        f->x[i] = p[0];
        f->y[i] = p[1];
        f->dx[i] = x;
        f->dy[i] = y;
        f->length[i] = length;
        f->error[i] = MIN(one, two) / length + uv_error;
    }
    return 1;
}

/* Sort the slots [begin, end) by their fractions; the sort is stable. */
static void sort_slots(face_t *f, int64_t begin, int64_t end) {
    if (end - begin <= INSERTION) {
        for (int64_t k = begin + 1; k < end; k++) {
            slot_t slot = f->slots[k];
            int64_t i = k;
            for (; i > begin && f->slots[i - 1].along > slot.along; i--)
                f->slots[i] = f->slots[i - 1];
            f->slots[i] = slot;
        }
        return;
    }
    int64_t middle = begin + (end - begin) / 2, i = begin, j = middle, k = begin;
    sort_slots(f, begin, middle);
    sort_slots(f, middle, end);
    while (i < middle || j < end) {
        int first = j >= end || (i < middle && f->slots[i].along <= f->slots[j].along);
        f->sorted[k++] = f->slots[first ? i++ : j++];
    }
    memcpy(f->slots + begin, f->sorted + begin, (size_t)(end - begin) * sizeof *f->slots);
}

/* Find the slots of all chords, in order along each. Returns 0 if chords are parallel. */
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
        /* Line i crosses a strip of width w around line j over a length of |dj| / |area| * w. */
        double strip = (f->error[i] + f->error[j]) / fabs(area);
        int64_t p = f->slot_next[i]++, q = f->slot_next[j]++;
        f->slots[p] = (slot_t){(gx * vy - gy * vx) / area, strip * f->length[j], 2 * k};
        f->slots[q] = (slot_t){(gx * uy - gy * ux) / area, strip * f->length[i], 2 * k + 1};
    }
    for (int64_t i = 0; i < n; i++) {
        sort_slots(f, f->slot_first[i], f->slot_first[i + 1]);
        for (int64_t k = f->slot_first[i]; k < f->slot_first[i + 1]; k++) {
            f->chord[k] = i;
            f->slot[f->slots[k].crossing] = k;
        }
    }
    for (int64_t k = 0; k < 2 * x; k++) {
        int64_t crossing = f->slots[k].crossing;
        f->other[k] = 2 * f->slot[crossing ^ 1] + (crossing & 1);
    }
    return 1;
}

/* Whether all crossings are farther from each other and from the ends than rounding explains. */
static int well_apart(const run_t *run, int64_t n, const face_t *f) {
    double uv_error = run->settings->uv_error, safety = run->settings->safety;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = f->slot_first[i];
        double end = uv_error / f->length[i];
        for (int64_t k = first; k < f->slot_first[i + 1]; k++) {
            const slot_t *slot = f->slots + k;
            double s = slot->along, nearest = MIN(s, 1 - s);
            if (!(nearest > safety * (slot->reach + end))) return 0;
            if (k > first && !(s - slot[-1].along > safety * (slot->reach + slot[-1].reach)))
                return 0;
        }
    }
    return 1;
}

/* Find the n chords of a face, their x crossings, and the divided boundary of the face. */
int sc_find_crossings(const run_t *run, int64_t face, int64_t n, int64_t x, face_t *f,
                      int64_t *places) {
    if (!reserve_chords(f, n) || !reserve_crossings(f, x)) return SC_NO_MEMORY;
    if (find_chords(run, face, f) != n) return SC_MALFORMED;
    find_pairs(n, f, 1);
    *places = find_boundary(run, face, f);
    if (!find_lines(run, n, f) || !find_slots(n, x, f) || !well_apart(run, n, f))
        return SC_DEGENERATE;
    return SC_DONE;
}
