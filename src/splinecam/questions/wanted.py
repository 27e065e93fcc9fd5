"""What a partition is to answer, if regions on which the answer is certain need not be divided.

Such regions are settled: the answer is the same on all of one, by more than the bounds on its
outputs. All other regions are complete, so that the answer is that of the whole partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam.engine.open_part import Question
from splinecam.files.properties import OutputCondition

Aspect = Literal["argmax", "argmin", "pairwise", "level", "condition"]

_MANY = 64  # outputs whose pairs are too many to be bounded each
_FIELDS = ("A", "b", "strict", "C", "start", "Q", "factors")  # of a condition


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is asked of the outputs.

    aspect: the largest output, the smallest, the order of all, the side of some levels of one, or
    whether a condition holds. pair: the two classes that matter, if not all do. output, levels: the
    levels of which output. condition: the condition.
    """

    aspect: Aspect
    pair: tuple[int, int] | None = None
    output: int = 0
    levels: tuple[float, ...] = ()
    condition: OutputCondition | None = None

    @classmethod
    def classes(
        cls, n: int, kind: Any, level: float = 0.0, pair: tuple[int, int] | None = None
    ) -> Wanted:
        """The decision of a network with n outputs; that of a single one is its side of a level."""
        return cls("level", levels=(level,)) if n == 1 else cls(kind, pair)

    def covers(self, other: Wanted) -> bool:
        """Whether what answers this question answers the other one, too."""
        if other.condition is not None:
            if other.condition.about_inputs_alone:
                return True
            return self.is_about(other.condition)
        if self.aspect == "level":
            known = other.aspect == "level" and other.output == self.output
            return known and {*other.levels} <= {*self.levels}
        order = ("argmax", "argmin", "pairwise") if self.aspect == "pairwise" else (self.aspect,)
        return other.aspect in order and self.pair in (None, other.pair)

    def is_about(self, condition: OutputCondition) -> bool:
        """Whether a condition with the same rows is asked for."""
        own = self.condition
        if own is None:
            return False
        pairs = [(getattr(own, name), getattr(condition, name)) for name in _FIELDS]
        if any((x is None) != (y is None) for x, y in pairs):
            return False
        return all(x is y or torch.equal(x, y) for x, y in pairs)

    def question(self, outputs: int) -> Question | None:
        """The same for the engine, which divides regions as long as the question is open there.

        None if it is about too many pairs of outputs, so that all regions are needed.
        """
        if self.aspect == "argmax" and (self.pair is None or outputs > _MANY):
            return Question()
        if self.aspect in ("argmin", "pairwise") and self.pair is None and outputs > _MANY:
            return None
        return Question(*self._rows(outputs))

    def labels(self, values: Tensor) -> Tensor:
        """The answer at points with outputs (N, n), (N, q), the same all over a settled region."""
        if self.aspect in ("argmax", "argmin"):
            best = (values if self.aspect == "argmax" else -values).argmax(1)
            if self.pair is not None:
                best = torch.where(torch.isin(best, best.new_tensor(self.pair)), best, -1)
            return best[:, None]
        rows, offset, start = self._rows(values.shape[1])
        z = values @ rows.T.to(values) + offset.to(values)
        if start is None:
            return z.sign()
        parts = torch.split(z, start.diff().tolist(), 1)
        true = torch.stack([(part < 0).all(1) for part in parts]).any(0)
        false = torch.stack([(part > 0).any(1) for part in parts]).all(0)
        return (true.long() - false.long())[:, None]

    def _rows(self, n: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """The functions ``rows @ y + offset`` of n outputs y that matter: (m, n), (m,).

        Either all their signs do, or whether all are negative in one of several ranges, which begin
        at start (k + 1,). So a class is the smallest output if all differences to it are negative.
        """
        if self.condition is not None:
            return _rows_of(self.condition)
        eye = torch.eye(n, dtype=torch.float64)
        if self.aspect == "level":
            offset = -torch.tensor(self.levels, dtype=torch.float64)
            return eye[[self.output] * len(self.levels)], offset, None
        if self.aspect == "pairwise":
            pairs = [self.pair] if self.pair is not None else list(combinations(range(n), 2))
            first, second = (eye[list(column)] for column in zip(*pairs, strict=True))
            return first - second, eye.new_zeros(len(pairs)), None
        # Outputs outside of the pair need only win against the pair.
        rivals = [self.pair if self.pair and k not in self.pair else range(n) for k in range(n)]
        ranges = [[j for j in each if j != k] for k, each in enumerate(rivals)]
        ends = torch.tensor([0, *map(len, ranges)]).cumsum(0)
        rows = torch.cat([eye[own] - eye[k] for k, own in enumerate(ranges)])
        return rows if self.aspect == "argmax" else -rows, eye.new_zeros(len(rows)), ends

    @property
    def words(self) -> str:
        """What is asked, in words."""
        if self.condition is not None:
            return "one condition on the outputs"
        if self.aspect == "level":
            named = ", ".join(f"{level:.6g}" for level in self.levels[:4])
            more = ", ..." * (len(self.levels) > 4)
            return f"level{'s' * (len(self.levels) > 1)} {named}{more} of output {self.output}"
        what = "the decision boundary"
        if self.pair is not None:
            what = "the boundary between classes {} and {}".format(*self.pair)
        return what if self.aspect == "argmax" else f"{what} of kind {self.aspect}"

    def written(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The question as JSON and tensors, for files."""
        about = {"aspect": self.aspect, "pair": self.pair, "output": self.output}
        found = {f"wanted_{name}": getattr(self.condition, name, None) for name in _FIELDS}
        tensors = {name: tensor for name, tensor in found.items() if tensor is not None}
        return {**about, "levels": self.levels}, tensors


def _rows_of(condition: OutputCondition) -> tuple[Tensor, Tensor, Tensor]:
    """A condition as functions of which all are to be negative in one of some ranges.

    What depends on inputs or products is 0, which is not certain to be negative or positive. A
    conjunction without rows holds always, as the function -1 does.
    """
    rows, offset, counts = condition.A, -condition.b, condition.start.diff()
    if condition.C is not None:
        open_ = condition.C.ne(0).any(1)
        if condition.Q is not None:
            open_ |= condition.Q.ne(0).any(1)
        rows, offset = rows.masked_fill(open_[:, None], 0.0), offset.masked_fill(open_, 0.0)
    if bool((counts == 0).any()):
        nothing = rows.new_zeros((1, rows.shape[1]))
        return nothing, nothing[:, 0] - 1, torch.tensor([0, 1])
    return rows, offset, condition.start
