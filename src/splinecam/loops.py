"""The innermost loops of the evaluation, for numba: import this only where it is installed.

Rows of a table, one per vertex, are named by their numbers, so that a loop may go over the vertices
in an order in which neighbours come together.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["active", "fill", "grid_order", "put", "see", "within_blocks"]

_WORD = 64
_TOGETHER = 4  # rows that are read at once
_AT_HAND = 16  # rows that are looked at as soon as they are there, in the innermost cache

_compiled = numba.njit(nogil=True, cache=True)
_inlined = numba.njit(nogil=True, inline="always")  # calls that pass arrays on count references
_summing = numba.njit(nogil=True, cache=True, fastmath={"reassoc"})  # in whatever order is fastest


@_compiled
def grid_order(uv: Any, curve: Any, order: Any, rank: Any) -> None:
    """The points (N, 2) in the order of cells of a grid over [-1, 1]^2, and their places in it.

    curve: (side, side) the place of each cell.
    """
    side = curve.shape[0]
    cell = np.empty(order.shape[0], np.int32)
    first = np.zeros(side * side + 1, np.int32)
    for i in range(order.shape[0]):
        x = min(max(int((uv[i, 0] + 1) * 0.5 * side), 0), side - 1)
        y = min(max(int((uv[i, 1] + 1) * 0.5 * side), 0), side - 1)
        cell[i] = curve[x, y]
        first[cell[i] + 1] += 1
    for c in range(side * side):
        first[c + 1] += first[c]
    for i in range(order.shape[0]):
        rank[i] = first[cell[i]]
        order[rank[i]] = i
        first[cell[i]] += 1


@_compiled
def within_blocks(
    rank: Any, step: int, p: Any, q: Any, first: int, order: Any, starts: Any
) -> None:
    """Order lines by the block in which both their ends are, with those between blocks at the end.

    rank: of the vertices, which are taken ``step`` at a time; starts: (blocks + 2,) of each block's
    lines, which are numbered from ``first`` on.
    """
    last = starts.shape[0] - 2
    block = np.empty(p.shape[0], np.int32)
    starts[:] = 0
    for i in range(p.shape[0]):
        one, two = rank[p[i]] // step, rank[q[i]] // step
        block[i] = one if one == two else last
        starts[block[i] + 1] += 1
    for b in range(last + 1):
        starts[b + 1] += starts[b]
    following = starts[:-1].copy()
    for i in range(p.shape[0]):
        order[following[block[i]]] = first + i
        following[block[i]] += 1


# -- signs ------------------------------------------------------------------------------------


@_inlined
def _range(z: Any, rows: Any, begin: int, end: int, low: Any, high: Any, size: Any) -> None:
    """The range (n,) of rows of z, and their least modulus."""
    n = z.shape[1]
    i = begin
    while i < end:  # at the end some rows are read again
        a, b = rows[i], rows[min(i + 1, end - 1)]
        c, d = rows[min(i + 2, end - 1)], rows[min(i + 3, end - 1)]
        for k in range(n):
            p, q, r, s = z[a, k], z[b, k], z[c, k], z[d, k]
            pq, rs = p if p < q else q, r if r < s else s
            least = pq if pq < rs else rs
            low[k] = least if least < low[k] else low[k]
            pq, rs = p if p > q else q, r if r > s else s
            most = pq if pq > rs else rs
            high[k] = most if most > high[k] else high[k]
            p, q, r, s = abs(p), abs(q), abs(r), abs(s)
            pq, rs = p if p < q else q, r if r < s else s
            least = pq if pq < rs else rs
            size[k] = least if least < size[k] else size[k]
        i += _TOGETHER


@_inlined
def _above_zero(z: Any, row: int, positive: Any, negative: Any) -> None:
    """Where a row (n,) is positive, as words (W,); elsewhere it is negative."""
    n = z.shape[1]
    for w in range(positive.shape[1]):
        first = w * _WORD
        bits = np.int64(0)
        if first + _WORD <= n:  # a loop of known length is faster
            for c in range(_WORD):
                bits |= np.int64(z[row, first + c] > 0) << np.int64(c)
        else:
            for c in range(n - first):
                bits |= np.int64(z[row, first + c] > 0) << np.int64(c)
        positive[row, w], negative[row, w] = bits, ~bits


@_inlined
def _beyond(z: Any, row: int, least: Any, positive: Any, negative: Any) -> None:
    """Where a row (n,) is above ``least``, and where below minus that, as words (W,) each."""
    for w in range(positive.shape[1]):
        above, below = np.int64(0), np.int64(0)
        for c in range(w * _WORD, min((w + 1) * _WORD, z.shape[1])):
            above |= np.int64(z[row, c] > least[c]) << np.int64(c & (_WORD - 1))
            below |= np.int64(z[row, c] < -least[c]) << np.int64(c & (_WORD - 1))
        positive[row, w], negative[row, w] = above, below


@_summing
def _few(z: Any, rows: Any, begin: int, end: int, weight: Any, bias: Any, out: Any) -> None:
    """What few functions, weight (m, n), make of the positive parts of some rows."""
    for i in range(begin, end):
        row = rows[i]
        for j in range(weight.shape[0]):
            total = 0.0
            for c in range(weight.shape[1]):
                total += (z[row, c] if z[row, c] > 0 else 0.0) * weight[j, c]
            out[row, j] = total + bias[j]


@_compiled
def see(z: Any, rows: Any, begin: int, end: int, sight: tuple[Any, ...]) -> None:
    """The range and the signs of some rows of z, and more, see ``compiled.Sight``.

    Up to ``least`` (n,) a value is zero; without any columns there nothing is looked at.
    """
    least, low, high, zeros, positive, negative, weight, bias, few = sight
    if least.shape[0] == 0:
        return
    size = np.full(z.shape[1], np.inf)
    _range(z, rows, begin, end, low, high, size)
    near = False
    for c in range(size.shape[0]):
        near |= size[c] <= least[c]
    zeros[0] |= near
    for i in range(begin, end):
        if near:
            _beyond(z, rows[i], least, positive, negative)
        else:
            _above_zero(z, rows[i], positive, negative)
    if weight.shape[0]:
        _few(z, rows, begin, end, weight, bias, few)


# -- values -----------------------------------------------------------------------------------


@_compiled
def active(
    z: Any,
    positive: Any,
    rows: Any,
    begin: int,
    end: int,
    matrix: Any,
    unit: Any,
    x: Any,
    part: Any,
) -> int:
    """The units that are positive in any of some rows; returns how many there are.

    unit: (n,) their numbers; x: their positive parts; part: their rows of the matrix (n, m).
    """
    count = 0
    for w in range(positive.shape[1]):
        bits = np.int64(0)
        for i in range(begin, end):
            bits |= positive[rows[i], w]
        for c in range(w * _WORD, min((w + 1) * _WORD, z.shape[1])):
            if bits >> np.int64(c & (_WORD - 1)) & np.int64(1):
                unit[count] = c
                count += 1
    for i in range(begin, end):
        row = rows[i]
        for k in range(count):
            value = z[row, unit[k]]
            x[i - begin, k] = value if value > 0 else 0.0
    for k in range(count):
        for c in range(matrix.shape[1]):
            part[k, c] = matrix[unit[k], c]
    return count


@_compiled
def fill(
    table: Any,
    rows: Any,
    begin: int,
    end: int,
    first: int,
    lines: tuple[Any, ...],
    sight: tuple[Any, ...],
) -> None:
    """Fill some rows from ``first`` on: between rows p and q at t, less what the kinks take off."""
    p, q, t, line, offsets, places, unit, bend, columns = lines
    m = table.shape[1]
    for i in range(begin, end):
        row = rows[i]
        new = row - first
        a, b, s = p[new], q[new], t[new]
        k, last = offsets[line[new]], offsets[line[new] + 1]
        for c in range(m):
            table[row, c] = table[a, c] + s * (table[b, c] - table[a, c])
        while k < last:
            u, v = unit[k], unit[min(k + 1, last - 1)]
            at, then = places[k], places[min(k + 1, last - 1)]
            w = min(s, at) * (1 - max(s, at)) * bend[k]
            x = min(s, then) * (1 - max(s, then)) * bend[min(k + 1, last - 1)]
            x = x if k + 1 < last else 0.0
            for c in range(m):
                table[row, c] -= w * columns[u, c] + x * columns[v, c]
            k += 2
    see(table, rows, begin, end, sight)


@_compiled
def put(
    y: Any, bias: Any, rows: Any, begin: int, end: int, out: Any, sight: tuple[Any, ...]
) -> None:
    """Copy values to some rows, with a bias added."""
    for start in range(begin, end, _AT_HAND):
        stop = min(start + _AT_HAND, end)
        for i in range(start, stop):
            row = rows[i]
            for c in range(y.shape[1]):
                out[row, c] = y[i - begin, c] + bias[c]
        see(out, rows, start, stop, sight)
