/* Cut the faces of a refinement by their chords, and write the new edges inside them. */
#include <math.h>

#include "refine.h"

/* Divide a face by its only chord. Most faces have one chord and need none of the rest. */
static int halve(const run_t *run, int64_t face, int64_t which, face_t *f) {
    const sc_mesh *mesh = run->mesh;
    const int64_t *first = run->first;
    int64_t number = run->chords_before[which], slots = 2 * run->crossings_before[which];
    int64_t begin = run->halves_before[which], last = run->halves_before[which + 1];
    int64_t chord = mesh->edges + run->points + number + slots, other = run->cut_count + number;
    int64_t written = begin, ends = 0, later = 0, g = 0, h = 0, *out = run->halves;
    for (int64_t c = mesh->offset[face]; c < mesh->offset[face + 1]; c++) {
        int64_t side = mesh->corner[c], e = side >> 1, extra = first[e + 1] - first[e];
        for (int64_t k = 0; k <= extra; k++) {
            int64_t half = sc_half(run, side, k);
            if (k) {
                g = h;
                h = side & 1 ? first[e + 1] - k : first[e] + k - 1;
                if (ends++ == 0) out[written++] = 2 * chord;
            }
            if (ends == 1)
                f->half[later++] = half;
            else
                out[written++] = half;
        }
    }
    int64_t size = written - begin;
    for (int64_t k = 0; k < later; k++) out[written++] = f->half[k];
    out[written++] = 2 * chord + 1;
    if (ends != 2 || written != last) return SC_MALFORMED;
    const double *p = run->point_uv + g * mesh->width, *q = run->point_uv + h * mesh->width;
    double x = q[0] - p[0], y = q[1] - p[1];
    if (!(sqrt(x * x + y * y) > run->settings->uv_error)) return SC_DEGENERATE;
    run->chord_start[number] = g;
    run->chord_end[number] = h;
    run->made->slot_first[number] = slots;
    run->made->edge[2 * chord] = mesh->vertices + g;
    run->made->edge[2 * chord + 1] = mesh->vertices + h;
    run->made->edge_unit[chord] = run->unit[g];
    run->starts[which] = begin;
    run->sizes[which] = size;
    run->starts[other] = begin + size;
    run->sizes[other] = last - begin - size;
    return SC_DONE;
}

/* Write the x crossings of a face; chords, crossings: how many there are in the faces before it. */
static void write_crossings(const run_t *run, int64_t x, int64_t chords, int64_t crossings,
                            const face_t *f) {
    sc_refined *made = run->made;
    int64_t vertices = run->mesh->vertices, width = run->mesh->width;
    double *uv = made->uv + (made->vertices - made->crossings) * width;
    for (int64_t k = 0; k < 2 * x; k++) {
        made->slot_t[2 * crossings + k] = f->slots[k].along;
        run->slot_chord[2 * crossings + k] = chords + f->chord[f->other[k] >> 1];
    }
    for (int64_t k = 0; k < x; k++) {
        int64_t i = f->one[k], slot = f->slot[2 * k], g = f->start[i], h = f->stop[i];
        int64_t at = crossings + k;
        made->cross_chord[at] = chords + i;
        made->cross_slot[at] = 2 * crossings + slot;
        made->cross_start[at] = vertices + g;
        made->cross_end[at] = vertices + h;
        made->cross_t[at] = f->slots[slot].along;
        sc_between(run->point_uv + g * width, run->point_uv + h * width, made->cross_t[at], width,
                   uv + at * width);
    }
}

/* Write the pieces of the n chords of a face, one chord after the other. */
static void write_chords(const run_t *run, int64_t n, int64_t chords, int64_t crossings,
                         const face_t *f) {
    sc_refined *made = run->made;
    int64_t on_edges = run->mesh->vertices, inside = on_edges + run->points + crossings;
    int64_t piece = run->mesh->edges + run->points + chords + 2 * crossings;
    for (int64_t i = 0; i < n; i++) {
        int64_t last = on_edges + f->start[i], unit = run->unit[f->start[i]];
        run->chord_start[chords + i] = f->start[i];
        run->chord_end[chords + i] = f->stop[i];
        made->slot_first[chords + i] = 2 * crossings + f->slot_first[i];
        for (int64_t k = f->slot_first[i]; k < f->slot_first[i + 1]; k++, piece++) {
            made->edge[2 * piece] = last;
            last = inside + (f->slots[k].crossing >> 1);
            made->edge[2 * piece + 1] = last;
            made->edge_unit[piece] = unit;
        }
        made->edge[2 * piece] = last;
        made->edge[2 * piece + 1] = on_edges + f->stop[i];
        made->edge_unit[piece++] = unit;
    }
}

/* Walk around one new face, from a place of the boundary or (slot >= 0) from a slot upwards, and
 * write its half-edges to out[written], ..., at most out[limit - 1]. Returns where they end, or -1
 * if they do not fit. first: the first piece of the chords. */
static int64_t walk(int64_t place, int64_t slot, int64_t places, int64_t first, int64_t written,
                    int64_t limit, const face_t *f, int64_t *out) {
    int64_t i = slot >= 0 ? f->chord[slot] : 0, up = 1;
    while (written < limit) {
        if (slot == -1) { /* along the boundary, up to the next chord */
            out[written++] = f->half[place++];
            if (place == places) return written;
            if (f->chord_ends[place] < 0) continue;
            i = f->chord_ends[place] >> 1;
            up = !(f->chord_ends[place] & 1);
            slot = up ? f->slot_first[i] - 1 : f->slot_first[i + 1];
            if (written == limit) return -1;
        }
        if (up) { /* the piece after this slot */
            slot++;
            out[written++] = 2 * (first + slot + i);
            if (slot == f->slot_first[i + 1]) {
                slot = -1;
                place = f->high[i];
                continue;
            }
            up = !(f->other[slot] & 1);
        } else { /* the piece before it */
            out[written++] = 2 * (first + slot + i) + 1;
            slot--;
            if (slot < f->slot_first[i] || (f->other[slot] & 1)) return written;
        }
        slot = f->other[slot] >> 1;
        i = f->chord[slot];
    }
    return -1;
}

/* Cut a face by n chords with x crossings into 1 + n + x faces: the first contains the first corner
 * of the face, the others begin at the first end of a chord or at a crossing. */
static int cut_face(const run_t *run, int64_t face, int64_t which, face_t *f) {
    int64_t chords = run->chords_before[which], crossings = run->crossings_before[which];
    int64_t n = run->chords_before[which + 1] - chords, places;
    int64_t x = run->crossings_before[which + 1] - crossings, faces = run->cut_count;
    int64_t first = run->mesh->edges + run->points + chords + 2 * crossings;
    int64_t written = run->halves_before[which], last = run->halves_before[which + 1];
    int status = sc_find_crossings(run, face, n, x, f, &places);
    if (status) return status;
    write_crossings(run, x, chords, crossings, f);
    write_chords(run, n, chords, crossings, f);
    for (int64_t k = 0; k < 1 + n + x; k++) {
        int64_t at = k == 0 || k > n ? 0 : f->low[k - 1];
        int64_t slot = k > n ? f->slot[2 * (k - 1 - n)] : -1;
        int64_t made = k == 0   ? which
                       : k <= n ? faces + chords + k - 1
                                : faces + run->chords_before[faces] + crossings + k - 1 - n;
        run->starts[made] = written;
        written = walk(at, slot, places, first, written, last, f, run->halves);
        if (written < 0) return SC_DEGENERATE;
        run->sizes[made] = written - run->starts[made];
    }
    return written == last ? SC_DONE : SC_DEGENERATE;
}

int sc_cut_faces(void *context, int thread, int64_t begin, int64_t end) {
    run_t *run = context;
    face_t f;
    int status = sc_face_open(&f, run->layer->units) ? SC_DONE : SC_NO_MEMORY;
    if (!status && !sc_reserve_places(&f, run->max_boundary)) status = SC_NO_MEMORY;
    for (int64_t i = begin; i < end && !status; i++) {
        int64_t chords = run->chords_before[i + 1] - run->chords_before[i];
        status = (chords == 1 ? halve : cut_face)(run, run->cut[i], i, &f);
    }
    sc_face_close(&f);
    return status;
}
