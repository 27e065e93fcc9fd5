"""A call with one variable, which layers of a network make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from splinecam.network.values import Ref, Rows, map_tensors, resolve

__all__ = ["Operation"]

_PLAIN = Rows()


@dataclass(frozen=True)
class Operation:
    """A call with one variable; its argument and its result have the batch in front.

    part: which of the call's results is meant, if it has several.
    """

    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rows: Rows = _PLAIN
    result_rows: Rows = _PLAIN
    part: int | None = None
    VARIABLE: ClassVar[Ref] = Ref("z")

    def __call__(self, z: Tensor) -> Tensor:
        env = {self.VARIABLE.name: z if self.rows.plain else self.rows.back(z)}
        args = [resolve(item, env, z.shape[0], z.device) for item in self.args]
        kwargs = {
            key: resolve(item, env, z.shape[0], z.device) for key, item in self.kwargs.items()
        }
        made = self.run(*args, **kwargs)
        result: Tensor = made if self.part is None else made[self.part]
        return result if self.result_rows.plain else self.result_rows.out(result)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Operation:
        """The same with ``move`` applied to its constants."""
        return replace(
            self, args=map_tensors(self.args, move), kwargs=map_tensors(self.kwargs, move)
        )
