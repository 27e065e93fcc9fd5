"""What a call asks for, read once: the model, and the options that all verbs share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal, TypedDict

import torch
from torch import nn

from splinecam._util.options import kind_of, limit_of, memory_of
from splinecam._util.progress import log
from splinecam._util.text import did_you_mean
from splinecam.files.loading import module_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.geometry.solids import Solid
from splinecam.network.capture import capture
from splinecam.network.capture.models import Output, check_output
from splinecam.network.program import Program
from splinecam.partitions.captured import Captured
from splinecam.partitions.refining import Refine, check_refine, wanted_of
from splinecam.questions.partition_data import names_of
from splinecam.questions.wanted import Wanted
from splinecam.smooth.tables import Tolerance, tolerance_of

Model = nn.Module | Captured | str | os.PathLike[str]


@dataclass(frozen=True)
class Smooth:
    """How close a partition is to be to a network with smooth functions such as GELU.

    tolerance: the error that outputs may have, absolute or, as text such as ``"1%"``, relative to
    the range of each. refine: with ``"boundary"``, regions are only refined where their class would
    be uncertain; elsewhere errors may be larger. undecided: the share of the domain on which the
    class may still be uncertain then.

    >>> Smooth("1%", refine="boundary")
    Smooth(tolerance='1%', refine='boundary', undecided=0.001)
    """

    tolerance: float | str
    refine: Literal["boundary"] | None = None
    undecided: float = 1e-3

    def __post_init__(self) -> None:
        tolerance_of(self.tolerance)
        if self.refine not in (None, "boundary"):
            raise ValueError(f'refine is {self.refine!r}: give "boundary", or leave it out')
        if not (isinstance(self.undecided, int | float) and 0 < self.undecided < 1):
            what = f"undecided is {self.undecided!r}"
            raise ValueError(f"{what}: give a share of the domain, such as 1e-3")

    @classmethod
    def of(cls, smooth: Smooth | float | str | None) -> Smooth | None:
        """What callers give for ``smooth``; a number or a text is a tolerance."""
        return smooth if smooth is None or isinstance(smooth, Smooth) else cls(smooth)

    @property
    def allowed(self) -> Tolerance:
        """The tolerance as numbers."""
        return tolerance_of(self.tolerance)

    @property
    def undecided_share(self) -> float | None:
        """The share of the domain on which the class may be uncertain; None without ``refine``."""
        return None if self.refine is None else float(self.undecided)

    @property
    def facts(self) -> dict[str, Any]:
        """What tells one accuracy from another in a file of JSON."""
        return {"tolerance": asdict(self.allowed), "undecided": self.undecided_share}


class FewOptions(TypedDict, total=False):
    """The options of ``sc.partition`` that are given less often."""

    device: str | torch.device
    names: Sequence[str] | None
    partial: bool


class Options(FewOptions, total=False):
    """The options that all computations share, as ``sc.partition`` describes them."""

    output: Output
    memory: float | str | None
    max_regions: float | None
    progress: bool
    smooth: Smooth | float | str | None
    refine: Refine


_EXACT_REFINE = 'refine=, and without smooth=, as in refine="boundary", partial=True'
_REFINING = "partition", "sweep", "atlas", "along"  # the verbs that take refine=


@dataclass(frozen=True, kw_only=True)
class Request:
    """The model and the options of a call, checked.

    memory: in bytes. names: as they were given; ``names_for`` checks them against the outputs.
    """

    model: nn.Module
    output: Output = None
    device: str | torch.device = "auto"
    memory: int | None = None
    max_regions: int | None = None
    names: Sequence[str] | None = None
    progress: bool = True
    smooth: Smooth | None = None
    refine: Refine = None
    partial: bool = False

    @classmethod
    def of(
        cls, verb: str, model: Any, options: Mapping[str, Any], *, argument: str = "model"
    ) -> Request:
        """Read the model and the options that a caller gives to a verb.

        argument: the name of the model among the arguments.
        """
        for name in options:
            if name == "undecided":
                example = "smooth=sc.Smooth(1e-3, undecided=1e-4)"
                raise TypeError(f"{name}= is a part of smooth=, as in {example}")
            if name not in Options.__annotations__:
                hint = f".{did_you_mean(name, Options.__annotations__)}".rstrip(".")
                raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{hint}")
        given = dict(options)
        if isinstance(model, Captured):
            if given.get("output") is not None:
                raise TypeError("output= is for a model: a captured network has its own")
            given["output"] = model.output
            if given.get("device", "auto") == "auto":
                given["device"] = model.wanted
            model = model.model
        network = module_of(model, argument)
        check_output(given.get("output"))
        given["memory"] = memory_of(given.get("memory"))
        given["max_regions"] = limit_of("max_regions", given.get("max_regions"))
        smooth, refine = Smooth.of(given.get("smooth")), given.get("refine")
        if refine is not None:
            check_refine(refine)
            if verb not in _REFINING:
                where = f"refine= is for {', '.join(_REFINING)}, not for {verb}()"
                instead = 'smooth=sc.Smooth(1e-3, refine="boundary")'
                raise TypeError(f"{where}; networks with smooth functions take {instead}")
            if smooth is not None:
                if refine != "boundary":
                    raise TypeError('with smooth= regions are refined for refine="boundary" alone')
                smooth = replace(smooth, refine="boundary")
        if given.get("partial") and (verb != "partition" or refine is None or smooth is not None):
            raise TypeError(f"partial= is for sc.partition with {_EXACT_REFINE}")
        given["smooth"] = smooth
        return cls(model=network, **given)

    def captured(self, input_shape: tuple[int, ...], device: torch.device) -> Program:
        """The model as it is now, for inputs of a shape."""
        how: Any = {"output": self.output, "smooth": self.smooth is not None}
        with torch.inference_mode(False):
            program = capture(self.model, input_shape, device=device, **how)
        for each in program.written:
            log.info("%s", each)
        return program

    def names_for(self, program: Program) -> tuple[str, ...] | None:
        """The names of the classes, or an error if they do not fit the outputs of the program."""
        return names_of(self.names, prod(program.output_shape))

    def wanted_for(self, program: Program, domain: Domain) -> Wanted | None:
        """What is asked of the outputs of the program on a domain; None for all regions."""
        if self.refine is None:
            return None
        outputs = prod(program.output_shape)
        return wanted_of(self.refine, domain, outputs, self.names_for(program), program.stripped)


def require_domain(domain: object) -> None:
    """Raise a ``TypeError`` unless this is a domain."""
    if isinstance(domain, Path | SegmentBatch):
        raise TypeError("paths and segments are for sc.along; this takes a splinecam.Domain")
    if not isinstance(domain, Domain):
        hint = (
            "; sc.partition and sc.surface take bodies of three dimensions"
            if isinstance(domain, Solid)
            else ""
        )
        raise TypeError(f"domain must be a splinecam.Domain, not {kind_of(domain)}{hint}")
