/* The corners of a convex body in three directions, for boxes.c, and for solid.cu on a GPU. */
#ifndef BODIES_H
#define BODIES_H

/* Choose a corner of a body and three directions to others, about as long and as different as there
 * are; say how far each corner is in these directions, at most 1. */
static void span(const double *uvw, const int64_t *corner, int64_t corners, float *share,
                 int64_t chosen[4], double most[3]) {
    double ways[3][3];
    double plane[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}; /* projects perpendicularly to these */
    const double *origin = uvw + 3 * corner[0];
    chosen[0] = corner[0];
    for (int r = 0; r < 3; r++) {
        double longest = -1, up[3] = {0};
        for (int64_t i = 0; i < corners; i++) {
            double way[3], rest[3], square = 0;
            for (int k = 0; k < 3; k++) way[k] = uvw[3 * corner[i] + k] - origin[k];
            for (int k = 0; k < 3; k++)
                rest[k] = plane[k][0] * way[0] + plane[k][1] * way[1] + plane[k][2] * way[2];
            for (int k = 0; k < 3; k++) square += rest[k] * rest[k];
            if (!(square > longest)) continue;
            longest = square;
            chosen[r + 1] = corner[i];
            for (int k = 0; k < 3; k++) ways[r][k] = way[k];
            for (int k = 0; k < 3; k++) up[k] = rest[k];
        }
        double scale = longest > 0x1p-1000 ? 1 / longest : 0;
        for (int k = 0; k < 9; k++) plane[k / 3][k % 3] -= scale * up[k / 3] * up[k % 3];
    }
    for (int r = 0; r < 3; r++) {
        const double *a = ways[(r + 1) % 3], *b = ways[(r + 2) % 3], *way = ways[r];
        double normal[3], volume = 0;
        most[r] = 0;
        for (int k = 0; k < 3; k++) {
            normal[k] = a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3];
            volume += normal[k] * way[k];
        }
        double inverse = 1 / volume;
        for (int k = 0; k < 3; k++) normal[k] *= inverse - inverse == 0 ? inverse : 0;
        for (int64_t i = 0; i < corners; i++) {
            double part = 0;
            for (int k = 0; k < 3; k++)
                part += normal[k] * (uvw[3 * corner[i] + k] - origin[k]);
            share[3 * i + r] = (float)part;
            most[r] = MAX(most[r], fabs(part));
        }
        for (int64_t i = 0; i < corners && most[r] > 0; i++)
            share[3 * i + r] /= (float)most[r];
    }
}

#endif
