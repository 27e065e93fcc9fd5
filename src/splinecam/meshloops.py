"""Loops of the refinement over edges and whole faces, for numba: import it only where that is.

Edges have their new vertices, groups first[e], ..., first[e + 1] - 1, in order along the edge.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = [
    "bends",
    "between",
    "copy_faces",
    "count_changes",
    "cut_edges",
    "divide_edges",
    "offsets",
    "offsets_of_faces",
    "plan",
]

_WORD = 64

_compiled = numba.njit(nogil=True, cache=True)
_inlined = numba.njit(nogil=True, inline="always")

# Multiplied by a power of two this leaves another number in the top six bits for each of them.
_SEQUENCE = 0x03F79D71B4CB0A89
_BIT = np.zeros(_WORD, np.int64)
_BIT[[(_SEQUENCE << i & 2**_WORD - 1) >> 58 for i in range(_WORD)]] = np.arange(_WORD)


@_inlined
def _lowest(bits: np.uint64) -> int:
    """The place of the lowest bit that is set."""
    return int(_BIT[((bits & (~bits + np.uint64(1))) * np.uint64(_SEQUENCE)) >> np.uint64(58)])


@_inlined
def between(uv: Any, a: int, b: int, t: float, out: Any, i: int) -> None:
    """The point between two, exact at both ends; a third coordinate is the same at both.

    Also for ``faceloops``, which is compiled anew only if that file changes.
    """
    x, y = uv[b, 0] - uv[a, 0], uv[b, 1] - uv[a, 1]
    if t < 0.5:
        out[i, 0], out[i, 1] = uv[a, 0] + t * x, uv[a, 1] + t * y
    else:
        out[i, 0], out[i, 1] = uv[b, 0] - (1 - t) * x, uv[b, 1] - (1 - t) * y
    if uv.shape[1] > 2:
        out[i, 2] = uv[a, 2]


@_compiled
def count_changes(edges: Any, positive: Any, begin: int, end: int, counts: Any) -> None:
    """How many functions change sign along each edge."""
    for e in range(begin, end):
        a, b, count = edges[e, 0], edges[e, 1], 0
        for w in range(positive.shape[1]):
            bits = positive[a, w] ^ positive[b, w]
            while bits:
                bits &= bits - np.uint64(1)
                count += 1
        counts[e] = count


@_compiled
def offsets(counts: Any, out: Any) -> int:
    """Row starts, with the total appended, and returned."""
    out[0] = 0
    for i in range(counts.shape[0]):
        out[i + 1] = out[i] + counts[i]
    return int(out[-1])


@_compiled
def cut_edges(
    mesh: tuple[Any, ...],
    functions: tuple[Any, ...],
    first: Any,
    least: float,
    safety: float,
    begin: int,
    end: int,
    column: Any,
    owner: Any,
    ends: Any,
    t: Any,
    bend: Any,
    place: Any,
    blur: Any,
) -> bool:
    """Where functions change sign along edges; per group, in order along its edge: what it is.

    Returns False where two come close to each other, or one to an end of its edge. mesh: edges and
    uv; functions: z, words, error, jump; least: the rounding of a coordinate. owner: the edge;
    ends: (2, N) of it; bend: by how much the slope of the result changes there, per whole edge;
    place, blur: (N, 2).
    """
    edges, uv = mesh
    z, positive, error, jump = functions
    for e in range(begin, end):
        start, stop = first[e], first[e + 1]
        if start == stop:
            continue
        a, b = edges[e, 0], edges[e, 1]
        g = start
        for w in range(positive.shape[1]):
            bits = positive[a, w] ^ positive[b, w]
            while bits:
                c = w * _WORD + _lowest(bits)
                bits &= bits - np.uint64(1)
                drop = z[a, c] - z[b, c]
                at, i = z[a, c] / drop, g
                while i > start and t[i - 1] > at:
                    t[i], bend[i], column[i] = t[i - 1], bend[i - 1], column[i - 1]
                    i -= 1
                t[i], bend[i], column[i] = at, abs(drop), c
                g += 1
        x, y = uv[b, 0] - uv[a, 0], uv[b, 1] - uv[a, 1]
        length = np.sqrt(x * x + y * y)
        if not min(t[start], 1 - t[stop - 1]) * length > least:
            return False
        reach = 0.0
        for g in range(start, stop):
            shift = error[column[g]] / bend[g]
            before, reach = reach, shift + least / length
            if g > start and not t[g] - t[g - 1] > safety * (before + reach):
                return False
            bend[g] *= jump[column[g]]
            owner[g], ends[0, g], ends[1, g] = e, a, b
            between(uv, a, b, t[g], place, g)
            blur[g, 0], blur[g, 1] = x * shift, y * shift
    return True


@_compiled
def divide_edges(
    mesh: tuple[Any, ...],
    first: Any,
    vertices: int,
    begin: int,
    end: int,
    out: Any,
    out_op: Any,
    out_unit: Any,
) -> None:
    """Divide edges at their groups, of which each begins another piece; mesh: edges, op, unit."""
    edges, op, unit = mesh
    count = edges.shape[0]
    for e in range(begin, end):
        out[e, 0], out[e, 1] = edges[e, 0], edges[e, 1]
        out_op[e], out_unit[e] = op[e], unit[e]
        last = e
        for g in range(first[e], first[e + 1]):
            out[count + g, 0], out[count + g, 1] = vertices + g, edges[e, 1]
            out[last, 1] = vertices + g
            out_op[count + g], out_unit[count + g] = op[e], unit[e]
            last = count + g


# -- faces ------------------------------------------------------------------------------------


@_compiled
def plan(
    face_offsets: Any, chords: Any, crossings: Any, touched: Any, kept: Any, sums: Any
) -> tuple[int, int]:
    """Which faces have chords, and which have none; returns how many do, and the room for one.

    sums: (3, F + 1) chords, crossings and half-edges of the new faces before each.
    """
    before, passed, begins = sums
    count = left = room = 0
    before[0] = passed[0] = begins[0] = 0
    for f in range(chords.shape[0]):
        n, x, size = chords[f], crossings[f], face_offsets[f + 1] - face_offsets[f]
        if n == 0:
            kept[left] = f
            left += 1
            continue
        touched[count] = f
        before[count + 1], passed[count + 1] = before[count] + n, passed[count] + x
        begins[count + 1] = begins[count] + size + 4 * (n + x)
        room = max(room, size + 2 * n, n + 1, 2 * x)
        count += 1
    return count, room


@_compiled
def offsets_of_faces(face_offsets: Any, kept: Any, sizes: Any, out: Any) -> int:
    """Row starts of the kept faces and then of the new ones, with the total, which is returned."""
    out[0] = 0
    for i in range(kept.shape[0]):
        out[i + 1] = out[i] + face_offsets[kept[i] + 1] - face_offsets[kept[i]]
    for i in range(sizes.shape[0]):
        out[kept.shape[0] + i + 1] = out[kept.shape[0] + i] + sizes[i]
    return int(out[-1])


@_compiled
def copy_faces(
    mesh: tuple[Any, ...],
    kept: Any,
    starts: Any,
    made: Any,
    offsets: Any,
    begin: int,
    end: int,
    out: Any,
) -> None:
    """The half-edges of the faces from ``begin`` to ``end``: first the kept ones, then the new.

    mesh: offsets and corners.
    """
    face_offsets, corners = mesh
    for f in range(begin, end):
        old = f < kept.shape[0]
        source = corners if old else made
        start = face_offsets[kept[f]] if old else starts[f - kept.shape[0]]
        for k in range(offsets[f + 1] - offsets[f]):
            out[offsets[f] + k] = source[start + k]


@_compiled
def bends(
    chords: tuple[Any, ...],
    slots: tuple[Any, ...],
    cuts: tuple[Any, ...],
    functions: tuple[Any, ...],
    begin: int,
    end: int,
    units: Any,
    out: Any,
) -> None:
    """By how much the slopes of results bend along chords, at each slot.

    chords, slots: see ``faceloops.cut_faces``; cuts: column, ends and t; functions: z and jump.
    """
    (lines, first), (woven, along) = chords, slots
    (column, ends, t), (z, jump) = cuts, functions
    for i in range(begin, end):
        for k in range(first[i], first[i + 1]):
            c, s = column[lines[0, woven[k]]], along[k]
            # The farther end of the chord tells best how steep the other function is along it.
            g = lines[0, i] if s > 0.5 else lines[1, i]
            p, q = z[ends[0, g], c], z[ends[1, g], c]
            units[k], out[k] = c, jump[c] * abs(p + t[g] * (q - p)) / max(s, 1 - s)
