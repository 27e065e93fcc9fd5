"""Why the graph of a model cannot be used: weights that are not finite, layers in training."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, fx, nn

from splinecam.errors import CaptureError, OffendingOp, SplineCamError, UnsupportedOpError
from splinecam.network.capture.reading.probe import NotFiniteError
from splinecam.network.capture.tracing.diagnosis import first_line, quantised
from splinecam.network.capture.tracing.flat_graph import FlatGraph
from splinecam.network.ops.affine import STATISTICS, TRAINING

__all__ = ["explained"]

_LISTED = 5  # tensors that an error names


def explained(
    error: Exception, model: nn.Module, graph: FlatGraph, used: set[fx.Node]
) -> SplineCamError:
    """The exception for an error that a graph led to, with the true reason.

    used: the nodes that the output depends on.
    """
    constants = [(name, tensor) for node, (name, tensor) in graph.constants.items() if node in used]
    wrong = {name: tensor.detach() for name, tensor in constants if _has_infinite(tensor)}
    undefined = any(bool(tensor.isnan().any()) for tensor in wrong.values())
    if undefined or (wrong and isinstance(error, NotFiniteError)):
        return CaptureError(_weights(wrong))
    if isinstance(error, UnsupportedOpError):
        return UnsupportedOpError([_in_mode(op, model) for op in error.ops])
    if isinstance(error, SplineCamError):
        return error
    return CaptureError(
        quantised(model) or f"the model's graph cannot be run in float64: {first_line(error)}"
    )


# -- weights ---------------------------------------------------------------------------------------


def _has_infinite(value: object) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return not bool(value.isfinite().all())


def _weights(wrong: dict[str, Tensor]) -> str:
    """Which tensors are not finite, how many of their entries, and the first of these."""
    lines = [f"\n  - {_entries(name, tensor)}" for name, tensor in list(wrong.items())[:_LISTED]]
    more = f"\n  - and {len(wrong) - _LISTED} more tensors" if len(wrong) > _LISTED else ""
    return (
        f"the model has weights that are not finite numbers:{''.join(lines)}{more}\n"
        "Did its training diverge? Train or load finite weights"
    )


def _entries(name: str, tensor: Tensor) -> str:
    bad = (~tensor.isfinite()).nonzero()
    value = float(tensor[tuple(bad[0])])
    if tensor.dim() == 0:
        return f"{name} is {value}"
    which = f"{value} at [{', '.join(map(str, bad[0].tolist()))}]"
    if len(bad) == 1:
        return f"1 of {tensor.numel():,} entries of {name}: {which}"
    return f"{len(bad):,} of {tensor.numel():,} entries of {name}, the first is {which}"


# -- training mode ---------------------------------------------------------------------------------


def _in_mode(op: OffendingOp, model: nn.Module) -> OffendingOp:
    """An operation with what to do about it, if it acts as in training."""
    layer = _submodule(model, op.name)
    tracked = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
    if op.reason not in (TRAINING, STATISTICS) and not (tracked and layer is not None):
        return op
    random = op.reason == TRAINING
    acts = "is random" if random else "uses the statistics of the batch"
    if layer is not None and layer.training:
        kind = type(layer).__name__
        reason = f"{kind} is in training mode, where it {acts}: call model.eval() first"
    elif layer is not None and not random and not tracked:
        reason = (
            "it has no running statistics (track_running_stats=False) and uses those of the batch, "
            "also in eval mode: train it with running statistics"
        )
    elif layer is None:
        reason = _called(op, model, random, acts)
    else:
        return op
    return replace(op, reason=reason, settled=True)


def _called(op: OffendingOp, model: nn.Module, random: bool, acts: str) -> str:
    """The reason against a function that forward calls as in training."""
    owner = _submodule(model, op.name.rpartition(".")[0]) or model
    given = "training=self.training" if random else "training=self.training and running statistics"
    if owner.training:
        return (
            f"it {acts} in training mode: call model.eval() first, and let forward pass {given} "
            "to it"
        )
    return f"it {acts} although the model is in eval mode: let forward pass {given} to it"


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name) if name else None
    except AttributeError:
        return None
