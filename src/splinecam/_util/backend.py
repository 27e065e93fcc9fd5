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
    """Sizes and strategies for one kind of device. A block is what is computed at a time.

    Sizes of blocks. activations: numbers in a block of activations of a stage; traced_activations:
    numbers in a block where derivatives are taken; checked_activations: numbers in a block where a
    model is compared with its partition; numbers: numbers in a block of any other computation;
    sign_words: words of signs that are compared in a block; function_values: values whose signs
    are found in a block; moduli: entries of a matrix whose moduli are taken in a block; faces:
    faces in a block of a check; chord_pairs: pairs of chords in a block; envelope_members: units
    along auxiliary lines that are compared in a block, however few most lines have; batch_bytes:
    memory beyond which a batch of domains is halved, as larger batches are no faster;
    segment_numbers: numbers in a table of values at points along segments.

    Strategies. asynchronous: operations are queued, so that fewer operations, and fewer results
    that the host waits for, are worth more work. numpy_memory: tensors can share their memory with
    numpy arrays. slow_windows: torch is slow for float64 convolutions of single channels and for
    maxima of small windows. convolves_by_product: convolutions are faster as products of matrices.
    walks_faces: follow the boundary of all faces node by node, instead of in steps of 1, 2, 4, ...
    nodes. doublings: how often steps are doubled before the host asks whether they are enough.
    rough_hardswish: torch multiplies by a sixth in single precision, also numbers of float64.
    """

    activations: int
    traced_activations: int
    checked_activations: int
    numbers: int
    sign_words: int
    function_values: int
    moduli: int
    faces: int
    chord_pairs: int
    envelope_members: int
    batch_bytes: int
    segment_numbers: int
    asynchronous: bool
    numpy_memory: bool
    slow_windows: bool
    convolves_by_product: bool
    walks_faces: bool
    doublings: int
    rough_hardswish: bool


CPU = Backend(
    activations=1 << 17,
    traced_activations=1 << 17,
    checked_activations=1 << 23,
    numbers=1 << 20,
    sign_words=1 << 16,
    function_values=1 << 18,
    moduli=1 << 17,
    faces=1 << 18,
    chord_pairs=1 << 22,
    envelope_members=1 << 14,
    batch_bytes=1 << 26,
    segment_numbers=1 << 21,
    asynchronous=False,
    numpy_memory=True,
    slow_windows=True,
    convolves_by_product=False,
    walks_faces=True,
    doublings=1,
    rough_hardswish=False,
)
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


def release_memory() -> None:
    """Give what was freed back to the system, where the C library keeps it."""
    with suppress(AttributeError, OSError, TypeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


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
