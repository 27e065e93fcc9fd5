"""The exception tree: every message says what is wrong, where, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# How the command line writes what messages name in Python's words.
_OPTIONS = (
    "at box slice polygon through around fit device input_shape max_regions memory output smooth"
)
_FLAGS = {
    **{name: f"--{name.replace('_', '-')}" for name in _OPTIONS.split()},
    "axes": "--slice",
    "splinecam.op_table()": "splinecam ops",
    "smooth=1e-3 replaces it": "splinecam partition --smooth 1e-3 replaces it",
    "sc.load(path, model=model), or part.attach(model)": "--model MODEL",
    "The samples a and b": "The first two of the three samples (--pick)",
    "The samples a, b and c": "The three samples (--pick)",
    "The two directions of axes are parallel": "The two axes of --slice are the same",
}
_on_command_line = ContextVar("_on_command_line", default=False)


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let messages name options as the command line does, within this context."""
    before = _on_command_line.set(True)
    try:
        yield
    finally:
        _on_command_line.reset(before)


def option(name: str, value: str | None = None, *, flag: str = "") -> str:
    """An option in a message, as the command line writes it while a command runs, else as Python.

    Options that only Python has stay as they are. value: what follows the name, which may be
    nothing. flag: of the command line, if one name has several.

    >>> option("max_regions"), option("memory", "5"), option("smooth", "")
    ('max_regions', 'memory=5', 'smooth=')
    >>> with on_command_line():
    ...     option("max_regions"), option("memory", "5"), option("Domain.through")
    ('--max-regions', '--memory 5', '--through')
    """
    flag = flag or _FLAGS.get(name.removeprefix("Domain."), "")
    if not (flag and _on_command_line.get()):
        return name if value is None else f"{name}={value}"
    value = (value or "").strip("'")
    return f"{flag} {value}".rstrip()


class SplineCamError(Exception):
    """Base class of every error that SplineCam raises on purpose."""


class DomainError(SplineCamError, ValueError):
    """The polygon is not planar, not convex, degenerate, or does not fit the model's input."""


class CaptureError(SplineCamError):
    """The model cannot be turned into a graph of operations, or its graph cannot be run."""


@dataclass(frozen=True)
class OffendingOp:
    """One operation that is not piecewise linear: its name in the model, its op, where, why.

    settled: whether the reason says all that can be done, and no other advice is needed.
    """

    name: str
    target: str
    location: str
    reason: str
    settled: bool = False

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        return f"{self.name} ({self.target}){where}: {self.reason}"


class UnsupportedOpError(CaptureError):
    """Some operations are not continuous piecewise linear; ``ops`` lists all of them.

    advice: what the message says to do, in place of the advice for models in PyTorch.
    """

    def __init__(self, ops: list[OffendingOp], advice: str | None = None) -> None:
        self.ops = tuple(ops)
        self.advice = advice
        noun = "op is" if len(ops) == 1 else "ops are"
        lines = "\n".join(f"  - {op}" for op in ops)
        what = self._advice() if advice is None else advice
        super().__init__(f"{len(ops)} {noun} not supported:\n{lines}{what}")

    def _advice(self) -> str:
        others = [op for op in self.ops if not op.settled]
        if not others:
            return ""
        if all(option("smooth", "") in op.reason for op in others):
            return (
                f"\nWith {option('smooth', '')}, functions of one variable are replaced by linear "
                "pieces, and the error of the outputs has a guaranteed bound."
            )
        return (
            f"\nReplace {'it' if len(others) == 1 else 'them'}, a smooth function of one variable "
            "for example by a table (splinecam.nn.PiecewiseLinear). An operation that is "
            "continuous and piecewise linear can be registered: splinecam.register_op. "
            f"{option('splinecam.op_table()')} lists what is supported."
        )

    def __reduce__(self) -> tuple[type, tuple[list[OffendingOp], str | None]]:
        return type(self), (list(self.ops), self.advice)


class LimitError(SplineCamError):
    """The partition would exceed ``max_regions`` or the memory budget."""


class FileError(SplineCamError, OSError):
    """A file cannot be read or written, or is not what it should be."""


class DataError(SplineCamError):
    """Data of an experiment are not on this machine, or one of their files is damaged."""


class ValidationError(SplineCamError, AssertionError):
    """A partition does not hold what it promises; the message lists every failed check."""
