/* The faces of an overlay, from the half-edges that follow one another around them. */
#include "overlay.h"

/* Follow the half-edges of the first subdivision around its faces. */
int sc_link_first(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    const half_t *own = &run->half[0];
    for (int64_t f = begin; f < end; f++) {
        int64_t before = own->corner_half[own->offset[f + 1] - 1];
        for (int64_t c = own->offset[f]; c < own->offset[f + 1]; c++) {
            int64_t half = own->corner_half[c];
            run->next[sc_last_piece(run, before)] = sc_first_piece(run, half);
            before = half;
        }
    }
    return SC_DONE;
}

/* Follow the half-edges of the second subdivision around its faces. Its border consists of pieces
 * of the first one's. */
int sc_link_second(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    const half_t *own = &run->half[1];
    for (int64_t f = begin; f < end; f++) {
        int64_t before = own->corner_half[own->offset[f + 1] - 1];
        for (int64_t c = own->offset[f]; c < own->offset[f + 1]; c++) {
            int64_t half = own->corner_half[c], v = own->corner_vertex[c];
            int inner = run->inner_of[half >> 1] >= 0, was_inner = run->inner_of[before >> 1] >= 0;
            if (v >= run->corners) { /* at those only the border meets */
                int32_t *pieces = run->border_pieces + 2 * v;
                int32_t to = inner ? sc_first_piece_of_second(run, half) : pieces[1];
                int32_t from = was_inner ? sc_last_piece_of_second(run, before) : pieces[0];
                if (from < 0 || to < 0) return SC_DEGENERATE;
                run->next[from] = to;
            }
            before = half;
        }
    }
    return SC_DONE;
}

/* Turn left where an edge of the one subdivision crosses one of the other. */
int sc_link_crossings(void *context, int thread, int64_t begin, int64_t end) {
    overlay_t *run = context;
    for (int64_t x = begin; x < end; x++) {
        int64_t half = run->cross_half[x], a = 2 * ((half >> 1) + run->cross_point[x]);
        int64_t b = 2 * (run->second_edges + run->cross_inner[x] + x);
        /* The pieces before and after the crossing are a and a + 2, b and b + 2. The second edge
         * crosses from the left of `half` to its right. */
        int32_t *next = run->next;
        int32_t in = (int32_t)b, out = (int32_t)(b + 2), ahead, behind;
        int back = half & 1;
        ahead = (int32_t)(back ? a + 1 : a + 2);    /* away from the crossing along `half` */
        behind = (int32_t)(back ? a + 3 : a);       /* towards the crossing along `half` */
        next[behind] = in + 1;    /* left of `half` is where the second edge comes from */
        next[in] = ahead;         /* left of the second edge is ahead along `half` */
        next[ahead ^ 1] = out;    /* from ahead, the second edge goes on to the left */
        next[out + 1] = behind ^ 1;
    }
    return SC_DONE;
}

/* Write the faces one after the other. */
int sc_trace_faces(overlay_t *run) {
    sc_overlaid *made = run->made;
    int64_t written = 0, faces = 0;
    int32_t *next = run->next;
    made->offset[0] = 0;
    for (int64_t start = 0; start < 2 * made->edges; start++) {
        if (next[start] < 0) continue;
        int64_t half = start, after;
        if (faces == made->faces) return SC_DEGENERATE;
        do {
            if (written == made->corners) return SC_DEGENERATE;
            after = next[half];
            if (after < 0) return SC_DEGENERATE;
            next[half] = -1;
            made->corner[written++] = half;
            half = after;
        } while (half != start);
        made->offset[++faces] = written;
    }
    return faces == made->faces && written == made->corners ? SC_DONE : SC_DEGENERATE;
}
