"""What tells one model from another in the manifest of a store."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.isolation import unwrap
from splinecam.network.capture.outputs import Output
from splinecam.stores.fingerprints import function_name, weights_digest

__all__ = ["model_facts", "output_name"]

_OUTPUTS = 256  # outputs that are compared, at most


def model_facts(
    model: nn.Module, domain: Domain, output: Output, *, smooth: bool = False
) -> dict[str, Any]:
    """A digest of the weights of a model, its layers, and some of its outputs.

    The outputs, at the corners of a domain, tell what the weights do not: another activation, or
    other code of ``forward``. They are compared up to rounding, which depends on the machine.

    smooth: whether the model may have smooth functions.

    >>> facts = model_facts(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), Domain.box(-1, 1), None)
    >>> facts["layers"], len(facts["outputs"])
    (['1'], 12)
    """
    with torch.inference_mode(False), torch.no_grad():
        program = capture(model, domain.input_shape, output=output, smooth=smooth)
        found = program(domain.embed(domain.corners).cpu()).double().flatten()
    some = found[:: max(1, found.shape[0] // _OUTPUTS)]
    return {
        "weights": weights_digest(unwrap(model).state_dict()),
        "layers": [layer.name for layer in program.layers],
        "outputs": some.tolist(),
        "output": output_name(output),
    }


def output_name(output: Output) -> Any:
    """The selected output of a model as JSON, a function by its name."""
    return function_name(output) if callable(output) else output
