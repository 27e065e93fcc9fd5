"""The network that a result was computed from, which a result from a file lacks at first."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from splinecam.errors import SplineCamError
from splinecam.network.program import Program

__all__ = ["Attached"]


class Attached:
    """A result with its model and the captured network; both are None until they are given."""

    _model: nn.Module | None
    _program: Program | None
    _absent: ClassVar[str]  # the message where they are missing

    @property
    def model(self) -> nn.Module:
        """The model that was partitioned; an error if the result was loaded without a model."""
        if self._model is None:
            raise SplineCamError(self._absent)
        return self._model

    @property
    def program(self) -> Program:
        """The captured network; an error if the result was loaded without a model."""
        if self._program is None:
            raise SplineCamError(self._absent)
        return self._program
