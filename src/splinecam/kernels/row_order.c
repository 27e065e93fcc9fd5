/* Rows at places of the plane in an order in which neighbours come together. */
#include <stdlib.h>

#include "loops.h"

enum { CELL_ROWS = 4 }; /* rows in a cell of the grid that orders them */

/* The position of a cell of a grid of side 2^levels on Hilbert's curve. */
static int64_t hilbert(int64_t x, int64_t y, int levels) {
    int64_t place = 0;
    for (int64_t half = (int64_t)1 << levels >> 1; half; half >>= 1) {
        int64_t right = (x & half) != 0, upper = (y & half) != 0;
        place += half * half * ((3 * right) ^ upper);
        x &= half - 1;
        y &= half - 1;
        if (!upper) {
            if (right) {
                x = half - 1 - x;
                y = half - 1 - y;
            }
            int64_t swap = x;
            x = y;
            y = swap;
        }
    }
    return place;
}

static int64_t cell_of(double value, int64_t side) {
    double at = (value + 1) * 0.5 * (double)side;
    return !(at > 0) ? 0 : at >= (double)side ? side - 1 : (int64_t)at;
}

int sc_order_rows(const sc_dense *dense, int64_t rows, int64_t *order, int64_t *rank) {
    const int64_t *wanted = dense->wanted;
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) count += !wanted || wanted[i] >= 0;
    int levels = 0; /* rows that are multiplied one by one need no order */
    while (dense->width >= MIN_TILED && levels < 15 &&
           ((int64_t)CELL_ROWS << 2 * (levels + 1)) <= count)
        levels++;
    if (!dense->uv && !wanted) {
        for (int64_t i = 0; i < rows; i++) order[i] = rank[i] = i;
        return 1;
    }
    int64_t side = (int64_t)1 << levels;
    int32_t *cell = malloc((size_t)(rows + 1) * sizeof *cell);
    int64_t *first = calloc((size_t)(side * side + 1), sizeof *first);
    if (cell && first) {
        for (int64_t i = 0; i < rows; i++) {
            if (wanted && wanted[i] < 0) continue;
            const double *uv = dense->uv + i * dense->uv_width;
            cell[i] = (int32_t)hilbert(cell_of(uv[0], side), cell_of(uv[1], side), levels);
            first[cell[i] + 1]++;
        }
        for (int64_t c = 0; c < side * side; c++) first[c + 1] += first[c];
        for (int64_t i = 0; i < rows; i++) {
            if (wanted && wanted[i] < 0) continue;
            rank[i] = first[cell[i]]++;
            order[rank[i]] = i;
        }
    }
    free(cell);
    free(first);
    return cell && first;
}
