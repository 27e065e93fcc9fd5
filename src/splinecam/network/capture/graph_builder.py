"""What has been read of a graph so far: its values, its steps and cuts, and what speaks against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.errors import OffendingOp
from splinecam.network.capture.constants import Sized, parts_of
from splinecam.network.capture.graph import location_of, name_of
from splinecam.network.capture.leaves import leaf_of
from splinecam.network.capture.shapes import Batch
from splinecam.network.capture.staging import refs
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops import Affine, target_name
from splinecam.network.ops.rejected import JUMP, MASK, MIXES, SPELLINGS
from splinecam.network.program import Step
from splinecam.network.values import Ref, Rows

__all__ = ["GraphBuilder", "Mask", "count_masked", "is_floating", "mixes_points"]


@dataclass(frozen=True)
class Mask:
    """True where ``first`` exceeds ``second``; either may be a number or a constant.

    signed: it is 1 there and -1 elsewhere, as ``sign(x)``, not 1 and 0.
    """

    first: Any
    second: Any
    signed: bool = False


class GraphBuilder:
    """A program in the making.

    ``values`` maps each node to what stands for it in a step's arguments: a Ref to a value of the
    running program, a Size, or a constant.
    """

    def __init__(self, x: fx.Node, batch: Batch, device: torch.device) -> None:
        self.device = device
        self.batch = batch
        self.sized = Sized(self.batch, device)
        self.values: dict[fx.Node, Any] = {}
        self.rows: dict[str, Rows] = {}  # of the values that depend on the input
        self.body: list[Step | Nonlinearity] = []
        self.offending: list[OffendingOp] = []
        self.masks: dict[str, Mask] = {}
        self.choices: dict[str, tuple[Any, Any]] = {}  # what the results of choices are made of
        self.invalid: set[str] = set()  # values that are not numbers, made by rejected operations
        self._examples: dict[str, Any] = {}
        self._origin: dict[str, fx.Node] = {}
        self._names: dict[str, int] = {}
        self.values[x] = Ref(x.name)
        self.add_value(x.name, x, x.meta["val"])

    # --- values that depend on the input

    def add_value(self, name: str, node: fx.Node, example: Any) -> None:
        """A value that a node makes, or made on the way to it; ``example`` has its shape."""
        rows = self.batch.rows(example) if isinstance(example, Tensor) else None
        self.rows[name] = rows or Rows()
        self._examples[name] = example
        self._origin[name] = node

    def note(self, node: fx.Node) -> None:
        """The results of a node."""
        self.values[node] = parts_of(node)
        self._origin[node.name] = node
        value = node.meta["val"]
        values = [value] if isinstance(value, Tensor) else value
        for ref, part in zip(refs(self.values[node]), values, strict=True):
            self.add_value(ref.name, node, part)
            if not is_floating(part):
                self.invalid.add(ref.name)

    def note_mask(self, node: fx.Node, mask: Mask) -> None:
        """A node whose result is a mask, which nothing speaks against until it is used."""
        self.note(node)
        self.invalid.discard(node.name)
        self.masks[node.name] = mask

    def note_constant(self, name: str, node: fx.Node) -> None:
        """A constant that depends on the size of the batch."""
        self._origin[name] = node

    def is_active(self, item: Any) -> bool:
        """Whether nested arguments depend on the input."""
        return any(ref.name in self.rows for ref in refs(item))

    def mask_of(self, item: Any) -> Mask | None:
        """The mask that an argument stands for."""
        return self.masks.get(item.name) if isinstance(item, Ref) else None

    def example_of(self, ref: Ref) -> Any:
        """Something that has the shape of a value in the graph."""
        return self._examples[ref.name]

    def shape_of(self, ref: Ref, batch: int) -> list[int]:
        """The shape of a value for so many points."""
        return self.batch.shape_at(self._examples[ref.name], batch)

    # --- names and reasons

    def cut_name(self, node: fx.Node) -> str:
        """A name for the next cut of a node."""
        name, module = name_of(node)
        count = self._names[name] = self._names.get(name, 0) + 1
        if count == 1:
            return name
        return f"{name}#{count}" if module else f"{name}_{count - 1}"

    def finished(self) -> list[Step | Nonlinearity]:
        """The steps and cuts in order; each cut knows what it comes after."""
        return [
            replace(item, after=name_of(self._origin[item.source])[0])
            if isinstance(item, Nonlinearity)
            else item
            for item in self.body
        ]

    def describe(self, name: str, reason: str) -> OffendingOp:
        """What an error says of the node that made a value."""
        node = self._origin[name.removesuffix(".rows")]
        node = node.meta.get("written_for", node)
        target = target_name(node.target)
        leaf = leaf_of(node)
        target = SPELLINGS.get(target, target) if leaf is None else leaf.kind
        return OffendingOp(name_of(node)[0], target, location_of(node), reason)

    def reject(self, node: fx.Node, reason: str | None) -> None:
        """Note an offending node and go on as if it were allowed, to find the others too."""
        self.note(node)
        if reason is not None:
            self.offending.append(self.describe(node.name, reason))

    def reject_mask(self, name: str) -> None:
        """Note that a mask is used for more than a choice; once is enough."""
        reason = JUMP if self.masks.pop(name).signed else MASK
        self.invalid.add(name)
        self.offending.append(self.describe(name, reason))


def is_floating(value: Any) -> bool:
    """Whether a value of a graph is a tensor of real numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def count_masked(draft: GraphBuilder, node: fx.Node, indices: Any) -> None:
    """Indexing by a constant mask: the number of entries it picks is a constant too."""
    given = indices if isinstance(indices, list) else []  # for some operations it is a tensor
    masks = [item for item in given if isinstance(item, Tensor) and item.dtype == torch.bool]
    unknown = draft.batch.unknown(node.meta["val"]) if masks else ()
    if len(masks) == 1 and len(unknown) == 1:
        draft.batch.know(next(iter(unknown)), int(masks[0].sum()))


def mixes_points(
    draft: GraphBuilder, node: fx.Node, rule: Affine, call: dict[str, Any]
) -> str | None:
    """The reason against an affine node that mixes the points of the batch, by its shapes."""
    first = next(n for n in node.all_input_nodes if draft.is_active(draft.values[n]))
    value = first.meta["val"]
    value = value[0] if isinstance(value, (list, tuple)) else value
    rows = draft.batch.rows(value)
    for name in rule.dims:
        dims = call.get(name)
        dims = [dims] if isinstance(dims, int) else dims or []
        if rows is not None and rows.dim in [dim % value.dim() for dim in dims]:
            return MIXES
    results = node.meta["val"]
    for result in results if isinstance(results, (list, tuple)) else [results]:
        empty = result is None or any(type(n) is int and n == 0 for n in result.shape)
        if not empty and draft.batch.rows(result) is None:
            return MIXES
    return None
