"""Cut convex faces by straight chords whose ends are known corners of the face.

Inside one face everything about the chords is said by integers: the places of their two ends on
the boundary. Two chords cross exactly when their ends alternate. So each face is split by one of its
chords, and the other chords go to the left half, the right half, or, when they cross it, to both:

        Q--------+            Q        the splitter P-Q is drawn from Q's and P's corners;
        |  .     |           /|        every chord that crosses it makes one new vertex on it,
     j--+---.----+--j   ->  v v        which is a corner of both halves from then on.
        |    .   |         /  |
        +-----P--+        P   P

All faces are split at the same time, halving the work each round, so a face with k chords needs about
2 log2(k) rounds. Whatever rounding does to the order of the crossings along a splitter, the result is
a proper subdivision; rounding is only asked where along the splitter a chord crosses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.errors import LimitError
from splinecam.predicates import SAFETY, UV_ERROR, cluster
from splinecam.ragged import argsort_rows, offsets_of, owners_of, places_of, take_rows

__all__ = ["Arrangement", "Chords", "Loops", "arrange"]


@dataclass
class Loops:
    """Face boundaries: offsets (F + 1,), and per corner its half-edge and vertex (H,)."""

    offsets: Tensor
    half: Tensor
    vertex: Tensor

    def sizes(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def select(self, faces: Tensor) -> Loops:
        entries, counts = take_rows(self.offsets, faces)
        return Loops(offsets_of(counts), self.half[entries], self.vertex[entries])


@dataclass
class Chords:
    """Chords to draw: the face, the places of both ends on its boundary, and which line it is.

    Per line, once and for all: its end vertices (p, q), their coordinates and the width of the strip in
    which rounding lets the line lie.
    """

    face: Tensor
    p: Tensor
    q: Tensor
    line: Tensor

    def select(self, chosen: Tensor) -> Chords:
        return Chords(self.face[chosen], self.p[chosen], self.q[chosen], self.line[chosen])


@dataclass(frozen=True)
class Lines:
    """The straight lines behind the chords: (L,) end vertices, (L, 2) coordinates, (L,) error."""

    start: Tensor
    end: Tensor
    a: Tensor
    b: Tensor
    error: Tensor


@dataclass
class Arrangement:
    """What drawing the chords made, piece by piece (joined by the caller).

    vertices: (line, s) of each new vertex; edges: (N, 2) with the line each lies on; loops of the
    finished faces; doubts: (line, s, is it out of order) of places rounding could not settle.
    """

    vertex_line: list[Tensor]
    vertex_s: list[Tensor]
    vertex_uv: list[Tensor]
    edges: list[Tensor]
    edge_line: list[Tensor]
    loops: list[Loops]
    doubts: list[Tensor]


def arrange(
    loops: Loops,
    chords: Chords,
    lines: Lines,
    uv: Tensor,
    *,
    first_edge: int,
    max_faces: int | None = None,
) -> Arrangement:
    """Draw all chords into their faces; new edges are numbered from ``first_edge`` on.

    uv: (V, 2) coordinates of the vertices known so far; crossings are appended to them. More than
    ``max_faces`` faces are an error, raised before they are made.
    """
    out = Arrangement([], [], [], [], [], [], [])
    state = _State(loops, chords, lines, uv, first_edge, out)
    done = 0
    while state.chords.face.shape[0]:
        done += state.retire()
        if state.chords.face.shape[0]:
            faces = done + 2 * (state.loops.offsets.shape[0] - 1)
            if max_faces is not None and faces > max_faces:
                raise LimitError("too many regions")
            state.split()
    out.loops.append(state.loops)
    return out


@dataclass
class _State:
    loops: Loops
    chords: Chords
    lines: Lines
    uv: Tensor
    next_edge: int
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
        """Split every face by its most central chord."""
        c, sizes = self.chords, self.loops.sizes()
        splitter = _most_central(c, sizes)
        m = sizes[c.face]
        origin = c.p[splitter]
        p = (c.p - origin[c.face]) % m
        q = (c.q - origin[c.face]) % m
        far = q[splitter]  # place of the splitter's end Q; its start P is place 0
        side_p, side_q = _side(p, far[c.face]), _side(q, far[c.face])
        crossing = (side_p * side_q < 0).nonzero()[:, 0]
        rank, added = self._cross(splitter, crossing)
        first_edge = self._draw(splitter, added)
        self._rebuild_loops(origin, far, added, first_edge)
        self._rebuild_chords(p, q, side_p, side_q, far, m, crossing, rank, added)

    def _cross(self, splitter: Tensor, crossing: Tensor) -> tuple[Tensor, Tensor]:
        """Place the crossings on the splitters.

        Returns each crossing chord's rank along its splitter (0 is P, added + 1 is Q) and the
        number of new vertices on each splitter.
        """
        faces = splitter.shape[0]
        self._new_vertices = self.chords.p.new_zeros(0)
        if not crossing.shape[0]:
            return crossing, splitter.new_zeros(faces)
        c = self.chords
        face = c.face[crossing]
        line = c.line[splitter][face]
        s, error = _meet(self.lines, line, c.line[crossing])
        low, high, end_error = self._ends(splitter, face, line)
        outside = torch.maximum(low - s, s - high) > SAFETY * (error + end_error)
        s = torch.minimum(torch.maximum(s, low), high)

        order = argsort_rows(face, s)
        face, line, s, error = face[order], line[order], s[order], error[order]
        group, best, doubtful = cluster(face, s, error)
        reach = SAFETY * (error + end_error[order])[best]
        at_p = s[best] - low[order][best] <= reach
        at_q = ~at_p & (high[order][best] - s[best] <= reach)
        inner = ~(at_p | at_q)
        added = torch.bincount(face[best][inner], minlength=faces)
        place = torch.cumsum(inner.long(), 0) - offsets_of(added)[face[best]]
        place = torch.where(at_p, 0, torch.where(at_q, added[face[best]] + 1, place))

        new = best[inner]
        self._new_vertices = torch.arange(new.shape[0], device=s.device) + self.uv.shape[0]
        point = torch.lerp(self.lines.a[line[new]], self.lines.b[line[new]], s[new][:, None])
        self.uv = torch.cat([self.uv, point])
        self.out.vertex_line.append(line[new])
        self.out.vertex_s.append(s[new])
        self.out.vertex_uv.append(point)
        self._doubt(line, s, doubtful | outside[order])
        rank = torch.empty_like(place[group])
        rank[order] = place[group]
        return rank, added

    def _ends(self, splitter: Tensor, face: Tensor, line: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where along its line each crossing's splitter starts and ends, and how well that is known."""
        c = self.chords
        starts = self.loops.offsets[:-1]
        a, b = self.lines.a[line], self.lines.b[line]
        d = b - a
        square = (d * d).sum(1)
        low, high = (
            ((self.uv[self.loops.vertex[(starts + end[splitter])[face]]] - a) * d).sum(1) / square
            for end in (c.p, c.q)
        )
        return low, torch.maximum(low, high), UV_ERROR / square.sqrt()

    def _doubt(self, line: Tensor, s: Tensor, doubtful: Tensor) -> None:
        if bool(doubtful.any()):
            a, b = self.lines.a[line[doubtful]], self.lines.b[line[doubtful]]
            self.out.doubts.append(torch.lerp(a, b, s[doubtful][:, None]))

    def _draw(self, splitter: Tensor, added: Tensor) -> Tensor:
        """Make the edges P-v1-...-vk-Q of every splitter; returns each face's first edge id.

        Also leaves the vertices P, v1, ..., vk, Q of every splitter in ``self._path``.
        """
        c, starts = self.chords, self.loops.offsets[:-1]
        count = added + 1
        offsets = offsets_of(count)
        path_offsets = offsets + torch.arange(offsets.shape[0], device=offsets.device)
        path = torch.empty(int(path_offsets[-1]), dtype=torch.int64, device=added.device)
        path[path_offsets[:-1]] = self.loops.vertex[starts + c.p[splitter]]
        path[path_offsets[1:] - 1] = self.loops.vertex[starts + c.q[splitter]]
        middle = owners_of(added, self._new_vertices.shape[0])
        inside = torch.arange(middle.shape[0], device=path.device) + 2 * middle + 1
        path[inside] = self._new_vertices
        tail = torch.ones(path.shape[0], dtype=torch.bool, device=path.device)
        tail[path_offsets[1:] - 1] = False
        from_ = tail.nonzero()[:, 0]
        self.out.edges.append(torch.stack([path[from_], path[from_ + 1]], 1))
        self.out.edge_line.append(c.line[splitter][owners_of(count, from_.shape[0])])
        first = offsets[:-1] + self.next_edge
        self.next_edge += from_.shape[0]
        self._path, self._path_start = path, path_offsets[:-1]
        return first

    def _rebuild_loops(self, origin: Tensor, far: Tensor, added: Tensor, first: Tensor) -> None:
        """Boundaries of both halves of every face.

        Left half:  P ... (old boundary) ... Q vk ... v1;   right half:  Q ... P v1 ... vk.
        """
        m = self.loops.sizes()
        old = torch.stack([far, m - far], 1).view(-1)  # old corners kept by each half
        sizes = old + (added + 1).repeat_interleave(2)
        offsets = offsets_of(sizes)
        half = owners_of(sizes)
        place = places_of(sizes, half, offsets)
        face, right = half >> 1, half & 1
        kept = place < old[half]
        source = (origin[face] + right * far[face] + place) % m[face] + self.loops.offsets[face]
        step = place - old[half]  # along the splitter: Q, vk, ... on the left; P, v1, ... on the right
        edge = first[face] + torch.where(right == 1, step, added[face] - step)
        node = self._path_start[face] + torch.where(right == 1, step, added[face] + 1 - step)
        source = torch.where(kept, source, 0)
        node = torch.where(kept, 0, node)
        new_half = 2 * edge + (1 - right)
        self.loops = Loops(
            offsets,
            torch.where(kept, self.loops.half[source], new_half),
            torch.where(kept, self.loops.vertex[source], self._path[node]),
        )

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


def _meet(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Where line j crosses line i, as a fraction of i, and the rounding error of that."""
    ai, aj = lines.a[i], lines.a[j]
    di, dj = lines.b[i] - ai, lines.b[j] - aj
    gap = aj - ai
    area = di[:, 0] * dj[:, 1] - di[:, 1] * dj[:, 0]
    s = (gap[:, 0] * dj[:, 1] - gap[:, 1] * dj[:, 0]) / area
    # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
    error = (lines.error[i] + lines.error[j]) * dj.norm(dim=1) / area.abs()
    return torch.nan_to_num(s, nan=0.5).clamp(0, 1), torch.nan_to_num(error, nan=torch.inf)
