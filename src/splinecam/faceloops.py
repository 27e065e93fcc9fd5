"""Loops of the refinement that cut faces, for numba: import it only where that is installed.

Faces are cut one by one, which is possible where nothing is close to anything else. As soon as a
loop meets something that needs care it returns False, and what it wrote is of no use.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from splinecam.meshloops import between

__all__ = ["count_crossings", "cut_faces"]

_compiled = numba.njit(nogil=True, cache=True)
_inlined = numba.njit(nogil=True, inline="always")  # calls that pass arrays on count references

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
    mesh: tuple[Any, ...],
    first: Any,
    column: Any,
    most: int,
    begin: int,
    end: int,
    opened: Any,
    chords: Any,
    crossings: Any,
) -> bool:
    """How many chords each face has, and how often these cross; no more chords than ``most``.

    mesh: offsets and corners.
    """
    face_offsets, corners = mesh
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
    mesh: tuple[Any, ...],
    cuts: tuple[Any, ...],
    least: float,
    safety: float,
    vertices: int,
    room: int,
    touched: Any,
    sums: Any,
    begin: int,
    end: int,
    opened: Any,
    chords: tuple[Any, ...],
    slots: tuple[Any, ...],
    crossings: tuple[Any, ...],
    pieces: tuple[Any, ...],
    faces: tuple[Any, ...],
) -> bool:
    """Cut the touched faces from ``begin`` to ``end``; sums: see ``meshloops.plan``.

    mesh: offsets and corners; cuts: first, column, place and blur. What is made: per chord the
    groups at its ends, and its first slot; per slot the chord that crosses, and the fraction; per
    crossing its chord and slot, between which vertices it is, at which fraction, and its point;
    pieces of chords and their units; per face how many half-edges, where they are, and these.
    """
    (face_offsets, corners), (first, column, place, blur) = mesh, cuts
    (lines, first_slot), (edges, units), (sizes, starts, out) = chords, pieces, faces
    face, real = np.empty((_WHOLE, room), np.int64), np.empty((_REAL, room))
    divided = first.shape[0] - 1 + column.shape[0]
    for f in range(begin, end):
        start, stop = face_offsets[touched[f]], face_offsets[touched[f] + 1]
        before, passed, begins = sums[0, f], sums[1, f], sums[2, f]
        n, x = sums[0, f + 1] - before, sums[1, f + 1] - passed
        piece, last = before + 2 * passed, sums[2, f + 1]
        if n == 1:
            g, h, size = _halve(corners, start, stop, first, begins, piece + divided, face, out)
            if not _length(place, g, h) > least:
                return False
            lines[0, before], lines[1, before], first_slot[before] = g, h, 2 * passed
            edges[piece, 0], edges[piece, 1] = vertices + g, vertices + h
            units[piece] = column[g]
            other = touched.shape[0] + before
            starts[f], sizes[f], starts[other] = begins, size, begins + size
            sizes[other] = last - begins - size
            continue
        _ends(corners, start, stop, first, column, opened, face)
        _pairs(n, face)
        places = _boundary(corners, start, stop, first, face)
        if not _lines(n, place, blur, least, face, real) or not _cross(n, x, face, real):
            return False
        if not _apart(n, least, safety, face, real):
            return False
        for i in range(n):
            lines[0, before + i], lines[1, before + i] = face[_START, i], face[_STOP, i]
            first_slot[before + i] = 2 * passed + face[_FIRST, i]
            for k in range(face[_FIRST, i], face[_FIRST, i + 1] + 1):
                units[piece + k + i] = column[face[_START, i]]
        _write_crossings(x, before, passed, vertices, place, face, real, slots, crossings)
        _write_edges(n, vertices, vertices + column.shape[0] + passed, piece, face, edges)
        number, total = touched.shape[0], sums[0, touched.shape[0]]
        written = begins
        for k in range(1 + n + x):  # one face for the first corner, each chord, and each crossing
            at = 0 if k == 0 or k > n else face[_LOW, k - 1]
            slot = face[_SLOT, 2 * (k - 1 - n)] if k > n else -1
            which = f if k == 0 else number + before + k - 1
            which = which if k <= n else number + total + passed + k - 1 - n
            starts[which] = written
            written = _walk(at, slot, places, piece + divided, written, last, face, out)
            if written < 0:
                return False
            sizes[which] = written - starts[which]
        if written != last:
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
    x: int,
    before: int,
    passed: int,
    vertices: int,
    place: Any,
    face: Any,
    real: Any,
    slots: Any,
    made: Any,
) -> None:
    (woven, along), (born, ends, t, uv) = slots, made
    for k in range(2 * x):
        along[2 * passed + k] = real[_ALONG, k]
        woven[2 * passed + k] = before + face[_CHORD, face[_OTHER, k]]
    for k in range(x):
        i, slot = face[_ONE, k], face[_SLOT, 2 * k]
        born[0, passed + k], born[1, passed + k] = before + i, 2 * passed + slot
        g, h, s = face[_START, i], face[_STOP, i], real[_ALONG, slot]
        ends[0, passed + k], ends[1, passed + k], t[passed + k] = vertices + g, vertices + h, s
        between(place, g, h, s, uv, passed + k)


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
