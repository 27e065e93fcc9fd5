/* Who wins a group of functions in a convex face: what Judge.judge does, for one contest an item. */
#include "steps.h"

enum { SETTLED, CHORD, SEVERAL, BLURRED };

typedef struct {
    whole size, units, width; /* members of a group, units in all, coordinates of a vertex */
    const double *uv;
    const whole *edge, *offset, *corner;
    const double *table, *tolerance; /* (vertices, units) values, (units) how far they may be off */
    const whole *face, *member;  /* (contests), (contests, size) */
    whole *status, *kind, *pair;
    double *side;
    unsigned char *hopeless; /* (contests, size) */
    /* Lines: which one cuts each contest's face; its two ends, and the units that it is between;
     * whether a contest may have a border along it. */
    const whole *cut, *end, *between;
    double aside; /* a fraction of a line at which units that meet elsewhere are not equal */
    unsigned char *along;
} run_t;

/* One contest: its members, and the corners of its face. */
typedef struct {
    const run_t *r;
    const whole *member;
    whole begin, end;
} contest_t;

DEVICE whole after(const contest_t *c, whole k) { return k + 1 < c->end ? k + 1 : c->begin; }

DEVICE double slack(const contest_t *c, whole m) { return c->r->tolerance[c->member[m]]; }

DEVICE const double *values(const contest_t *c, whole corner) {
    return c->r->table + c->r->edge[c->r->corner[corner]] * c->r->units;
}

/* Between the values at two vertices, t of the way. */
DEVICE double value(const contest_t *c, const double *a, const double *b, double t, whole m) {
    double p = a[c->member[m]], q = b[c->member[m]];
    return t < 0.5 ? p + t * (q - p) : q - (q - p) * (1 - t);
}

/* Whether one of two members is surely exceeded by no other one there. */
DEVICE int may_win(const contest_t *c, const double *a, const double *b, double t, whole one,
                   whole two) {
    double best = -1 / 0.0;
    for (whole m = 0; m < c->r->size; m++) {
        double least = value(c, a, b, t, m) - slack(c, m);
        best = least > best ? least : best;
    }
    return value(c, a, b, t, one) + slack(c, one) >= best ||
           value(c, a, b, t, two) + slack(c, two) >= best;
}

DEVICE int wins_at(const contest_t *c, whole corner, whole one, whole two) {
    const double *z = values(c, corner);
    return may_win(c, z, z, 0, one, two);
}

DEVICE int settled(const contest_t *c) {
    const double *z = values(c, c->begin);
    whole best = 0; /* whoever may win at the first corner is not surely below this one */
    for (whole m = 1; m < c->r->size; m++)
        if (z[c->member[m]] - slack(c, m) > z[c->member[best]] - slack(c, best)) best = m;
    for (whole m = 0; m < c->r->size; m++) {
        whole k = c->begin;
        if (z[c->member[m]] + slack(c, m) < z[c->member[best]] - slack(c, best)) continue;
        while (k < c->end && wins_at(c, k, m, m)) k++;
        if (k == c->end) return 1;
    }
    return 0;
}

/* Who wins in the middle of the side after a corner. */
DEVICE whole middle_winner(const contest_t *c, whole k) {
    const double *a = values(c, k), *b = values(c, after(c, k));
    whole best = 0;
    for (whole m = 1; m < c->r->size; m++)
        if ((a[c->member[m]] + b[c->member[m]]) / 2 > (a[c->member[best]] + b[c->member[best]]) / 2)
            best = m;
    return best;
}

/* The first member to exceed the winner from the middle of a side to an end of it, or -1. */
DEVICE whole overtaker(const contest_t *c, const double *a, const double *b, const double *end,
                       whole winner) {
    whole w = c->member[winner], found = -1;
    double first = 1 / 0.0;
    for (whole m = 0; m < c->r->size; m++) {
        whole u = c->member[m];
        double gain = end[u] - end[w], gap = (a[w] + b[w]) / 2 - (a[u] + b[u]) / 2;
        if (gain > slack(c, m) + slack(c, winner) && gap / (gap + gain) < first) {
            first = gap / (gap + gain);
            found = m;
        }
    }
    return found;
}

/* What there is besides two members where their difference vanishes: -1 if it does so nowhere. */
DEVICE whole others(const contest_t *c, whole one, whole two) {
    whole p = c->member[one], q = c->member[two], above = 0, below = 0, count = 0;
    double least = slack(c, one) + slack(c, two);
    for (whole k = c->begin; k < c->end; k++) {
        const double *z = values(c, k);
        above += z[p] - z[q] > least;
        below += z[p] - z[q] < -least;
        count += !wins_at(c, k, one, two);
    }
    if (!above || !below) return -1;
    /* Where the line meets a side of a face with two winners, no third one may be above. */
    for (whole k = c->begin; k < c->end && !count; k++) {
        const double *a = values(c, k), *b = values(c, after(c, k));
        double x = a[p] - a[q], y = b[p] - b[q];
        if ((x > least && y < -least) || (x < -least && y > least))
            count += !may_win(c, a, b, x / (x - y), one, two);
    }
    return count;
}

DEVICE double length_of(const contest_t *c, whole k) {
    const run_t *r = c->r;
    const double *p = r->uv + r->edge[r->corner[k]] * r->width;
    const double *q = r->uv + r->edge[r->corner[after(c, k)]] * r->width;
    return sqrt((q[0] - p[0]) * (q[0] - p[0]) + (q[1] - p[1]) * (q[1] - p[1]));
}

/* Of the sides on which the winner changes the longest, of those with two winners first: a line
 * that begins in the middle of the longest side leaves no thin halves. */
DEVICE void judge(const run_t *r, whole i) {
    whole f = r->face[i];
    contest_t c = {r, r->member + i * r->size, r->offset[f], r->offset[f + 1]};
    r->pair[2 * i] = r->pair[2 * i + 1] = 0;
    r->side[i] = 0;
    r->kind[i] = SETTLED;
    if (settled(&c)) return;
    r->kind[i] = BLURRED;
    for (whole k = c.begin; k < c.end; k++) {
        const double *a = values(&c, k), *b = values(&c, after(&c, k));
        whole winner = middle_winner(&c, k), other = overtaker(&c, a, b, b, winner);
        if (other < 0) other = overtaker(&c, a, b, a, winner);
        if (other < 0) other = middle_winner(&c, after(&c, k));
        if (other == winner) continue;
        whole more = others(&c, winner, other);
        double side = length_of(&c, k);
        whole kind = more > 0 ? SEVERAL : CHORD;
        if (more < 0 || kind > r->kind[i] || (kind == r->kind[i] && side <= r->side[i])) continue;
        r->kind[i] = kind;
        r->side[i] = side;
        r->pair[2 * i] = c.member[winner];
        r->pair[2 * i + 1] = c.member[other];
    }
}

DEVICE double sum_of(const contest_t *c, whole m) {
    double sum = 0;
    for (whole k = c->begin; k < c->end; k++) sum += values(c, k)[c->member[m]];
    return sum;
}

/* Whether a member of a contest loses everywhere to the winner in the middle, or repeats the member
 * that is next above it there. */
DEVICE void doom(const run_t *r, whole item) {
    whole i = item / r->size, m = item % r->size, f = r->face[i], top = m, next = -1;
    contest_t c = {r, r->member + i * r->size, r->offset[f], r->offset[f + 1]};
    double own = sum_of(&c, m), highest = own, least = 1 / 0.0;
    for (whole k = 0; k < r->size; k++) {
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
    for (whole k = c.begin; k < c.end; k++) {
        const double *z = values(&c, k);
        double at = z[c.member[m]], reach = slack(&c, m);
        lost = lost && at + reach < z[c.member[top]] - slack(&c, top);
        same = same && fabs(z[c.member[next]] - at) <= slack(&c, next) + reach;
    }
    r->hopeless[item] = lost || same;
}

/* Whether a member of a contest equals the one above it all along a line, or is one of both units
 * that the line is between. */
DEVICE void tie(const run_t *r, whole item) {
    whole i = item / r->size, m = item % r->size, line = r->cut[i], next = -1, both = 0;
    contest_t c = {r, r->member + i * r->size, 0, 0};
    const double *a = r->table + r->end[2 * line] * r->units;
    const double *b = r->table + r->end[2 * line + 1] * r->units;
    double own = value(&c, a, b, r->aside, m), least = 1 / 0.0;
    for (whole k = 0; k < r->size; k++) {
        double other = value(&c, a, b, r->aside, k);
        if ((other > own || (other == own && k > m)) && other < least) {
            least = other;
            next = k;
        }
        both |= c.member[m] == r->between[2 * line] && c.member[k] == r->between[2 * line + 1];
    }
    if (next >= 0) {
        whole p = c.member[m], q = c.member[next];
        double reach = slack(&c, m) + slack(&c, next);
        both |= fabs(a[q] - a[p]) <= reach && fabs(b[q] - b[p]) <= reach;
    }
    if (both) r->along[i] = 1;
}

STEP(judge)
STEP(doom)
STEP(tie)
