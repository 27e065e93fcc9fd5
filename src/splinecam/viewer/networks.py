"""The network behind a frame, which partitions windows and other planes while one looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from splinecam._captured import Captured, model_of
from splinecam._partition import Partition, assemble
from splinecam._util.options import device_of
from splinecam.analysis.class_names import names_of
from splinecam.engine.plan import Plan
from splinecam.engine.run import run
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture, naming_option
from splinecam.network.capture.outputs import Output, check_output
from splinecam.network.program import Program

__all__ = ["GivenUp", "Network"]

_OPTION = "view(sc.partition(model, domain, smooth=1e-3)) shows a network near it"


class GivenUp(Exception):
    """A computation was ended because nobody waits for its result any more."""


@dataclass(frozen=True)
class Network:
    """A captured network: its weights are those of a frame, also if the model has changed since.

    device: where partitions end up; names: of the classes, or None.
    """

    model: nn.Module
    program: Program
    device: torch.device
    output: Output = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of_partition(cls, part: Partition) -> Network:
        """The network of a partition; an error if the partition was loaded without it."""
        device = part.mesh.uv.device
        return cls(part.model, part.program, device, part.output, part.names)

    @classmethod
    def of_model(
        cls,
        model: nn.Module | Captured,
        domain: Domain,
        *,
        output: Output = None,
        device: str | torch.device = "auto",
        names: tuple[str, ...] | None = None,
    ) -> Network:
        """A model as it is now, for inputs as those of a domain."""
        module, output, device = model_of(model, output, device)
        check_output(output)
        place = device_of(device)
        with torch.inference_mode(False), naming_option(_OPTION):
            program = capture(module, domain.input_shape, device=place, output=output)
        return cls(module, program, place, output, names_of(names, prod(program.output_shape)))

    def partition(
        self,
        domain: Domain,
        *,
        max_regions: int | None = None,
        memory: int | None = None,
        outdated: Callable[[], bool] = lambda: False,
    ) -> Partition:
        """The exact partition of a domain; a ``LimitError`` beyond max_regions.

        outdated: asked after every layer; when it says so, the computation ends with ``GivenUp``.
        """

        def report(name: str, regions: int, share: float) -> None:
            if outdated():
                raise GivenUp

        with torch.inference_mode(False), torch.no_grad():
            plan = Plan.of(self.program, self.device, memory)
            found = run(self.program, domain, max_regions=max_regions, report=report, plan=plan)
            return assemble(
                self.model,
                plan.last.program,
                domain,
                found,
                output=self.output,
                names=self.names,
            )

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs (N, n_out) at inputs (N, ...), on the CPU."""
        with torch.no_grad():
            return self.program(x.to(self.program.device)).flatten(1).cpu()
