/* Loops over rows of numbers, written once and compiled for each set of vector instructions.
 *
 * loops.c includes this file with SUFFIX (appended to every name), TARGET (a function attribute),
 * LANES (numbers in a vector register), and the tile of the matrix product, TILE_ROWS rows by
 * TILE_VECTORS registers, chosen so that the tile stays in registers.
 */

typedef double vec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef uint64_t bits __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
#define SINGLES (2 * LANES)              /* numbers of single precision in a register */
#define PAIR (2 * SINGLES)
#define CHUNK (LANES == 8 ? PANEL : PANEL / 2) /* columns whose sums stay in registers */
typedef float singles __attribute__((vector_size(4 * SINGLES), aligned(4), may_alias));
typedef uint32_t single_bits __attribute__((vector_size(4 * SINGLES), aligned(4), may_alias));

/* Extend ranges and least moduli by some rows of a table with n columns. */
TARGET static void NAME(range)(const double *table, int64_t n, const int64_t *rows, int64_t begin,
                               int64_t end, double *restrict low, double *restrict high,
                               double *restrict size) {
    for (int64_t i = begin; i < end; i += 4) { /* at the end some rows are read again */
        int64_t j = MIN(i + 1, end - 1), k = MIN(i + 2, end - 1), l = MIN(i + 3, end - 1);
        const double *a = table + (rows ? rows[i] : i) * n, *b = table + (rows ? rows[j] : j) * n;
        const double *c = table + (rows ? rows[k] : k) * n, *d = table + (rows ? rows[l] : l) * n;
        for (int64_t u = 0; u < n; u++) {
            double p = a[u], q = b[u], r = c[u], s = d[u];
            low[u] = MIN(MIN(MIN(p, q), MIN(r, s)), low[u]);
            high[u] = MAX(MAX(MAX(p, q), MAX(r, s)), high[u]);
            size[u] = MIN(MIN(MIN(fabs(p), fabs(q)), MIN(fabs(r), fabs(s))), size[u]);
        }
    }
}

/* Where a row of at most 64 numbers, times a sign, is above limits, one bit each. */
TARGET static inline uint64_t NAME(above)(const double *row, const double *limit, double sign,
                                          int64_t count) {
    uint64_t found = 0;
    int64_t c = 0;
    bits gathered = {0};
    for (; c + LANES <= count; c += LANES) {
        vec value = *(const vec *)(row + c) * sign;
        vec bound = limit ? *(const vec *)(limit + c) : (vec){0};
        gathered |= (bits)(value > bound) & *(const bits *)(PLACES + c);
    }
    for (int64_t l = 0; l < LANES; l++) found |= gathered[l];
    for (; c < count; c++) found |= (uint64_t)(row[c] * sign > (limit ? limit[c] : 0)) << c;
    return found;
}

/* Multiply a row, or its positive part, with few columns. */
TARGET static void NAME(narrow_product)(const double *row, int64_t n, int64_t rectified,
                                        int64_t outputs, const double *weight, const double *bias,
                                        double *out) {
    bits all = (bits){0} - (rectified ? 0 : 1);
    for (int64_t j = 0; j < outputs; j++, weight += n) {
        vec total[4] = {{0}};
        double rest = 0;
        int64_t c = 0;
        for (; c + 4 * LANES <= n; c += 4 * LANES)
            for (int v = 0; v < 4; v++) {
                vec value = *(const vec *)(row + c + v * LANES);
                value = (vec)((bits)value & ((bits)(value > (vec){0}) | all));
                total[v] += value * *(const vec *)(weight + c + v * LANES);
            }
        for (; c < n; c++) rest += (row[c] > 0 || !rectified ? row[c] : 0) * weight[c];
        total[0] = (total[0] + total[1]) + (total[2] + total[3]);
        for (int l = 0; l < LANES; l++) rest += total[0][l];
        out[j] = rest + (bias ? bias[j] : 0);
    }
}

/* Extend the range by some rows, and write their signs. */
TARGET static void NAME(scan)(const double *table, const int64_t *rows, int64_t begin, int64_t end,
                              worker_t *own) {
    sc_sign_range *sign_range = &own->sign_range;
    double *size = own->size;
    int64_t n = sign_range->units, words = (n + 63) / 64;
    int near = 0;
    if (!n || begin == end) return;
    for (int64_t u = 0; u < n; u++) size[u] = INFINITY;
    NAME(range)(table, n, rows, begin, end, sign_range->low, sign_range->high, size);
    for (int64_t u = 0; u < n; u++) near |= !(size[u] > sign_range->tolerance[u]);
    sign_range->zeros |= near;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = rows ? rows[i] : i;
        const double *row = table + at * n;
        uint64_t *positive = sign_range->positive + at * words;
        uint64_t *negative = sign_range->negative + at * words;
        for (int64_t w = 0; w < words; w++) {
            int64_t count = MIN(n - 64 * w, 64);
            const double *limit = near ? sign_range->tolerance + 64 * w : NULL;
            positive[w] = NAME(above)(row + 64 * w, limit, 1.0, count);
            negative[w] = near ? NAME(above)(row + 64 * w, limit, -1.0, count)
                               : ~positive[w] & (~0ull >> (64 - count));
        }
    }
}

/* Interpolate between two rows. */
TARGET static void NAME(interpolate)(const double *restrict a, const double *restrict b, double t,
                                     int64_t n, double *restrict out) {
    for (int64_t c = 0; c < n; c++) out[c] = a[c] + t * (b[c] - a[c]);
}

/* Compute new rows on lines: interpolate between rows p and q at t, and subtract what the slope
 * changes of the line amount to there. */
TARGET static void NAME(fill)(double *table, int64_t width, const sc_lines *lines,
                              const int64_t *rows, int64_t begin, int64_t end, worker_t *own) {
    const int32_t *span = own->span;
    const sparse_t *sparse = own->sparse;
    double *weight = own->weight;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = rows ? rows[i] : lines->first + i, at = row - lines->first;
        const double *a = table + lines->p[at] * width, *b = table + lines->q[at] * width;
        double *out = table + row * width, t = lines->t[at];
        int64_t k = lines->lines ? lines->offset[lines->line[at]] : 0;
        int64_t count = lines->lines ? lines->offset[lines->line[at] + 1] - k : 0, c = 0;
        const int64_t *unit = lines->unit + k;
        for (int64_t j = 0; j < count; j++) {
            double s = lines->breakpoint_t[k + j];
            weight[j] = MIN(t, s) * (1 - MAX(t, s)) * lines->slope_change[k + j];
        }
        if (sparse) {
            NAME(interpolate)(a, b, t, width, out);
            for (int64_t j = 0; j < count; j++)
                for (int64_t e = sparse->start[unit[j]]; e < sparse->start[unit[j] + 1]; e++)
                    out[sparse->place[e]] -= weight[j] * sparse->value[e];
            continue;
        }
        for (; c + 4 * LANES <= width; c += 4 * LANES) {
            vec sum[4];
            for (int v = 0; v < 4; v++) {
                vec x = *(const vec *)(a + c + v * LANES), y = *(const vec *)(b + c + v * LANES);
                sum[v] = x + t * (y - x);
            }
            for (int64_t j = 0; j < count; j++) {
                const double *column = lines->column + unit[j] * width + c;
                if (span && (span[2 * unit[j]] >= c + 4 * LANES || span[2 * unit[j] + 1] <= c))
                    continue;
                for (int v = 0; v < 4; v++)
                    sum[v] -= weight[j] * *(const vec *)(column + v * LANES);
            }
            for (int v = 0; v < 4; v++) *(vec *)(out + c + v * LANES) = sum[v];
        }
        for (; c < width; c++) {
            double sum = a[c] + t * (b[c] - a[c]);
            for (int64_t j = 0; j < count; j++)
                sum -= weight[j] * lines->column[unit[j] * width + c];
            out[c] = sum;
        }
    }
}

/* Add to a sum, and add the rounding error of that to `rest`. */
TARGET static inline void NAME(add)(double *sum, double *rest, double added) {
    double before = *sum, total = before + added, back = total - before;
    *rest += (before - (total - back)) + (added - back);
    *sum = total;
}

/* Add what a unit is multiplied with, times a weight, to sums with rounding errors. */
TARGET static inline void NAME(add_unit)(const worker_t *own, const double *restrict column,
                                         int64_t unit, int64_t width, double weight,
                                         double *restrict sum, double *restrict rest) {
    const sparse_t *sparse = own->sparse;
    if (sparse) {
        for (int64_t e = sparse->start[unit]; e < sparse->start[unit + 1]; e++) {
            int32_t c = sparse->place[e];
            NAME(add)(sum + c, rest + c, weight * sparse->value[e]);
        }
        return;
    }
    int64_t from = own->span ? own->span[2 * unit] : 0;
    int64_t to = own->span ? own->span[2 * unit + 1] : width;
    for (int64_t c = from; c < to; c++) NAME(add)(sum + c, rest + c, weight * column[c]);
}

/* Compute the new rows of the lines [begin, end) by running sums: the breakpoints t_j to the left
 * of a row at t have the weight t_j (1 - t), those to its right t (1 - t_j). */
TARGET static void NAME(sum)(double *table, int64_t width, const sc_lines *lines, int64_t begin,
                             int64_t end, worker_t *own) {
    int64_t *found = own->found;
    double *sums = own->weight;
    double *restrict left = sums, *restrict right = sums + width;
    double *restrict left_rest = sums + 2 * width, *restrict right_rest = sums + 3 * width;
    int64_t low = 0, high = lines->count;
    while (low < high) { /* the first row of these lines */
        int64_t middle = (low + high) / 2;
        if (lines->line[middle] < begin)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < lines->count && lines->line[low] < end) {
        int64_t line = lines->line[low], first = lines->offset[line], row = low;
        int64_t count = lines->offset[line + 1] - first;
        for (int64_t k = 0; k < count; k++) found[k] = -1;
        for (; row < lines->count && lines->line[row] == line; row++)
            found[lines->breakpoint[row] - first] = row;
        for (int64_t c = 0; c < 4 * width; c++) sums[c] = 0;
        for (int64_t k = 0; k < count; k++) {
            int64_t unit = lines->unit[first + k];
            double weight = lines->slope_change[first + k] * (1 - lines->breakpoint_t[first + k]);
            const double *column = lines->column + unit * width;
            NAME(add_unit)(own, column, unit, width, weight, right, right_rest);
        }
        for (int64_t k = 0; k < count; k++) {
            int64_t unit = lines->unit[first + k];
            double change = lines->slope_change[first + k], s = lines->breakpoint_t[first + k];
            const double *column = lines->column + unit * width;
            NAME(add_unit)(own, column, unit, width, change * s, left, left_rest);
            NAME(add_unit)(own, column, unit, width, -change * (1 - s), right, right_rest);
            if (found[k] < 0) continue;
            double t = lines->t[found[k]], *out = table + (lines->first + found[k]) * width;
            const double *a = table + lines->p[found[k]] * width;
            const double *b = table + lines->q[found[k]] * width;
            for (int64_t c = 0; c < width; c++) {
                double off = (1 - t) * (left[c] + left_rest[c]) + t * (right[c] + right_rest[c]);
                out[c] = a[c] + t * (b[c] - a[c]) - off;
            }
        }
        low = row;
    }
}

/* Bound the moduli of a layer's values and their rounding errors. */
TARGET static void NAME(bound)(const sc_dense *dense) {
    int64_t m = dense->width;
    double *restrict modulus = dense->bounds, *restrict error = dense->bounds + SC_ERROR * m;
    for (int64_t j = 0; j < m; j++) {
        modulus[j] = dense->bias ? fabs(dense->bias[j]) : 0;
        error[j] = 0;
    }
    for (int64_t u = 0; u < dense->units; u++) {
        const double *restrict column = dense->column + u * m;
        double size = dense->magnitude[u], shift = dense->error[u];
        for (int64_t j = 0; j < m; j++) {
            double part = column[j] * shift;
            modulus[j] += fabs(column[j]) * size;
            error[j] += part * part;
        }
    }
    for (int64_t j = 0; j < m; j++) {
        int normal = error[j] > LEAST_SQUARE && error[j] < LARGEST_SQUARE;
        error[j] = normal ? sqrt(error[j]) : sum_of_errors(dense, j);
    }
    /* Values inside faces are interpolated between values that are interpolated on edges. */
    double roundings = dense->edge_method == SC_DIRECT ? 1 : 3;
    for (int64_t j = 0; j < m; j++)
        error[j] += roundings * dense->eps * modulus[j];
}

/* Multiply one tile: some units of x (places, TILE_ROWS) and y (units, TILE_COLUMNS). */
TARGET static void NAME(tile)(int64_t depth, const int32_t *unit, const int32_t *place,
                              const double *factor, const double *y, double *out) {
    vec sum[TILE_ROWS][TILE_VECTORS] = {{{0}}};
    for (int64_t k = 0; k < depth; k++) {
        const double *row = y + (int64_t)unit[k] * TILE_COLUMNS;
        const double *x = factor + (int64_t)place[k] * TILE_ROWS;
        vec right[TILE_VECTORS];
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) right[v] = *(const vec *)(row + v * LANES);
        UNROLL for (int r = 0; r < TILE_ROWS; r++)
            UNROLL for (int v = 0; v < TILE_VECTORS; v++) sum[r][v] += x[r] * right[v];
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            *(vec *)(out + r * TILE_COLUMNS + v * LANES) = sum[r][v];
}

/* Multiply a tile of rows with a sparse matrix; the result lies in `out` column by column. */
TARGET static void NAME(sparse_tile)(const sparse_t *sparse, int64_t depth,
                                     const int32_t *restrict unit, const double *restrict x,
                                     int64_t width, double *restrict out) {
    memset(out, 0, (size_t)(width * TILE_ROWS) * sizeof *out);
    for (int64_t k = 0; k < depth; k++, x += TILE_ROWS)
        for (int64_t e = sparse->start[unit[k]]; e < sparse->start[unit[k] + 1]; e++) {
            double *sum = out + (int64_t)sparse->place[e] * TILE_ROWS, value = sparse->value[e];
            UNROLL for (int r = 0; r < TILE_ROWS; r++) sum[r] += x[r] * value;
        }
}

/* Multiply the rows of a block; units that are zero in all of them are left out.
 * x: (depth, TILE_ROWS) per tile of rows, y: (units, TILE_COLUMNS) per tile of columns. */
TARGET static void NAME(block)(const sc_dense *dense, const int64_t *rows, int64_t count,
                               worker_t *own, double *table) {
    int64_t n = dense->units, m = dense->width, depth = 0, rectified = dense->rectified;
    double *x = own->x, *peak = own->peak, floor = rectified ? 0 : -INFINITY;
    const double *const *row = own->row;
    if (m < MIN_TILED) { /* x has the transposed columns */
        for (int64_t u = 0; u < n; u++)
            for (int64_t j = 0; j < m; j++) x[j * n + u] = dense->column[u * m + j];
        for (int64_t i = 0; i < count; i++) {
            double out[MIN_TILED];
            NAME(narrow_product)(row[i], n, rectified, m, x, dense->bias, out);
            for (int64_t j = 0; j < m; j++) table[rows[i] * m + j] = out[j];
        }
        return;
    }
    for (int64_t u = 0; u < n; u++) peak[u] = !rectified;
    for (int64_t i = 0; i < count; i++) {
        const double *z = row[i];
        if (i + PREFETCH < count) /* the rows of a block are scattered over the memory */
            for (int64_t u = 0; u < n; u += 8) __builtin_prefetch(row[i + PREFETCH] + u);
        for (int64_t u = 0; u < n; u++) peak[u] = MAX(z[u], peak[u]);
    }
    for (int64_t u = 0; u < n; u++)
        if (peak[u] > 0) own->unit[depth++] = (int32_t)u;
    for (int64_t i = 0; i < count; i += TILE_ROWS) {
        const double *z[TILE_ROWS]; /* the last tile repeats its last row */
        double *to = x + i * depth;
        for (int64_t r = 0; r < TILE_ROWS; r++) z[r] = row[MIN(i + r, count - 1)];
        for (int64_t k = 0; k < depth; k++, to += TILE_ROWS) {
            int64_t u = own->unit[k];
            UNROLL for (int r = 0; r < TILE_ROWS; r++) to[r] = z[r][u] < floor ? 0 : z[r][u];
        }
    }
    for (int64_t i = 0; own->sparse && i < count; i += TILE_ROWS) {
        NAME(sparse_tile)(own->sparse, depth, own->unit, x + i * depth, m, own->sums);
        for (int64_t r = 0; r < MIN(count - i, TILE_ROWS); r++) {
            double *to = table + rows[i + r] * m;
            for (int64_t j = 0; j < m; j++)
                to[j] = own->sums[j * TILE_ROWS + r] + (dense->bias ? dense->bias[j] : 0);
        }
    }
    for (int64_t c = 0; !own->sparse && c < m; c += TILE_COLUMNS) {
        int64_t left = MIN(m - c, TILE_COLUMNS), chosen = 0;
        int32_t *unit = own->chosen, *place = own->chosen + n;
        for (int64_t k = 0; k < depth; k++) {
            const int32_t *span = own->span ? own->span + 2 * own->unit[k] : NULL;
            unit[chosen] = own->unit[k];
            place[chosen] = (int32_t)k;
            chosen += !span || (span[0] < c + TILE_COLUMNS && span[1] > c);
        }
        for (int64_t i = 0; i < count; i += TILE_ROWS) {
            double out[TILE_ROWS * TILE_COLUMNS];
            int64_t last = MIN(count - i, TILE_ROWS);
            NAME(tile)(chosen, unit, place, x + i * depth, own->y + c * n, out);
            for (int64_t r = 0; r < last; r++) {
                double *to = table + rows[i + r] * m + c;
                const double *bias = dense->bias ? dense->bias + c : ZEROS;
                for (int64_t j = 0; j < left; j++) to[j] = out[r * TILE_COLUMNS + j] + bias[j];
            }
        }
    }
}

/* Multiply the numbers of some units with a panel, the last one with its moduli.
 * x: (ways + 1, stride); out: the same, of which PANEL columns are written. */
TARGET static inline __attribute__((always_inline)) void NAME(ways)(
    int ways, int64_t depth, const int32_t *unit, const float *x, const float *panel, float *out,
    int64_t stride) {
    for (int first = 0; first < PANEL; first += CHUNK) {
        singles sum[5][CHUNK / SINGLES] = {{{0}}};
        for (int64_t k = 0; k < depth; k++) {
            const float *row = panel + (int64_t)unit[k] * PANEL + first;
            const float *at = x + unit[k];
            UNROLL for (int v = 0; v < CHUNK / SINGLES; v++) {
                singles right = *(const singles *)(row + v * SINGLES);
                singles size = (singles)((single_bits)right & 0x7fffffffu);
                UNROLL for (int r = 0; r < ways; r++) sum[r][v] += at[r * stride] * right;
                sum[ways][v] += at[ways * stride] * size;
            }
        }
        UNROLL for (int r = 0; r <= ways; r++)
            UNROLL for (int v = 0; v < CHUNK / SINGLES; v++)
                *(singles *)(out + r * stride + first + v * SINGLES) = sum[r][v];
    }
}

TARGET static void NAME(affine)(int64_t depth, const int32_t *unit, const float *x,
                                const float *panel, float *out, int64_t stride) {
    NAME(ways)(3, depth, unit, x, panel, out, stride);
}

TARGET static void NAME(affine4)(int64_t depth, const int32_t *unit, const float *x,
                                 const float *panel, float *out, int64_t stride) {
    NAME(ways)(4, depth, unit, x, panel, out, stride);
}

/* Replace units by lines. x: (4, stride) what their products are, less the offsets, and what they
 * become; rounding: (width) of the products. */
TARGET static void NAME(lines)(int64_t width, int64_t stride, const float *restrict offset,
                               const float *restrict rounding, float *restrict x,
                               float *restrict slope, float *restrict noise) {
    float *restrict right = x + stride, *restrict up = right + stride, *restrict wide = up + stride;
    for (int64_t u = 0; u < width; u++) {
        float middle = x[u] + offset[u], radius = UPWARDS * wide[u];
        float reach = fabsf(right[u]) + fabsf(up[u]) + radius + rounding[u];
        float above = middle + reach, below = middle - reach;
        above = above > 0 ? above : 0;
        below = below < 0 ? below : 0;
        float part = above / (above - below), share = above > 0 ? part : 0;
        slope[u] = share;
        noise[u] = -0.5f * below * share;
        x[u] = middle * share + noise[u];
        right[u] *= share;
        up[u] *= share;
        wide[u] = radius * share + noise[u];
    }
}

/* Of each two numbers the first where a comparison is true. */
TARGET static inline singles NAME(chosen)(single_bits first, singles one, singles other) {
    return (singles)((first & (single_bits)one) | (~first & (single_bits)other));
}

/* The same on a body with corners, of which each has three shares; x: (5, stride). */
TARGET static void NAME(corner_lines)(int64_t width, int64_t stride, int64_t corners,
                                      const float *share, const float *offset,
                                      const float *rounding, float *x, float *slope, float *noise) {
    for (int64_t u = 0; u < width; u += PAIR) {
        float low[PAIR], high[PAIR], *restrict a = x + u, *restrict b = a + stride;
        float *restrict c = b + stride, *restrict d = c + stride, *restrict wide = d + stride;
        singles way[4][2], least[2], most[2];
        UNROLL for (int r = 0; r < 4; r++)
            UNROLL for (int v = 0; v < 2; v++) way[r][v] = *(singles *)(a + r * stride + v * SINGLES);
        UNROLL for (int v = 0; v < 2; v++) {
            least[v] = (singles){0} + INFINITY;
            most[v] = (singles){0} - INFINITY;
        }
        for (int64_t k = 0; k < corners; k++)
            UNROLL for (int v = 0; v < 2; v++) {
                singles value = way[0][v] + share[3 * k] * way[1][v];
                value += share[3 * k + 1] * way[2][v];
                value += share[3 * k + 2] * way[3][v];
                least[v] = NAME(chosen)(value < least[v], value, least[v]);
                most[v] = NAME(chosen)(value > most[v], value, most[v]);
            }
        UNROLL for (int v = 0; v < 2; v++) {
            *(singles *)(low + v * SINGLES) = least[v];
            *(singles *)(high + v * SINGLES) = most[v];
        }
        const float *restrict off = offset + u, *restrict rounded = rounding + u;
        float *restrict slopes = slope + u, *restrict noises = noise + u;
        for (int i = 0; i < MIN(PAIR, width - u); i++) {
            float radius = UPWARDS * wide[i], reach = radius + rounded[i];
            float above = high[i] + off[i] + reach, below = low[i] + off[i] - reach;
            above = above > 0 ? above : 0;
            below = below < 0 ? below : 0;
            float part = above / (above - below), part_of = above > 0 ? part : 0;
            slopes[i] = part_of;
            noises[i] = -0.5f * below * part_of;
            a[i] = (a[i] + off[i]) * part_of + noises[i];
            b[i] *= part_of;
            c[i] *= part_of;
            d[i] *= part_of;
            wide[i] = radius * part_of + noises[i];
        }
    }
}

/* The sum of the moduli of the rows of x, (rows, stride), of units that are not off, and the sum of
 * their squares; returns the largest rounding of these. */
TARGET static float NAME(moduli)(int64_t width, int64_t stride, int64_t rows, const float *slope,
                                const float *rounding, const float *restrict x,
                                float *restrict sum, double *square) {
    float most[SINGLES] = {0};
    double squares[SINGLES] = {0};
    for (int64_t u = 0; u < width; u++) sum[u] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < width; u++) sum[u] += fabsf(x[r * stride + u]);
    for (int64_t u = 0; u < (width & -SINGLES); u += SINGLES)
        for (int k = 0; k < SINGLES; k++) {
            float on = slope[u + k] != 0 ? rounding[u + k] : 0;
            double wide = slope[u + k] != 0 ? sum[u + k] : 0;
            most[k] = on > most[k] ? on : most[k];
            squares[k] += wide * wide;
        }
    for (int64_t u = width & -SINGLES; u < width; u++) {
        if (slope[u] == 0) continue;
        most[0] = rounding[u] > most[0] ? rounding[u] : most[0];
        squares[0] += (double)sum[u] * sum[u];
    }
    for (int k = 0; k < SINGLES; k++) *square += squares[k];
    for (int k = 1; k < SINGLES; k++) most[0] = most[k] > most[0] ? most[k] : most[0];
    return most[0];
}

/* Raise the distances of values z at a corner from the affine functions x: (5, stride). */
TARGET static void NAME(misfit)(int64_t width, int64_t stride, const float *share, const double *z,
                                const float *x, float *restrict off) {
    float one = share[0], two = share[1], three = share[2];
    for (int64_t u = 0; u < width; u++) {
        float value = x[u] + one * x[stride + u] + two * x[2 * stride + u];
        float gap = fabsf((float)z[u] - (value + three * x[3 * stride + u]));
        off[u] = gap > off[u] ? gap : off[u];
    }
}

/* Multiply rows of coefficients with the factors of MIXED units. factor: (depth, MIXED); x: (depth,
 * stride); out: (MIXED, stride), of which `width` columns are written, whole panels. */
TARGET static void NAME(mix)(int64_t depth, const float *factor, const float *x, int64_t stride,
                             int64_t width, float *out) {
    for (int64_t c = 0; c < width; c += 2 * SINGLES) {
        singles sum[MIXED][2] = {{{0}}};
        for (int64_t k = 0; k < depth; k++) {
            const float *row = x + k * stride + c, *by = factor + k * MIXED;
            singles left = *(const singles *)row, right = *(const singles *)(row + SINGLES);
            UNROLL for (int r = 0; r < MIXED; r++) {
                sum[r][0] += by[r] * left;
                sum[r][1] += by[r] * right;
            }
        }
        UNROLL for (int r = 0; r < MIXED; r++)
            UNROLL for (int v = 0; v < 2; v++)
                *(singles *)(out + r * stride + c + v * SINGLES) = sum[r][v];
    }
}

/* Multiply some units with a panel. x: (depth); out: (PANEL). */
TARGET static void NAME(way)(int64_t depth, const int32_t *unit, const float *x,
                             const float *panel, float *out) {
    singles sum[PANEL / SINGLES] = {{0}};
    for (int64_t k = 0; k < depth; k++) {
        const float *row = panel + (int64_t)unit[k] * PANEL;
        UNROLL for (int v = 0; v < PANEL / SINGLES; v++)
            sum[v] += x[k] * *(const singles *)(row + v * SINGLES);
    }
    for (int v = 0; v < PANEL / SINGLES; v++) *(singles *)(out + v * SINGLES) = sum[v];
}

static const loops_t NAME(loops) = {NAME(scan),  NAME(fill),  NAME(sum), NAME(interpolate),
                                    NAME(block), NAME(bound), NAME(affine), NAME(lines),
                                    NAME(way), NAME(affine4), NAME(corner_lines), NAME(moduli),
                                    NAME(misfit), NAME(mix),
                                    TILE_ROWS,   TILE_COLUMNS};

#undef SINGLES
#undef PAIR
#undef CHUNK
#undef SUFFIX
#undef TARGET
#undef LANES
#undef TILE_ROWS
#undef TILE_VECTORS
