"""The innermost loops of the refinement, for numba: import this only where it is installed.

Faces are cut one by one, which is possible where nothing is close to anything else. As soon as a
loop meets something that needs care it returns False, and what it wrote is of no use.

Edges have their new vertices, groups first[e], ..., first[e + 1] - 1, in order along the edge.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = [
    "bends",
    "copy_faces",
    "count_changes",
    "count_crossings",
    "cut_edges",
    "cut_faces",
    "divide_edges",
    "offsets",
    "offsets_of_faces",
    "plan",
]

_WORD = 64

_compiled = numba.njit(nogil=True, cache=True)
_inlined = numba.njit(nogil=True, inline="always")  # calls that pass arrays on count references


# Multiplied by a power of two this leaves another number in the top six bits for each of them.
_SEQUENCE = 0x03F79D71B4CB0A89
_BIT = np.zeros(_WORD, np.int64)
_BIT[[(_SEQUENCE << i & 2**_WORD - 1) >> 58 for i in range(_WORD)]] = np.arange(_WORD)


@_inlined
def _lowest(bits: np.uint64) -> int:
    """The place of the lowest bit that is set."""
    return int(_BIT[((bits & (~bits + np.uint64(1))) * np.uint64(_SEQUENCE)) >> np.uint64(58)])


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
def cut_edges(
    edges: Any,
    uv: Any,
    positive: Any,
    z: Any,
    unit: Any,
    level: Any,
    error: Any,
    jump: Any,
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

    least: the rounding of a coordinate; owner: the edge; ends: (2, N) of it; bend: by how much the
    slope of the result changes there, per whole edge; place, blur: (N, 2).
    """
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
                value = z[a, unit[c]] - level[c]
                drop = value - (z[b, unit[c]] - level[c])
                at, i = value / drop, g
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
            _between(uv, a, b, t[g], place, g)
            blur[g, 0], blur[g, 1] = x * shift, y * shift
    return True


@_inlined
def _between(uv: Any, a: int, b: int, t: float, out: Any, i: int) -> None:
    """The point between two, exact at both ends; a third coordinate is the same at both."""
    x, y = uv[b, 0] - uv[a, 0], uv[b, 1] - uv[a, 1]
    if t < 0.5:
        out[i, 0], out[i, 1] = uv[a, 0] + t * x, uv[a, 1] + t * y
    else:
        out[i, 0], out[i, 1] = uv[b, 0] - (1 - t) * x, uv[b, 1] - (1 - t) * y
    if uv.shape[1] > 2:
        out[i, 2] = uv[a, 2]


@_compiled
def divide_edges(
    edges: Any,
    op: Any,
    unit: Any,
    first: Any,
    vertices: int,
    begin: int,
    end: int,
    out: Any,
    out_op: Any,
    out_unit: Any,
) -> None:
    """Divide edges at their groups, of which each begins another piece."""
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


# -- chords -----------------------------------------------------------------------------------

# What is known of one face lies in two tables, whole numbers and real ones, with these rows.
# Per chord: the places and the groups of its lower and upper end, its first slot, and where its
# next one goes; where its line begins, its direction, length and error.
_LOW, _HIGH, _START, _STOP, _FIRST, _NEXT = range(6)
_X, _Y, _DX, _DY, _LENGTH, _ERROR = range(6)
# Per slot, of which each crossing has one on either chord: twice the crossing, and one more on its
# second chord; the chord; the crossing's other slot; and the fraction of the chord, and its error.
_MET, _CHORD, _OTHER = range(6, 9)
_ALONG, _REACH = range(6, 8)
# Per crossing: its chords; and twice as many: its slots.
_ONE, _TWO, _SLOT = range(9, 12)
# Per place of the boundary: its half-edge, and twice the chord that ends there, and one more for
# its upper end, or -1. Per mark of the boundary, which is an end of a chord: its place.
_HALF, _END, _PLACE = range(12, 15)
_WHOLE, _REAL = 15, 8


@_inlined
def _ends(
    corners: Any, start: int, stop: int, first: Any, column: Any, opened: Any, face: Any
) -> int:
    """The chords of a face in the order of their lower ends; returns how many, -1 if none can be.

    Their places are marks, for now. opened: (m,) zeros, and so again afterwards.
    """
    n = marks = left = 0
    fine = True
    for c in range(start, stop):
        e, back = corners[c] >> 1, corners[c] & 1
        for k in range(first[e + 1] - first[e]):
            g = first[e + 1] - 1 - k if back else first[e] + k
            which = opened[column[g]]
            if which == 0:
                opened[column[g]] = n + 1
                face[_LOW, n], face[_START, n] = marks, g
                n += 1
                left += 1
            elif which > 0:
                opened[column[g]] = -1
                face[_HIGH, which - 1], face[_STOP, which - 1] = marks, g
                left -= 1
            else:
                fine = False
            marks += 1
    for i in range(n):
        opened[column[face[_START, i]]] = 0
    return n if fine and left == 0 else -1


@_compiled
def count_crossings(
    face_offsets: Any,
    corners: Any,
    first: Any,
    column: Any,
    most: int,
    begin: int,
    end: int,
    opened: Any,
    chords: Any,
    crossings: Any,
) -> bool:
    """How many chords each face has, and how often these cross; no more chords than ``most``."""
    face = np.empty((_WHOLE, 2 * most), np.int64)
    for f in range(begin, end):
        start, stop = face_offsets[f], face_offsets[f + 1]
        marks = sides = last = total = 0
        for c in range(start, stop):
            e = corners[c] >> 1
            extra = first[e + 1] - first[e]
            if extra:
                marks += extra
                sides += 1
                last = column[first[e]]
                total += last
        chords[f], crossings[f] = marks >> 1, 0
        if marks == 0 or (marks == sides == 2 and total == 2 * last):  # one unit, on two sides
            continue
        if marks > 2 * most:
            return False
        n = _ends(corners, start, stop, first, column, opened, face)
        if n < 0:
            return False
        chords[f], crossings[f] = n, _pairs(n, face)
    return True


@_inlined
def _pairs(n: int, face: Any) -> int:
    """The chords that cross, in order, as far as there is room; returns how many there are."""
    x = 0
    for i in range(n):
        j = i + 1
        while j < n and face[_LOW, j] < face[_HIGH, i]:
            if face[_HIGH, j] > face[_HIGH, i]:
                if x < face.shape[1]:
                    face[_ONE, x], face[_TWO, x] = i, j
                x += 1
            j += 1
    return x


@_compiled
def plan(
    face_offsets: Any,
    chords: Any,
    crossings: Any,
    touched: Any,
    kept: Any,
    before: Any,
    passed: Any,
    begins: Any,
) -> tuple[int, int]:
    """Which faces have chords, and which have none; returns how many do, and the room for one.

    before, passed, begins: chords, crossings and half-edges of the new faces before each.
    """
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
def offsets(counts: Any, out: Any) -> int:
    """Row starts, with the total appended, and returned."""
    out[0] = 0
    for i in range(counts.shape[0]):
        out[i + 1] = out[i] + counts[i]
    return int(out[-1])


@_compiled
def offsets_of_faces(face_offsets: Any, kept: Any, sizes: Any, out: Any) -> int:
    """Row starts of the kept faces and then of the new ones, with the total, which is returned."""
    out[0] = 0
    for i in range(kept.shape[0]):
        out[i + 1] = out[i] + face_offsets[kept[i] + 1] - face_offsets[kept[i]]
    for i in range(sizes.shape[0]):
        out[kept.shape[0] + i + 1] = out[kept.shape[0] + i] + sizes[i]
    return int(out[-1])


@_inlined
def _boundary(corners: Any, start: int, stop: int, first: Any, face: Any) -> int:
    """The half-edges of a face's divided boundary, and the places of the marks on it."""
    p = mark = 0
    for c in range(start, stop):
        e, back = corners[c] >> 1, corners[c] & 1
        extra = first[e + 1] - first[e]
        for k in range(extra + 1):
            piece = extra - k if back else k
            edge = e if piece == 0 else first.shape[0] + first[e] + piece - 2
            face[_HALF, p], face[_END, p] = 2 * edge + back, -1
            if k:
                face[_PLACE, mark] = p
                mark += 1
            p += 1
    return p


@_inlined
def _lines(n: int, place: Any, blur: Any, least: float, face: Any, real: Any) -> bool:
    """The lines of the chords, between their groups; and the places of their ends."""
    for i in range(n):
        low, high = face[_PLACE, face[_LOW, i]], face[_PLACE, face[_HIGH, i]]
        face[_LOW, i], face[_HIGH, i] = low, high
        face[_END, low], face[_END, high] = 2 * i, 2 * i + 1
        g, h = face[_START, i], face[_STOP, i]
        x, y = place[h, 0] - place[g, 0], place[h, 1] - place[g, 1]
        length = np.sqrt(x * x + y * y)
        if not length > least:
            return False
        # Both ends are blurred; the estimate is the better the more steeply the line meets the
        # edge, so the smaller one counts.
        one = abs(blur[g, 0] * y - blur[g, 1] * x)
        two = abs(blur[h, 0] * y - blur[h, 1] * x)
        real[_X, i], real[_Y, i], real[_DX, i], real[_DY, i] = place[g, 0], place[g, 1], x, y
        real[_LENGTH, i], real[_ERROR, i] = length, min(one, two) / length + least
    return True


@_inlined
def _cross(n: int, x: int, face: Any, real: Any) -> bool:
    """The slots of all chords: where they cross, in order along each."""
    for i in range(n + 1):
        face[_FIRST, i] = 0
    for k in range(x):
        face[_FIRST, face[_ONE, k] + 1] += 1
        face[_FIRST, face[_TWO, k] + 1] += 1
    for i in range(n):
        face[_FIRST, i + 1] += face[_FIRST, i]
        face[_NEXT, i] = face[_FIRST, i]
    for k in range(x):
        i, j = face[_ONE, k], face[_TWO, k]
        gx, gy = real[_X, j] - real[_X, i], real[_Y, j] - real[_Y, i]
        ux, uy, vx, vy = real[_DX, i], real[_DY, i], real[_DX, j], real[_DY, j]
        area = ux * vy - uy * vx
        if area == 0:
            return False
        # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
        strip = (real[_ERROR, i] + real[_ERROR, j]) / abs(area)
        s, t = (gx * vy - gy * vx) / area, (gx * uy - gy * ux) / area
        _insert(i, 2 * k, s, strip * real[_LENGTH, j], face, real)
        _insert(j, 2 * k + 1, t, strip * real[_LENGTH, i], face, real)
    for k in range(2 * x):
        face[_SLOT, face[_MET, k]] = k
    for k in range(2 * x):
        face[_OTHER, k] = face[_SLOT, face[_MET, k] ^ 1]
    return True


@_inlined
def _insert(i: int, met: int, s: float, reach: float, face: Any, real: Any) -> None:
    """One more crossing of chord i."""
    k = face[_NEXT, i]
    face[_NEXT, i] += 1
    while k > face[_FIRST, i] and real[_ALONG, k - 1] > s:
        real[_ALONG, k], real[_REACH, k] = real[_ALONG, k - 1], real[_REACH, k - 1]
        face[_MET, k], face[_CHORD, k] = face[_MET, k - 1], i
        k -= 1
    real[_ALONG, k], real[_REACH, k] = s, reach
    face[_MET, k], face[_CHORD, k] = met, i


@_inlined
def _apart(n: int, least: float, safety: float, face: Any, real: Any) -> bool:
    """Whether all crossings are farther from each other and from the ends than rounding reaches."""
    for i in range(n):
        first, end = face[_FIRST, i], least / real[_LENGTH, i]
        for k in range(first, face[_FIRST, i + 1]):
            s, reach = real[_ALONG, k], real[_REACH, k]
            if not min(s, 1 - s) > safety * (reach + end):
                return False
            if k > first and not s - real[_ALONG, k - 1] > safety * (reach + real[_REACH, k - 1]):
                return False
    return True


# -- faces ------------------------------------------------------------------------------------


@_compiled
def cut_faces(
    face_offsets: Any,
    corners: Any,
    first: Any,
    column: Any,
    place: Any,
    blur: Any,
    label: Any,
    least: float,
    safety: float,
    vertices: int,
    room: int,
    touched: Any,
    chords: Any,
    crossings: Any,
    begins: Any,
    begin: int,
    end: int,
    opened: Any,
    lines: Any,
    slots: Any,
    woven: Any,
    along: Any,
    born: Any,
    ends: Any,
    t: Any,
    uv: Any,
    edges: Any,
    units: Any,
    sizes: Any,
    starts: Any,
    out: Any,
) -> bool:
    """Cut the touched faces from ``begin`` to ``end``: chords and crossings before each are given.

    Per chord: the groups at its ends, its first slot; per slot: the chord that crosses, the
    fraction; per crossing: chord and slot, the vertices and the fraction between which it is, and
    where that is; edges and their units; per face: how many half-edges, and where in ``out``.
    """
    face, real = np.empty((_WHOLE, room), np.int64), np.empty((_REAL, room))
    divided = first.shape[0] - 1 + column.shape[0]
    for f in range(begin, end):
        start, stop = face_offsets[touched[f]], face_offsets[touched[f] + 1]
        before, passed = chords[f], crossings[f]
        n, x = chords[f + 1] - before, crossings[f + 1] - passed
        piece = before + 2 * passed
        if n == 1:
            g, h, size = _halve(corners, start, stop, first, begins[f], piece + divided, face, out)
            if not _length(place, g, h) > least:
                return False
            lines[0, before], lines[1, before], slots[before] = g, h, 2 * passed
            edges[piece, 0], edges[piece, 1] = vertices + g, vertices + h
            units[piece] = label[column[g]]
            starts[f], sizes[f] = begins[f], size
            other = touched.shape[0] + before
            starts[other] = begins[f] + size
            sizes[other] = begins[f + 1] - begins[f] - size
            continue
        _ends(corners, start, stop, first, column, opened, face)
        _pairs(n, face)
        places = _boundary(corners, start, stop, first, face)
        if not _lines(n, place, blur, least, face, real) or not _cross(n, x, face, real):
            return False
        if not _apart(n, least, safety, face, real):
            return False
        _write_crossings(n, x, before, passed, face, real, lines, slots, woven, along, born)
        inside = vertices + column.shape[0] + passed
        for k in range(x):
            slot = face[_SLOT, 2 * k]
            i = face[_CHORD, slot]
            g, h = face[_START, i], face[_STOP, i]
            _between(place, g, h, real[_ALONG, slot], uv, passed + k)
            ends[0, passed + k], ends[1, passed + k] = vertices + g, vertices + h
            t[passed + k] = real[_ALONG, slot]
        for i in range(n):
            for k in range(face[_FIRST, i], face[_FIRST, i + 1] + 1):
                units[piece + k + i] = label[column[face[_START, i]]]
        _write_edges(n, vertices, inside, piece, face, edges)
        if not _write_faces(
            f,
            n,
            x,
            places,
            piece + divided,
            touched.shape[0],
            chords,
            crossings,
            begins,
            face,
            sizes,
            starts,
            out,
        ):
            return False
    return True


@_inlined
def _halve(
    corners: Any,
    start: int,
    stop: int,
    first: Any,
    written: int,
    piece: int,
    face: Any,
    out: Any,
) -> tuple[int, int, int]:
    """Divide a face by its only chord; returns the groups of its ends, and the first half's size.

    Most faces have one chord, and need none of the rest.
    """
    begun, later, marks, g, h = written, 0, 0, 0, 0
    for c in range(start, stop):
        e, back = corners[c] >> 1, corners[c] & 1
        extra = first[e + 1] - first[e]
        for k in range(extra + 1):
            at = extra - k if back else k
            half = 2 * (e if at == 0 else first.shape[0] + first[e] + at - 2) + back
            if k:
                g, h = h, first[e] + (at if back else at - 1)
                if marks == 0:
                    out[written] = 2 * piece
                    written += 1
                marks += 1
            if marks == 1:
                face[_HALF, later] = half
                later += 1
            else:
                out[written] = half
                written += 1
    for k in range(later):
        out[written + k] = face[_HALF, k]
    out[written + later] = 2 * piece + 1
    return g, h, written - begun


@_inlined
def _length(place: Any, g: int, h: int) -> float:
    x, y = place[h, 0] - place[g, 0], place[h, 1] - place[g, 1]
    return float(np.sqrt(x * x + y * y))


@_inlined
def _write_crossings(
    n: int,
    x: int,
    before: int,
    passed: int,
    face: Any,
    real: Any,
    lines: Any,
    slots: Any,
    woven: Any,
    along: Any,
    born: Any,
) -> None:
    for i in range(n):
        lines[0, before + i], lines[1, before + i] = face[_START, i], face[_STOP, i]
        slots[before + i] = 2 * passed + face[_FIRST, i]
    for k in range(2 * x):
        along[2 * passed + k] = real[_ALONG, k]
        woven[2 * passed + k] = before + face[_CHORD, face[_OTHER, k]]
    for k in range(x):
        born[0, passed + k] = before + face[_ONE, k]
        born[1, passed + k] = 2 * passed + face[_SLOT, 2 * k]


@_inlined
def _write_edges(n: int, on_edges: int, inside: int, piece: int, face: Any, edges: Any) -> None:
    """The pieces of one chord after the other; given are the first vertices on edges and inside."""
    for i in range(n):
        last = on_edges + face[_START, i]
        for k in range(face[_FIRST, i], face[_FIRST, i + 1]):
            edges[piece, 0] = last
            last = inside + (face[_MET, k] >> 1)
            edges[piece, 1] = last
            piece += 1
        edges[piece, 0], edges[piece, 1] = last, on_edges + face[_STOP, i]
        piece += 1


@_inlined
def _write_faces(
    f: int,
    n: int,
    x: int,
    places: int,
    piece: int,
    number: int,
    chords: Any,
    crossings: Any,
    begins: Any,
    face: Any,
    sizes: Any,
    starts: Any,
    out: Any,
) -> bool:
    """The new faces: that of the first corner, one for each chord, and one for each crossing."""
    written = begins[f]
    for k in range(1 + n + x):
        place, slot = 0, -1
        if k == 0:
            which = f
        elif k <= n:
            which, place = number + chords[f] + k - 1, face[_LOW, k - 1]
        else:
            which = number + chords[-1] + crossings[f] + k - 1 - n
            slot = face[_SLOT, 2 * (k - 1 - n)]
        starts[which] = written
        written = _walk(place, slot, places, piece, written, begins[f + 1], face, out)
        if written < 0:
            return False
        sizes[which] = written - starts[which]
    return bool(written == begins[f + 1])


@_inlined
def _walk(
    place: int, slot: int, places: int, first: int, written: int, most: int, face: Any, out: Any
) -> int:
    """One new face, from a place of the boundary, or from a slot on upwards; returns its end.

    first: the first piece. What is met at a crossing, and in which order, see ``weave``.
    """
    up, i = True, 0
    if slot >= 0:
        i = face[_CHORD, slot]
    while written < most:
        if slot == -1:  # along the boundary, up to the next chord
            out[written] = face[_HALF, place]
            written += 1
            place += 1
            if place == places:
                return written
            if face[_END, place] < 0:
                continue
            i, up = face[_END, place] >> 1, not face[_END, place] & 1
            slot = face[_FIRST, i] - 1 if up else face[_FIRST, i + 1]
            if written == most:
                return -1
        if up:  # the piece after this slot
            slot += 1
            out[written] = 2 * (first + slot + i)
            written += 1
            if slot == face[_FIRST, i + 1]:
                slot, place = -1, face[_HIGH, i]
                continue
            up = not face[_MET, slot] & 1
        else:  # the piece before it
            out[written] = 2 * (first + slot + i) + 1
            written += 1
            slot -= 1
            if slot < face[_FIRST, i] or face[_MET, slot] & 1:
                return written
        slot = face[_OTHER, slot]
        i = face[_CHORD, slot]
    return -1


@_compiled
def copy_faces(
    face_offsets: Any,
    corners: Any,
    kept: Any,
    starts: Any,
    made: Any,
    offsets: Any,
    begin: int,
    end: int,
    out: Any,
) -> None:
    """The half-edges of the faces from ``begin`` to ``end``: first the kept ones, then the new."""
    for f in range(begin, end):
        old = f < kept.shape[0]
        source = corners if old else made
        start = face_offsets[kept[f]] if old else starts[f - kept.shape[0]]
        for k in range(offsets[f + 1] - offsets[f]):
            out[offsets[f] + k] = source[start + k]


@_compiled
def bends(
    lines: Any,
    slots: Any,
    woven: Any,
    along: Any,
    column: Any,
    ends: Any,
    t: Any,
    z: Any,
    unit: Any,
    level: Any,
    jump: Any,
    begin: int,
    end: int,
    units: Any,
    out: Any,
) -> None:
    """By how much the slopes of results bend along chords, at each slot."""
    for i in range(begin, end):
        for k in range(slots[i], slots[i + 1]):
            c, s = column[lines[0, woven[k]]], along[k]
            # The farther end of the chord tells best how steep the other function is along it.
            g = lines[0, i] if s > 0.5 else lines[1, i]
            p, q = z[ends[0, g], unit[c]], z[ends[1, g], unit[c]]
            value = p + t[g] * (q - p) - level[c]
            units[k], out[k] = unit[c], jump[c] * abs(value) / max(s, 1 - s)
