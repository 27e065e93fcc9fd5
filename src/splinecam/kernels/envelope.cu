/* The maximum of a group of units in a convex face: what envelope.py does, in steps for a GPU. The
 * winner at a point is the largest unit of the group there. */
#include "steps.h"

enum { SETTLED, CHORD, SEVERAL, UNRESOLVED };

typedef struct {
    i64 size, units, width; /* members of a group, units in all, coordinates of a vertex */
    const double *uv;
    const i64 *edge, *offset, *corner;
    const double *table, *tolerance; /* (vertices, units) and (units) */
    const i64 *face, *member;  /* (groups), (groups, size) */
    i64 *status, *kind, *pair;
    double *side;
    unsigned char *dominated; /* (groups, size) */
    /* The line that cuts each group's face; per line its two ends, and the units that are equal on
     * it; per group whether two units may be equal along its line. */
    const i64 *cut, *end, *between;
    double probe_t; /* a fraction of a line at which units are equal only if they are everywhere */
    unsigned char *tied;
} run_t;

/* One group: its members, and the corners of its face. */
typedef struct {
    const run_t *r;
    const i64 *member;
    i64 begin, end;
} group_t;

DEVICE i64 after(const group_t *c, i64 k) { return k + 1 < c->end ? k + 1 : c->begin; }

DEVICE double tolerance_of(const group_t *c, i64 m) { return c->r->tolerance[c->member[m]]; }

DEVICE const double *values(const group_t *c, i64 corner) {
    return c->r->table + c->r->edge[c->r->corner[corner]] * c->r->units;
}

/* The value of a member between two vertices, at the fraction t. */
DEVICE double value(const group_t *c, const double *a, const double *b, double t, i64 m) {
    double p = a[c->member[m]], q = b[c->member[m]];
    return t < 0.5 ? p + t * (q - p) : q - (q - p) * (1 - t);
}

/* Whether one of two members may be the winner there. */
DEVICE int may_win(const group_t *c, const double *a, const double *b, double t, i64 one,
                   i64 two) {
    double best = -1 / 0.0;
    for (i64 m = 0; m < c->r->size; m++) {
        double least = value(c, a, b, t, m) - tolerance_of(c, m);
        best = least > best ? least : best;
    }
    return value(c, a, b, t, one) + tolerance_of(c, one) >= best ||
           value(c, a, b, t, two) + tolerance_of(c, two) >= best;
}

DEVICE int wins_at(const group_t *c, i64 corner, i64 one, i64 two) {
    const double *z = values(c, corner);
    return may_win(c, z, z, 0, one, two);
}

DEVICE int settled(const group_t *c) {
    const double *z = values(c, c->begin);
    i64 best = 0; /* the member with the highest lower bound at the first corner */
    for (i64 m = 1; m < c->r->size; m++)
        if (z[c->member[m]] - tolerance_of(c, m) > z[c->member[best]] - tolerance_of(c, best))
            best = m;
    for (i64 m = 0; m < c->r->size; m++) {
        i64 k = c->begin;
        if (z[c->member[m]] + tolerance_of(c, m) < z[c->member[best]] - tolerance_of(c, best))
            continue;
        while (k < c->end && wins_at(c, k, m, m)) k++;
        if (k == c->end) return 1;
    }
    return 0;
}

/* The winner in the middle of the side after a corner. */
DEVICE i64 middle_winner(const group_t *c, i64 k) {
    const double *a = values(c, k), *b = values(c, after(c, k));
    i64 best = 0;
    for (i64 m = 1; m < c->r->size; m++)
        if ((a[c->member[m]] + b[c->member[m]]) / 2 > (a[c->member[best]] + b[c->member[best]]) / 2)
            best = m;
    return best;
}

/* The first member that exceeds the winner between the middle and an end of a side, or -1. */
DEVICE i64 overtaker(const group_t *c, const double *a, const double *b, const double *end,
                       i64 winner) {
    i64 w = c->member[winner], found = -1;
    double first = 1 / 0.0;
    for (i64 m = 0; m < c->r->size; m++) {
        i64 u = c->member[m];
        double gain = end[u] - end[w], gap = (a[w] + b[w]) / 2 - (a[u] + b[u]) / 2;
        if (gain > tolerance_of(c, m) + tolerance_of(c, winner) && gap / (gap + gain) < first) {
            first = gap / (gap + gain);
            found = m;
        }
    }
    return found;
}

/* How many other winners there are where two members are equal, or -1 if they are equal nowhere. */
DEVICE i64 others(const group_t *c, i64 one, i64 two) {
    i64 p = c->member[one], q = c->member[two], above = 0, below = 0, count = 0;
    double least = tolerance_of(c, one) + tolerance_of(c, two);
    for (i64 k = c->begin; k < c->end; k++) {
        const double *z = values(c, k);
        above += z[p] - z[q] > least;
        below += z[p] - z[q] < -least;
        count += !wins_at(c, k, one, two);
    }
    if (!above || !below) return -1;
    /* If two members win at all corners, none may exceed them where their line meets a side. */
    for (i64 k = c->begin; k < c->end && !count; k++) {
        const double *a = values(c, k), *b = values(c, after(c, k));
        double x = a[p] - a[q], y = b[p] - b[q];
        if ((x > least && y < -least) || (x < -least && y > least))
            count += !may_win(c, a, b, x / (x - y), one, two);
    }
    return count;
}

DEVICE double length_of(const group_t *c, i64 k) {
    const run_t *r = c->r;
    const double *p = r->uv + r->edge[r->corner[k]] * r->width;
    const double *q = r->uv + r->edge[r->corner[after(c, k)]] * r->width;
    return sqrt((q[0] - p[0]) * (q[0] - p[0]) + (q[1] - p[1]) * (q[1] - p[1]));
}

/* Choose two members to cut the face between: on the longest side on which the winner changes, with
 * only two winners if possible. A line that begins on the longest side leaves no thin halves. */
STEP(classify, i) {
    i64 f = r->face[i];
    group_t c = {r, r->member + i * r->size, r->offset[f], r->offset[f + 1]};
    r->pair[2 * i] = r->pair[2 * i + 1] = 0;
    r->side[i] = 0;
    r->kind[i] = SETTLED;
    if (settled(&c)) return;
    r->kind[i] = UNRESOLVED;
    for (i64 k = c.begin; k < c.end; k++) {
        const double *a = values(&c, k), *b = values(&c, after(&c, k));
        i64 winner = middle_winner(&c, k), other = overtaker(&c, a, b, b, winner);
        if (other < 0) other = overtaker(&c, a, b, a, winner);
        if (other < 0) other = middle_winner(&c, after(&c, k));
        if (other == winner) continue;
        i64 more = others(&c, winner, other);
        double side = length_of(&c, k);
        i64 kind = more > 0 ? SEVERAL : CHORD;
        if (more < 0 || kind > r->kind[i] || (kind == r->kind[i] && side <= r->side[i])) continue;
        r->kind[i] = kind;
        r->side[i] = side;
        r->pair[2 * i] = c.member[winner];
        r->pair[2 * i + 1] = c.member[other];
    }
}

DEVICE double sum_of(const group_t *c, i64 m) {
    double sum = 0;
    for (i64 k = c->begin; k < c->end; k++) sum += values(c, k)[c->member[m]];
    return sum;
}

/* Whether a member is everywhere below the member with the largest mean, or equals the member with
 * the next larger mean. */
STEP(find_dominated, item) {
    i64 i = item / r->size, m = item % r->size, f = r->face[i], top = m, next = -1;
    group_t c = {r, r->member + i * r->size, r->offset[f], r->offset[f + 1]};
    double own = sum_of(&c, m), highest = own, least = 1 / 0.0;
    for (i64 k = 0; k < r->size; k++) {
        double sum = sum_of(&c, k);
        if (sum > highest || (sum == highest && k < top)) {
            highest = sum;
            top = k;
        }
        if ((sum > own || (sum == own && k < m)) && sum <= least) {
            least = sum;
            next = k;
        }
    }
    int lost = 1, same = next >= 0;
    for (i64 k = c.begin; k < c.end; k++) {
        const double *z = values(&c, k);
        double at = z[c.member[m]], reach = tolerance_of(&c, m);
        lost = lost && at + reach < z[c.member[top]] - tolerance_of(&c, top);
        same = same && fabs(z[c.member[next]] - at) <= tolerance_of(&c, next) + reach;
    }
    r->dominated[item] = lost || same;
}

/* Whether a member equals the one above it all along a line, or is one of the two units that are
 * equal on the line. */
STEP(find_ties, item) {
    i64 i = item / r->size, m = item % r->size, line = r->cut[i], next = -1, both = 0;
    group_t c = {r, r->member + i * r->size, 0, 0};
    const double *a = r->table + r->end[2 * line] * r->units;
    const double *b = r->table + r->end[2 * line + 1] * r->units;
    double own = value(&c, a, b, r->probe_t, m), least = 1 / 0.0;
    for (i64 k = 0; k < r->size; k++) {
        double other = value(&c, a, b, r->probe_t, k);
        if ((other > own || (other == own && k > m)) && other < least) {
            least = other;
            next = k;
        }
        both |= c.member[m] == r->between[2 * line] && c.member[k] == r->between[2 * line + 1];
    }
    if (next >= 0) {
        i64 p = c.member[m], q = c.member[next];
        double reach = tolerance_of(&c, m) + tolerance_of(&c, next);
        both |= fabs(a[q] - a[p]) <= reach && fabs(b[q] - b[p]) <= reach;
    }
    if (both) r->tied[i] = 1;
}
