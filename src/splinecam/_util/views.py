"""Sequences whose items are light views of arrays, made on access."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeVar, overload

__all__ = ["Views"]

View = TypeVar("View")


class Views(Sequence[View]):
    """A sequence that makes item i with ``_view(i)``; ``_noun`` is what an error calls an item."""

    _noun: ClassVar[str] = "item"

    @abstractmethod
    def _view(self, index: int) -> View: ...

    @overload
    def __getitem__(self, index: int) -> View: ...
    @overload
    def __getitem__(self, index: slice) -> list[View]: ...
    def __getitem__(self, index: int | slice) -> View | list[View]:
        if isinstance(index, slice):
            return [self._view(i) for i in range(*index.indices(len(self)))]
        position = operator.index(index)  # also accepts integer tensors and numpy integers
        if not -len(self) <= position < len(self):
            raise IndexError(
                f"{self._noun} {position} of {len(self):,} {self._noun}s, numbered from 0"
            )
        return self._view(position % len(self))

    def __iter__(self) -> Iterator[View]:
        return (self._view(i) for i in range(len(self)))
