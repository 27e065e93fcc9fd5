"""Cut convex faces by straight chords whose ends are known corners of the face.

Inside one face everything about the chords is said by integers: the places of their two ends on
the boundary. Two chords cross exactly when their ends alternate. So each face is split by one of
its chords; the others go to the left half, the right half, or, when they cross it, to both:

        Q--------+            Q        the splitter P-Q is drawn from Q's and P's corners;
        |  .     |           /|        every chord that crosses it makes one new vertex on it,
     j--+---.----+--j   ->  v v        which is a corner of both halves from then on.
        |    .   |         /  |
        +-----P--+        P   P

All faces are split at the same time, and a face with k chords needs about 2 log2(k) rounds. Only
the order of the crossings along a splitter is a matter of floating point, and whatever rounding
does to it, the result is a proper subdivision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import argsort_rows, lengths, offsets_of, owners_of, places_of, take
from splinecam._util.tolerances import SAFETY, UV_ERROR, cluster
from splinecam.arrangement.chords import (
    Arrangement,
    Chords,
    FaceBoundaries,
    Lines,
    drift_and_error,
    meet,
)
from splinecam.errors import LimitError

__all__ = ["arrange", "split_once"]


def arrange(
    loops: FaceBoundaries,
    chords: Chords,
    lines: Lines,
    out: Arrangement,
    *,
    max_faces: int | None = None,
) -> None:
    """Draw all chords into their faces, appending to ``out``.

    More than ``max_faces`` faces are an error, raised before they are made.
    """
    state = _State(loops, chords, lines, out)
    done = 0
    while state.chords.face.shape[0]:
        done += state.retire()
        if state.chords.face.shape[0]:
            faces = done + 2 * (state.loops.offsets.shape[0] - 1)
            if max_faces is not None and faces > max_faces:
                raise LimitError("too many regions")
            state.split()
    out.loops.append(state.loops)


def split_once(
    loops: FaceBoundaries, chords: Chords, lines: Lines, out: Arrangement
) -> FaceBoundaries:
    """Split every face i by chord i, for which p < q; it becomes faces 2i and 2i + 1.

    Left half:  P ... (old boundary) ... Q;   right half:  Q ... P; the chord closes both.
    """
    p, q, sizes, total = chords.p, chords.q, loops.sizes(), loops.half.shape[0]
    offsets = offsets_of(torch.stack([q - p + 1, sizes - q + p + 1], 1).view(-1))
    owner = owners_of(sizes, total)
    place = places_of(sizes, owner, loops.offsets)
    low, high = take(p, owner), take(q, owner)
    left = (place >= low) & (place < high)
    begin = take(offsets, 2 * owner + ~left)
    at = begin + torch.where(left, place - low, (place - high) % take(sizes, owner))
    half = loops.half.new_empty(total + 2 * p.shape[0]).scatter_(0, at, loops.half)
    new = 2 * (torch.arange(p.shape[0], device=p.device) + out.num_edges)
    half.scatter_(0, offsets[1::2] - 1, new + 1).scatter_(0, offsets[2::2] - 1, new)
    out.add_edges(torch.stack([lines.start, lines.end], 1))
    return FaceBoundaries(offsets, half)


@dataclass
class _State:
    loops: FaceBoundaries
    chords: Chords
    lines: Lines
    out: Arrangement

    def retire(self) -> int:
        """Drop chords that lie along an edge; put aside, and count, the faces without chords."""
        sizes = self.loops.sizes()
        c = self.chords
        gap = (c.q - c.p) % sizes[c.face]
        alive = (gap > 1) & (gap < sizes[c.face] - 1)
        if not bool(alive.all()):
            self.chords = c = c.select(alive.nonzero()[:, 0])
        busy = torch.zeros(sizes.shape[0], dtype=torch.bool, device=sizes.device)
        busy[c.face] = True
        finished = (~busy).nonzero()[:, 0]
        if finished.shape[0]:
            self.out.loops.append(self.loops.select(finished))
            self.loops = self.loops.select(busy.nonzero()[:, 0])
            rank = torch.cumsum(busy.long(), 0) - 1
            c.face = rank[c.face]
        return int(finished.shape[0])

    def split(self) -> None:
        """Split every face by its most central chord, unless some must be bent first."""
        c, sizes = self.chords, self.loops.sizes()
        splitter = _most_central(c, sizes)
        m = sizes[c.face]
        origin = c.p[splitter]
        p = (c.p - origin[c.face]) % m
        q = (c.q - origin[c.face]) % m
        far = q[splitter]  # place of the splitter's end Q; its start P is place 0
        side_p, side_q = _side(p, far[c.face]), _side(q, far[c.face])
        crossing = (side_p * side_q < 0).nonzero()[:, 0]
        if self._bend(splitter, crossing):
            return
        rank, added, new_vertices = self._cross(splitter, crossing)
        self._rebuild_loops(origin, far, added, self._draw(splitter, added, new_vertices))
        self._rebuild_chords(p, q, side_p, side_q, far, m, crossing, rank, added)

    def _bend(self, splitter: Tensor, crossing: Tensor) -> bool:
        """Lead splitters through corners that they pass too closely to cross the chord there.

        Such a splitter P-Q is replaced by P-c and c-Q; returns whether there was any.
        """
        c, lines = self.chords, self.lines
        face = c.face[crossing]
        line = c.line[splitter][face]
        ends = torch.stack([c.p[crossing], c.q[crossing]])
        corner = self.out.edges.view(-1)[self.loops.half[self.loops.offsets[face] + ends]]
        d = lines.b[line] - lines.a[line]
        gap = self.out.uv[corner] - lines.a[line]
        distance = (gap[..., 0] * d[:, 1] - gap[..., 1] * d[:, 0]).abs() / lengths(d)
        # A corner that does not lie between the splitter's ends would lead it back and forth.
        s = (gap * d).sum(2) / (d * d).sum(1)
        low, high, _ = self._ends(splitter, face, line)
        distance = torch.where((s > low) & (s < high), distance, torch.inf)
        distance, nearer = distance.min(0)
        # Only the splitter's own error counts: it is the one that would be moved.
        reach = lines.error[line] + UV_ERROR
        hit = (distance <= SAFETY * reach).nonzero()[:, 0]
        if not hit.shape[0]:
            return False
        one = hit.new_full((splitter.shape[0],), crossing.shape[0])
        one.scatter_reduce_(0, face[hit], hit, "amin")  # one corner at a time in each face
        hit = one[one < crossing.shape[0]]
        self._doubt(self.out.uv[corner[nearer[hit], hit]][distance[hit] > reach[hit]])
        bent = splitter[face[hit]]
        place = ends[nearer[hit], hit]
        kept = torch.ones(c.face.shape[0], dtype=torch.bool, device=hit.device)
        kept[bent] = False
        rest = c.select(kept.nonzero()[:, 0])
        self.chords = Chords(
            torch.cat([rest.face, face[hit], face[hit]]),
            torch.cat([rest.p, c.p[bent], place]),
            torch.cat([rest.q, place, c.q[bent]]),
            torch.cat([rest.line, line[hit], line[hit]]),
        )
        return True

    def _doubt(self, places: Tensor) -> None:
        """Note places (N, 2) that rounding could not settle."""
        if places.shape[0]:
            self.out.ambiguities.append(places)

    def _cross(self, splitter: Tensor, crossing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Place the crossings on the splitters.

        Returns each crossing chord's rank along its splitter (0 is P, added + 1 is Q), the number
        of new vertices on each splitter, and these vertices in order.
        """
        faces = splitter.shape[0]
        if not crossing.shape[0]:
            return crossing, splitter.new_zeros(faces), crossing
        c = self.chords
        face = c.face[crossing]
        line = c.line[splitter][face]
        s = meet(self.lines, line, c.line[crossing])[0][0]
        common_shift, error = drift_and_error(self.lines, line, c.line[crossing])
        low, high, end_error = self._ends(splitter, face, line)
        outside = torch.maximum(low - s, s - high) > SAFETY * (
            error + end_error + common_shift.abs()
        )
        s = torch.minimum(torch.maximum(s, low), high)

        order = argsort_rows(face, s)
        face, line, s, error = face[order], line[order], s[order], error[order]
        group, best, doubtful = cluster(face, s, error, common_shift[order])
        reach = (error + end_error[order])[best]
        from_p, from_q = s[best] - low[order][best], high[order][best] - s[best]
        at_p = from_p <= SAFETY * reach
        at_q = ~at_p & (from_q <= SAFETY * reach)
        doubtful |= ((at_p & (from_p > reach)) | (at_q & (from_q > reach)))[group]
        inner = ~(at_p | at_q)
        added = torch.bincount(face[best][inner], minlength=faces)
        place = torch.cumsum(inner.long(), 0) - offsets_of(added)[face[best]]
        place = torch.where(at_p, 0, torch.where(at_q, added[face[best]] + 1, place))

        new = best[inner]
        vertices = torch.arange(new.shape[0], device=s.device) + self.out.num_vertices
        self.out.add_vertices(self.lines.point(line[new], s[new]))
        self.out.vertex_line.append(line[new])
        self.out.vertex_s.append(s[new])
        doubtful |= outside[order]
        self._doubt(self.lines.point(line[doubtful], s[doubtful]))
        rank = torch.empty_like(group)
        rank[order] = place[group]
        return rank, added, vertices

    def _end_vertices(self, splitter: Tensor) -> tuple[Tensor, Tensor]:
        """Vertices P and Q of every face's splitter, (F,) each."""
        starts, ends = self.loops.offsets[:-1], self.out.edges.view(-1)
        p, q = (
            ends[self.loops.half[starts + place[splitter]]]
            for place in (self.chords.p, self.chords.q)
        )
        return p, q

    def _ends(self, splitter: Tensor, face: Tensor, line: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where on its line each crossing's splitter starts and ends, and the error of that."""
        own = self.chords.line[splitter]
        a = self.lines.a[own]
        d = self.lines.b[own] - a
        square = (d * d).sum(1)
        low, high = (
            ((self.out.uv[v] - a) * d).sum(1) / square for v in self._end_vertices(splitter)
        )
        error = UV_ERROR / square.sqrt()
        return low[face], torch.maximum(low, high)[face], error[face]

    def _draw(self, splitter: Tensor, added: Tensor, new_vertices: Tensor) -> Tensor:
        """Make the edges P-v1-...-vk-Q of every splitter; returns their offsets, (F + 1,)."""
        offsets = offsets_of(added + 1)
        path_start = offsets + torch.arange(offsets.shape[0], device=offsets.device)
        path = new_vertices.new_empty(new_vertices.shape[0] + 2 * splitter.shape[0])
        path[path_start[:-1]], path[path_start[1:] - 1] = self._end_vertices(splitter)
        face = owners_of(added, new_vertices.shape[0])
        path[torch.arange(face.shape[0], device=path.device) + 2 * face + 1] = new_vertices
        edges = torch.stack([path[:-1], path[1:]], 1)
        real = torch.ones(edges.shape[0], dtype=torch.bool, device=path.device)
        real[path_start[1:-1] - 1] = False  # from one splitter's Q to the next one's P
        edges = edges[real.nonzero()[:, 0]]
        self.out.add_edges(edges)
        self.out.edge_line.append(self.chords.line[splitter][owners_of(added + 1, edges.shape[0])])
        return offsets

    def _rebuild_loops(self, origin: Tensor, far: Tensor, added: Tensor, drawn: Tensor) -> None:
        """Boundaries of both halves of every face.

        Left half:  P ... (old boundary) ... Q vk ... v1;   right half:  Q ... P v1 ... vk.
        Each is three runs of one pool: the old half-edges (two runs, as places wrap around), and
        the new ones, forwards for the right half and backwards for the left.
        """
        m, old = self.loops.sizes(), self.loops.half
        count = self.out.num_edges - int(drawn[-1])
        new = torch.arange(2 * count, 2 * self.out.num_edges, 2, device=old.device)
        pool = torch.cat([old, new, new.flip(0) + 1])
        start = self.loops.offsets[:-1]
        turn = (origin + far) % m  # place of Q
        k = added + 1
        forwards = old.shape[0] + drawn[:-1]
        backwards = old.shape[0] + 2 * new.shape[0] - drawn[1:]
        before_p, before_q = torch.minimum(far, m - origin), torch.minimum(m - far, m - turn)
        counts = torch.stack([before_p, far - before_p, k, before_q, m - far - before_q, k], 1)
        sources = torch.stack([start + origin, start, backwards, start + turn, start, forwards], 1)
        counts, sources = counts.view(-1), sources.view(-1)
        run = owners_of(counts)
        shift = sources - offsets_of(counts)[:-1]
        half = pool[shift[run] + torch.arange(run.shape[0], device=run.device)]
        self.loops = FaceBoundaries(offsets_of(counts.view(-1, 3).sum(1)), half)

    def _rebuild_chords(
        self,
        p: Tensor,
        q: Tensor,
        side_p: Tensor,
        side_q: Tensor,
        far: Tensor,
        m: Tensor,
        crossing: Tensor,
        rank: Tensor,
        added: Tensor,
    ) -> None:
        """Hand every chord to the half it lies in; a crossing chord is divided between both."""
        c = self.chords
        far = far[c.face]
        side = side_p + side_q
        left = (side > 0).nonzero()[:, 0]
        right = (side < 0).nonzero()[:, 0]
        k = added[c.face[crossing]]
        fx, mx = far[crossing], m[crossing]
        on_left = (fx + k + 1 - rank) % (fx + k + 1)
        on_right = (mx - fx + rank) % (mx - fx + k + 1)
        p_left = side_p[crossing] > 0

        def right_place(x: Tensor, chosen: Tensor) -> Tensor:
            return (x[chosen] - far[chosen]) % m[chosen]

        self.chords = Chords(
            face=torch.cat(
                [
                    2 * c.face[left],
                    2 * c.face[right] + 1,
                    2 * c.face[crossing],
                    2 * c.face[crossing] + 1,
                ]
            ),
            p=torch.cat(
                [
                    p[left],
                    right_place(p, right),
                    torch.where(p_left, p[crossing], on_left),
                    torch.where(p_left, on_right, right_place(p, crossing)),
                ]
            ),
            q=torch.cat(
                [
                    q[left],
                    right_place(q, right),
                    torch.where(p_left, on_left, q[crossing]),
                    torch.where(p_left, right_place(q, crossing), on_right),
                ]
            ),
            line=torch.cat([c.line[left], c.line[right], c.line[crossing], c.line[crossing]]),
        )


def _side(place: Tensor, far: Tensor) -> Tensor:
    """+1 strictly between P (place 0) and Q, -1 beyond Q, 0 at either."""
    inner = (place > 0) & (place != far)
    return torch.where(inner, torch.where(place < far, 1, -1), 0)


def _most_central(c: Chords, sizes: Tensor) -> Tensor:
    """For every face the chord that halves its boundary best, (F,)."""
    m = sizes[c.face]
    score = (2 * ((c.q - c.p) % m) - m).abs()
    n = c.face.shape[0]
    key = score * n + torch.arange(n, device=score.device)
    least = key.new_full(sizes.shape, torch.iinfo(torch.int64).max)
    return least.scatter_reduce_(0, c.face, key, "amin") % n
