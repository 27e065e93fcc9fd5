/* Where the vertices of two subdivisions of one polygon lie in each other. */
#include "overlay.h"

enum { PART = 512 };

/* Merge the vertices of both subdivisions on one side of the domain, from a corner to the next. */
static int merge_side(overlay_t *run, int64_t corner, int64_t next) {
    half_t *a = &run->half[0], *b = &run->half[1];
    const double *from = sc_uv(a->mesh, corner), *to = sc_uv(a->mesh, next);
    double x = to[0] - from[0], y = to[1] - from[1], length = sqrt(x * x + y * y), before = 0;
    double apart = 4 * run->slack;
    int64_t g = a->border[corner], h = b->border[corner];
    for (int64_t most = a->mesh->vertices + b->mesh->vertices; most > 0; most--) {
        if (g < 0 || h < 0 || run->border_count == b->mesh->vertices) return SC_DEGENERATE;
        int64_t v = a->mesh->edge[g ^ 1], w = b->mesh->edge[h ^ 1];
        if ((v < run->corners && v != next) || (w < run->corners && w != next))
            return SC_DEGENERATE;
        if (v == next && w == next) return length - before > apart ? SC_DONE : SC_DEGENERATE;
        const double *p = sc_uv(a->mesh, v), *q = sc_uv(b->mesh, w);
        double s = v == next ? INFINITY : ((p[0] - from[0]) * x + (p[1] - from[1]) * y) / length;
        double t = w == next ? INFINITY : ((q[0] - from[0]) * x + (q[1] - from[1]) * y) / length;
        double nearer = MIN(s, t);
        if (!(fabs(t - s) > apart) || !(nearer > before) || (before == 0 && !(nearer > apart)))
            return SC_DEGENERATE;
        before = nearer;
        if (s < t) {
            a->face_of[v] = b->left[h];
            g = a->border[v];
        } else {
            b->face_of[w] = a->left[g];
            run->border_vertex[run->border_count] = (int32_t)w;
            run->border_half[run->border_count++] = (int32_t)g;
            h = b->border[w];
        }
    }
    return SC_DEGENERATE;
}

/* The face in which a place lies, by a walk from a face near it; -1 if the walk goes astray. */
static int64_t find_face(const half_t *half, const double *place) {
    const double *uv = half->corner_uv;
    int64_t face = half->cells[sc_cell_of(half, place)];
    double from[2] = {0, 0}, share = 1 / (double)(half->offset[face + 1] - half->offset[face]);
    for (int64_t c = half->offset[face]; c < half->offset[face + 1]; c++)
        for (int k = 0; k < 2; k++) from[k] += uv[2 * c + k] * share;
    for (int64_t step = 0; step < half->mesh->faces && face >= 0; step++) {
        int64_t c = half->offset[face], end = half->offset[face + 1], last = end - 1;
        double before = sc_side(from, place, uv + 2 * last), after;
        for (;; last = c++) { /* the side through which the walk leaves the face */
            if (c == end) return -1;
            after = sc_side(from, place, uv + 2 * c);
            if (before <= 0 && after > 0) break;
            before = after;
        }
        if (sc_side(uv + 2 * last, uv + 2 * c, place) >= 0) return face;
        face = half->beyond[last];
    }
    return -1;
}

/* Whether a place lies clearly inside a face. */
static int is_inside(const half_t *half, int64_t face, const double *place, double slack) {
    const double *uv = half->corner_uv, *end = uv + 2 * half->offset[face + 1], *p = end - 2;
    for (const double *q = uv + 2 * half->offset[face]; q < end; p = q, q += 2)
        if (!(sc_side(p, q, place) > sc_doubt(p, q, place, slack))) return 0;
    return 1;
}

/* Find three corners of a face that lie far apart, from whose values that of an affine function at
 * a place in the face follows: the first corner is farthest from the place, the
 * second farthest from the first, and the third farthest from the line through both. */
static void find_weights(const half_t *half, int64_t face, const double *place, sc_fit *fit) {
    int64_t begin = half->offset[face], end = half->offset[face + 1], chosen[3] = {0};
    const double *uv = half->corner_uv, *from = place;
    for (int k = 0; k < 2; k++) {
        double best = -1;
        for (int64_t c = begin; c < end; c++) {
            double x = uv[2 * c] - from[0], y = uv[2 * c + 1] - from[1], size = x * x + y * y;
            chosen[k] = size > best ? c : chosen[k];
            best = MAX(size, best);
        }
        from = uv + 2 * chosen[k];
    }
    const double *p = uv + 2 * chosen[0], *q = uv + 2 * chosen[1];
    double x = q[0] - p[0], y = q[1] - p[1], scale = 1 / (x * x + y * y), across = 0;
    chosen[2] = chosen[0];
    for (int64_t c = begin; c < end; c++) {
        double side = sc_side(p, q, uv + 2 * c);
        chosen[2] = fabs(side) > fabs(across) ? c : chosen[2];
        across = fabs(side) > fabs(across) ? side : across;
    }
    /* The line through the first two gives the value beside the place. What is missing is in
     * proportion to the distances of the place and of the third corner from that line. */
    const double *r = uv + 2 * chosen[2];
    double beside = ((place[0] - p[0]) * x + (place[1] - p[1]) * y) * scale;
    double third = ((r[0] - p[0]) * x + (r[1] - p[1]) * y) * scale;
    fit->third_weight = across != 0 ? sc_side(p, q, place) / across : 0;
    fit->second_weight = beside - fit->third_weight * third;
    fit->first = half->corner_vertex[chosen[0]];
    fit->second = half->corner_vertex[chosen[1]];
    fit->third = half->corner_vertex[chosen[2]];
}

static int locate_part(overlay_t *run, int which, int64_t begin, int64_t end) {
    half_t *own = &run->half[which], *other = &run->half[!which];
    sc_fit *fit = run->made->fit + (which ? run->half[0].mesh->vertices - run->corners : 0);
    for (int64_t i = begin; i < end; i++) {
        int64_t v = own->order[i], face = own->face_of[v];
        if (v < run->corners) continue;
        const double *place = sc_uv(own->mesh, v);
        if (own->border[v] < 0) {
            face = find_face(other, place);
            if (face < 0 || !is_inside(other, face, place, run->slack)) return SC_DEGENERATE;
            own->face_of[v] = (int32_t)face;
        } else if (face < 0) {
            return SC_DEGENERATE;
        }
        find_weights(other, face, place, fit + v);
    }
    return SC_DONE;
}

static int locate_first(void *context, int thread, int64_t begin, int64_t end) {
    return locate_part(context, 0, begin, end);
}

static int locate_second(void *context, int thread, int64_t begin, int64_t end) {
    return locate_part(context, 1, begin, end);
}

/* Find the face of the other subdivision for each vertex of both. */
int sc_locate(overlay_t *run) {
    int status = SC_DONE;
    for (int64_t i = 0; i < run->corners && !status; i++)
        status = merge_side(run, i, (i + 1) % run->corners);
    if (status) return status;
    status = sc_parallel(run->pool, run->half[0].mesh->vertices, PART, locate_first, run);
    if (status) return status;
    return sc_parallel(run->pool, run->half[1].mesh->vertices, PART, locate_second, run);
}
