/* Steps of refine.cu for selected chords, which are given rather than found. */
/* A selected chord: where two units are equal in a face. */
typedef struct {
    i64 face, column, one, two; /* column: one * units + two */
    i64 begin, end;             /* the corners of the face */
    double error;
} selected_t;

DEVICE selected_t selected_of(const run_t *r, i64 i) {
    i64 n = r->units, face = r->key[i] / (n * n), column = r->key[i] % (n * n);
    i64 one = column / n, two = column % n;
    selected_t s = {face, column, one, two, r->offset[face], r->offset[face + 1], 0};
    s.error = r->error[one] + r->error[two];
    return s;
}

DEVICE double difference(const run_t *r, const selected_t *s, i64 v) {
    return r->z[v * r->units + s->one] - r->z[v * r->units + s->two];
}

DEVICE i64 sign_at(const run_t *r, const selected_t *s, i64 c) {
    double value = difference(r, s, r->edge[r->corner[c]]), slack = r->safety * s->error;
    return (value > slack) - (value < -slack);
}

/* Whether a value that counts as zero is larger than rounding explains. */
DEVICE int unclear(const run_t *r, const selected_t *s, i64 v) {
    double reach = s->error;
    if (v >= r->first_new) {
        const i64 *ends = r->parents + 2 * (v - r->first_new);
        double change = difference(r, s, ends[0]) - difference(r, s, ends[1]);
        reach += fabs(change) * r->parents_t_error[v - r->first_new];
    }
    return !(fabs(difference(r, s, v)) <= reach);
}

/* Whether this face records the sign change on the side after a corner. The other face of the side
 * does so if the same chord is selected there. */
DEVICE int records(const run_t *r, const selected_t *s, i64 c) {
    i64 half = r->corner[c], other = r->halfedge_face[half ^ 1], key;
    if (!(half & 1) || other < 0) return 1;
    key = other * r->units * r->units + s->column;
    i64 at = keys_below(r, key);
    return at == r->selected || r->key[at] != key;
}

STEP(find_halfedge_faces, c) {
    r->halfedge_face[r->corner[c]] = row_of(r->offset, r->faces, c);
}

/* Find where the function of a chord changes its sign: on two sides, or at corners. A run of zeros
 * is represented by its first corner. */
STEP(find_ends, i) {
    selected_t s = selected_of(r, i);
    i64 found = 0, at[2];
    for (i64 k = s.begin; k < s.end; k++) {
        i64 sign = sign_at(r, &s, k), next = k + 1 < s.end ? k + 1 : s.begin, walk = next;
        if (sign == 0 && unclear(r, &s, r->edge[r->corner[k]])) give_up(r);
        if (sign == 0) continue;
        while (walk != k && sign_at(r, &s, walk) == 0) walk = walk + 1 < s.end ? walk + 1 : s.begin;
        if (sign_at(r, &s, walk) != -sign) continue;
        if (found < 2) at[found] = walk == next ? 2 * k + 1 : 2 * next;
        found++;
    }
    if (found != 2) {
        give_up(r);
        return;
    }
    r->selected_end[2 * i] = at[0] < at[1] ? at[0] : at[1];
    r->selected_end[2 * i + 1] = at[0] < at[1] ? at[1] : at[0];
    for (int k = 0; k < 2; k++)
        if ((at[k] & 1) && records(r, &s, at[k] >> 1))
            ADD_ONE(r->sign_changes + (r->corner[at[k] >> 1] >> 1) + 1);
}

STEP(find_sign_changes, m) {
    selected_t s = selected_of(r, m / 2);
    i64 c = r->selected_end[m] >> 1, e = r->corner[c] >> 1;
    if (!(r->selected_end[m] & 1) || !records(r, &s, c)) return;
    i64 at = r->sign_changes[e] + ADD_ONE(r->sign_changes_taken + e);
    double value = difference(r, &s, r->edge[2 * e]);
    double change = value - difference(r, &s, r->edge[2 * e + 1]);
    r->raw_t[at] = value / change;
    r->raw_change[at] = fabs(change);
    r->raw_unit[at] = s.column;
    r->raw_edge[at] = e;
}

DEVICE double length_of(const run_t *r, i64 e) {
    const double *p = r->uv + r->edge[2 * e] * r->width, *q = r->uv + r->edge[2 * e + 1] * r->width;
    return sqrt((q[0] - p[0]) * (q[0] - p[0]) + (q[1] - p[1]) * (q[1] - p[1]));
}

DEVICE double t_error_of(const run_t *r, i64 h) {
    i64 n = r->units, column = r->raw_unit[h];
    return (r->error[column / n] + r->error[column % n]) / r->raw_change[h];
}

DEVICE double reach_of(const run_t *r, i64 h) {
    return t_error_of(r, h) + r->uv_error / length_of(r, r->raw_edge[h]);
}

/* Whether a sign change coincides with the one before it on its edge. */
DEVICE int repeats(const run_t *r, i64 h) {
    if (h >= r->sign_changes[r->edges] || h == r->sign_changes[r->raw_edge[h]]) return 0;
    return r->raw_t[h] - r->raw_t[h - 1] <= r->safety * (reach_of(r, h) + reach_of(r, h - 1));
}

/* Two sign changes may share a vertex, as where three units are equal, but not more. */
STEP(merge_sign_changes, h) {
    if (h >= r->sign_changes[r->edges]) return;
    r->distinct[h + 1] = !repeats(r, h);
    if (!repeats(r, h)) return;
    if (repeats(r, h - 1) || repeats(r, h + 1) ||
        r->raw_t[h] - r->raw_t[h - 1] > reach_of(r, h) + reach_of(r, h - 1))
        give_up(r);
}

STEP(count_points, e) { r->first[e] = r->distinct[r->sign_changes[e]]; }

STEP(merge_points, h) {
    if (h >= r->sign_changes[r->edges] || r->distinct[h + 1] == r->distinct[h]) return;
    i64 best = repeats(r, h + 1) && reach_of(r, h + 1) < reach_of(r, h) ? h + 1 : h;
    i64 g = r->distinct[h], e = r->raw_edge[h], a = r->edge[2 * e], b = r->edge[2 * e + 1];
    double t = r->raw_t[best];
    if (!((t < 1 - t ? t : 1 - t) * length_of(r, e) > r->uv_error)) give_up(r);
    between(r->uv + a * r->width, r->uv + b * r->width, t, r->width, r->point_uv + g * r->width);
    r->point_edge[g] = e;
    r->point_start[g] = a;
    r->point_end[g] = b;
    r->point_t[g] = t;
    r->t_error[g] = reach_of(r, best);
}

STEP(place_end, m) {
    selected_t s = selected_of(r, m / 2);
    i64 c = r->selected_end[m] >> 1, half = r->corner[c], e = half >> 1, a, b;
    i64 place = places_of(r, s.face)[0] + c - s.begin;
    double t_error;
    place += r->side_first[c] - r->side_first[s.begin];
    if (r->selected_end[m] & 1) {
        i64 h = r->sign_changes[e];
        while (h + 1 < r->sign_changes[e + 1] && r->raw_unit[h] != s.column) h++;
        i64 g = r->distinct[h + 1] - 1;
        place += half & 1 ? r->first[e + 1] - g : 1 + g - r->first[e];
        r->selected_vertex[m] = r->vertices + g;
        a = r->edge[2 * e];
        b = r->edge[2 * e + 1];
        t_error = t_error_of(r, h);
    } else {
        a = r->selected_vertex[m] = r->edge[half];
        b = r->edge[r->corner[c > s.begin ? c - 1 : s.end - 1]];
        t_error = s.error / fabs(difference(r, &s, b));
    }
    const double *p = r->uv + a * r->width, *q = r->uv + b * r->width;
    r->selected_place[m] = place;
    r->selected_error[2 * m] = (q[0] - p[0]) * t_error;
    r->selected_error[2 * m + 1] = (q[1] - p[1]) * t_error;
}

/* Number the chords of a face by their first ends. */
STEP(place_selected, i) {
    i64 f = selected_of(r, i).face, begin = selected_before(r, f), end = selected_before(r, f + 1);
    i64 low = r->selected_place[2 * i], high = r->selected_place[2 * i + 1], chord = begin;
    const i64 *places = places_of(r, f);
    if (high - low < 2 || high - low > places[1] - places[0] - 2) give_up(r);
    for (i64 j = begin; j < end; j++) {
        i64 p = r->selected_place[2 * j], q = r->selected_place[2 * j + 1];
        if (j != i && (p == low || p == high || q == low || q == high)) give_up(r);
        chord += p < low;
    }
    for (int k = 0; k < 4; k++) r->end_error[4 * chord + k] = r->selected_error[4 * i + k];
    r->chord_face[chord] = f;
    r->chord_unit[chord] = r->selected_unit[i];
    r->low[chord] = low;
    r->high[chord] = high;
    r->start[chord] = r->selected_vertex[2 * i];
    r->stop[chord] = r->selected_vertex[2 * i + 1];
    r->ends[low] = 2 * chord;
    r->ends[high] = 2 * chord + 1;
}

/* Measure the parts of a face with at most one chord. The left part keeps the face's number. */
STEP(measure_half, f) {
    const i64 *places = places_of(r, f), *chords = chords_of(r, f);
    i64 i = chords[0], size = places[1] - places[0];
    if (f == 0) r->made_offset[0] = 0;
    if (chords[1] > i) {
        i64 left = r->high[i] - r->low[i];
        r->made_offset[r->faces + i + 1] = size - left + 1;
        size = left + 1;
    }
    r->made_offset[f + 1] = size ? size : r->offset[f + 1] - r->offset[f];
}

STEP(write_half, f) {
    const i64 *places = places_of(r, f), *chords = chords_of(r, f);
    i64 i = chords[0], *out = r->made_corner + r->made_offset[f], k;
    i64 chord = 2 * (r->edges + r->points + i);
    if (!is_touched(r, f))
        for (k = r->offset[f]; k < r->offset[f + 1]; k++) *out++ = r->corner[k];
    else if (chords[1] == i)
        for (k = places[0]; k < places[1]; k++) *out++ = r->half[k];
    else {
        for (k = r->low[i]; k < r->high[i]; k++) *out++ = r->half[k];
        *out = chord + 1;
        out = r->made_corner + r->made_offset[r->faces + i];
        for (k = r->high[i]; k < places[1]; k++) *out++ = r->half[k];
        for (k = places[0]; k < r->low[i]; k++) *out++ = r->half[k];
        *out = chord;
    }
}
