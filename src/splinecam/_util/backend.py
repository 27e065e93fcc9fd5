"""Everything that depends on the kind of device: block sizes, and strategies.

Blocks on a CPU stay in the cache of a core; blocks on a GPU are large enough to keep it busy. All
sizes are measured. Tests use other sizes and strategies with ``using``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Backend:
    """Sizes and strategies for one kind of device, by default a CPU."""

    activations: int = 1 << 17  # numbers in a block of activations of a stage
    traced_activations: int = 1 << 17  # the same where derivatives are taken
    checked_activations: int = 1 << 23  # the same where a model is compared with its partition
    numbers: int = 1 << 20  # numbers in a block of any other computation
    sign_words: int = 1 << 16  # words of signs that are compared in a block
    function_values: int = 1 << 18  # values whose signs are found in a block
    moduli: int = 1 << 17  # entries of a matrix whose moduli are taken in a block
    faces: int = 1 << 18  # faces in a block of a check
    chord_pairs: int = 1 << 22  # pairs of chords in a block
    envelope_members: int = 1 << 14  # units along auxiliary lines in a block
    batch_bytes: int = 1 << 26  # a larger batch of domains is halved, as it would be no faster
    segment_numbers: int = 1 << 21  # numbers in a table of values at points along segments
    end_numbers: int = 1 << 21  # the same at the ends of segments, in any precision
    bend_numbers: int = 1 << 26  # the same of differences from straight segments, in float32
    squares_from: float = 6e5  # expected regions, times the effort for a square, for which it pays
    asynchronous: bool = False  # operations are queued: fewer waits are worth more work
    numpy_memory: bool = True  # tensors can share their memory with numpy arrays
    slow_windows: bool = True  # torch is slow for some float64 convolutions and small maxima
    convolves_by_product: bool = False  # convolutions are faster as products of matrices
    walks_faces: bool = True  # follow all faces node by node, not in steps of 1, 2, 4, ... nodes
    doublings: int = 1  # of steps, before the host asks whether they are enough
    rough_hardswish: bool = False  # torch multiplies float64 by a sixth in single precision


CPU = Backend()
CUDA = Backend(
    activations=1 << 28,
    traced_activations=1 << 26,
    checked_activations=1 << 26,
    numbers=1 << 26,
    sign_words=1 << 27,
    function_values=1 << 26,
    moduli=1 << 26,
    faces=1 << 24,
    chord_pairs=1 << 27,
    envelope_members=1 << 22,
    batch_bytes=1 << 33,
    segment_numbers=1 << 28,
    end_numbers=1 << 29,
    bend_numbers=1 << 30,
    squares_from=3.6e7,
    asynchronous=True,
    numpy_memory=False,
    slow_windows=False,
    convolves_by_product=True,
    walks_faces=False,
    doublings=4,
    rough_hardswish=True,
)

_CHANGES: ContextVar[dict[str, Any]] = ContextVar("_CHANGES", default={})  # noqa: B039


def backend_of(device: torch.device) -> Backend:
    """The backend for a device; devices other than a CUDA GPU are treated as a CPU."""
    backend = CUDA if is_cuda(device) else CPU
    changes = _CHANGES.get()
    return replace(backend, **changes) if changes else backend


def is_cuda(device: torch.device) -> bool:
    """Whether a device is a CUDA GPU."""
    return device.type == "cuda"


def is_cpu(device: torch.device) -> bool:
    """Whether a device is the CPU."""
    return device.type == "cpu"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was asked for that neither the system nor a device has left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's, on a CPU


def release_memory() -> None:
    """Give what was freed back to the system, where the C library keeps it."""
    with suppress(AttributeError, OSError, TypeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def single_precision(*, whole: bool = True) -> Iterator[None]:
    """Let CUDA take float32 as it is inside a ``with`` block, or its leading 10 bits (TF32)."""
    products: Any = torch.backends.cuda.matmul
    convolutions: Any = torch.backends.cudnn
    switches = [convolutions, products]
    name: str = "allow_tf32"
    value: object = not whole
    if hasattr(products, "fp32_precision"):  # beside it, torch refuses the older switches
        name, value = "fp32_precision", "ieee" if whole else "tf32"
        switches = [convolutions.conv, products]
    before = [getattr(switch, name) for switch in switches]
    try:
        for switch in switches:
            setattr(switch, name, value)
        yield
    finally:
        for switch, old in zip(switches, before, strict=True):
            setattr(switch, name, old)


@contextmanager
def using(**changes: Any) -> Iterator[None]:
    """Use other sizes or strategies on every device inside a ``with`` block.

    >>> with using(activations=100):
    ...     backend_of(torch.device("cpu")).activations
    100
    """
    token = _CHANGES.set({**_CHANGES.get(), **changes})
    try:
        yield
    finally:
        _CHANGES.reset(token)
