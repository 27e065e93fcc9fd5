"""The ways to a program: from the cache, by following known layers, or by ``torch.export``.

A program may also be cut off after some layers: ``FirstLayers`` is the module of these. ``Both`` is
the module of two networks of one input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import cache, models
from splinecam.network.capture.models import Output
from splinecam.network.capture.pairs import Shown, pair_of
from splinecam.network.capture.reading.graph_builder import explaining
from splinecam.network.capture.reading.probe import probe
from splinecam.network.capture.reading.reader import Reader
from splinecam.network.capture.reading.stages import first_layers
from splinecam.network.capture.tracing.diagnosis import refuse, refuse_batch
from splinecam.network.capture.tracing.export import export_graph, named_tensors
from splinecam.network.capture.tracing.flat_graph import FlatGraph
from splinecam.network.capture.tracing.opaque_modules import opaque_modules
from splinecam.network.capture.tracing.walk import walk
from splinecam.network.capture.written_maxima import with_maxima
from splinecam.network.frozen_graph import FrozenGraph
from splinecam.network.layer_graph import LayerGraph
from splinecam.network.ops.registry import OPTION
from splinecam.network.program import Program


class FirstLayers(nn.Module):
    """A model up to and including its first non-linearities, in the order of its program.

    The output is the result of the last of them, computed by the captured program in float64. It
    has the type of the input.

    model: the whole model; count: the number of non-linearities; output: which of several outputs
    of the model the program is captured for.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> x = torch.rand(5, 2)
    >>> torch.allclose(FirstLayers(model, 1)(x), model[:2](x))
    True
    """

    def __init__(self, model: nn.Module, count: int, output: Output = None) -> None:
        super().__init__()
        self.model, self.count, self.output = model, count, output

    def forward(self, x: Tensor) -> Tensor:
        """The result of the last layer at inputs (B, ...), (B, ...)."""
        return capture(self, x.shape[1:], device=x.device)(x).to(x.dtype)


class Both(nn.Module):
    """Two networks of one input as a module with one vector of outputs, one after the other.

    Conditions on them relate the networks, as in a property of two networks.

    a, b: the networks; outputs: which of several outputs of each is meant; smooth: whether the
    networks may have smooth functions. ``showing`` chooses what the module returns.

    >>> x, a, b = torch.rand(5, 2), nn.Linear(2, 3), nn.Linear(2, 3)
    >>> Both(a, b)(x).equal(torch.cat([a(x), b(x)], 1))
    True
    >>> Both(a, b).showing("difference")(x).equal(a(x) - b(x))
    True
    """

    def __init__(
        self,
        a: nn.Module,
        b: nn.Module,
        outputs: tuple[Output, Output] = (None, None),
        *,
        smooth: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(a, nn.Module) or not isinstance(b, nn.Module):
            raise TypeError("give both networks as modules, such as those of sc.load_model(path)")
        self.a, self.b, self.outputs, self.smooth = a, b, outputs, smooth
        self.shown: Shown = "both"
        self.by_program = False

    def showing(self, shown: Shown, *, stripped: bool = False) -> Both:
        """The same networks with other outputs: of both, of one, or the difference of both.

        shown: ``"both"``, ``"a"``, ``"b"`` or ``"difference"``.
        stripped: whether programs leave out a final function of the networks, such as
        softmax. The difference is then computed by the programs.
        """
        other = Both(self.a, self.b, self.outputs, smooth=self.smooth)
        other.shown, other.by_program = shown, stripped and shown == "difference"
        return other

    def forward(self, x: Tensor) -> Tensor:
        """The outputs that are shown at inputs (B, ...), (B, n)."""
        if self.by_program:
            program = capture(self, x.shape[1:], device=x.device, smooth=self.smooth)
            return program(x).to(x.dtype)
        made = [
            models.selected(model(x), output).flatten(1)
            for name, model, output in zip("ab", (self.a, self.b), self.outputs, strict=True)
            if self.shown in (name, "both", "difference")
        ]
        return made[0] - made[1] if self.shown == "difference" else torch.cat(made, 1)


def capture(
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    device: torch.device | str = "cpu",
    output: Output = None,
    smooth: bool = False,
) -> Program:
    """Turn a piecewise-linear model into a :class:`Program`; the model is left as it was.

    ``input_shape`` is the shape of one input, without the batch. ``output`` selects one of several
    outputs: an index, a name, or a function of the model's result. With ``smooth``, smooth
    functions become layers too. They must be replaced before the program is run over a mesh.
    ReLUs that only write maxima become layers of maxima, except those of ``AsWritten(model)``.
    """
    models.check_output(output)
    input_shape = tuple(int(size) for size in input_shape)
    wrapped, device = list(models.unwrapped(model)), torch.device(device)
    model = wrapped[-1]
    if isinstance(model, FirstLayers):
        whole = capture(model.model, input_shape, device=device, output=model.output, smooth=smooth)
        return first_layers(whole, model.count)
    if isinstance(model, Both):
        both = (
            capture(each, input_shape, device=device, output=output, smooth=smooth)
            for each, output in zip((model.a, model.b), model.outputs, strict=True)
        )
        return pair_of(*both).joined(model.shown)
    with models.EXCLUSIVE, torch.no_grad():
        followed = output is None or isinstance(model, LayerGraph)
        given = (model, input_shape, device, output)
        program = captured_by_walk(*given, smooth=smooth) if followed else None
        program = program or captured_by_export(*given, smooth=smooth)
        as_written = any(isinstance(each, models.AsWritten) for each in wrapped)
        return program if as_written else with_maxima(program)


@contextlib.contextmanager
def naming_option(text: str) -> Iterator[None]:
    """Let errors about smooth functions say this in place of ``OPTION``, which callers may lack."""
    try:
        yield
    except UnsupportedOpError as error:
        ops = [replace(op, reason=op.reason.replace(OPTION, text)) for op in error.ops]
        raise UnsupportedOpError(ops, error.advice) from error.__cause__


def captured_by_walk(
    model: nn.Module,
    input_shape: tuple[int, ...],
    device: torch.device,
    output: Output = None,
    *,
    smooth: bool = False,
) -> Program | None:
    """The program of a chain, a tree or a graph of known layers; None for other models."""
    opaque = opaque_modules(model) if isinstance(model, FrozenGraph) else contextlib.nullcontext(())
    with opaque as numbers:
        graph = walk(model, input_shape, output)
        if graph is None:
            return None
        key = ("walk", input_shape, device, None if callable(output) else output, smooth)
        structure = graph.structure()
        try:
            before = cache.lookup(model, key)
            if before is not None and before.fingerprint == structure:
                return _refilled(before, model, key, dict(graph.constants.values()))
            if not isinstance(model, LayerGraph):  # whose file says the shape of one input
                refuse_batch(graph, input_shape)
            reader = Reader(graph, device, smooth=smooth)
            with explaining(model, graph, reader.needed):
                program = reader.read(input_shape)
            if not numbers:  # whose modules may compute something else the next time
                cache.store(model, key, structure, _content(reader, program))
            return program
        except Exception as error:  # torch.export finds out what is wrong, and where
            in_file = isinstance(model, LayerGraph) and isinstance(error, UnsupportedOpError)
            if in_file or isinstance(model, FrozenGraph):
                raise  # it names the layers as they are called in the file, or in the real model
            return None


def captured_before(
    model: nn.Module, input_shape: tuple[int, ...], device: torch.device, output: Output
) -> Program | None:
    """The program that a walk over a model read last, with a ``Weight`` for each; perhaps None."""
    graph = walk(model, input_shape, output)
    before = cache.lookup(model, ("walk", input_shape, device, output, False))
    if graph is None or before is None or before.fingerprint != graph.structure():
        return None
    return before.content.program if isinstance(before.content, cache.Template) else None


def captured_by_export(
    model: nn.Module,
    input_shape: tuple[int, ...],
    device: torch.device,
    output: Output = None,
    *,
    smooth: bool = False,
) -> Program:
    """The program of any model that ``torch.export`` can follow."""
    known: list[Any] | None = None
    with contextlib.suppress(Exception):  # also what the model's own attributes raise
        known = cache.fingerprint(model, output)
    key = ("export", input_shape, device, None if callable(output) else output, smooth)
    before = cache.lookup(model, key)
    if before is not None and known is not None and before.fingerprint == known:
        with contextlib.suppress(Exception):  # to export it anew tells what is wrong
            return _refilled(before, model, key, named_tensors(model))
    refuse(model)
    with opaque_modules(model) as numbers, models.one_output(model, output):
        graph, reusable = export_graph(model, input_shape)
        refuse_batch(graph, input_shape)
        reader = Reader(graph, device, smooth=smooth)
        with explaining(model, graph, reader.needed):
            program = reader.read(input_shape)
    if reusable and known is not None:
        cache.store(model, key, known, _content(reader, program), numbers)
    return program


def _content(reader: Reader, program: Program) -> cache.Template | FlatGraph | None:
    """What is kept of a capture for the next time, without the weights; None if nothing is."""
    found = None
    if not reader.reads_weights:  # which functions there are may depend on them
        found = cache.template_of(reader.graph, reader.needed, reader.builder, program)
    if found is not None or reader.builder.batch.known:
        return found
    names = {node: (name, None) for node, (name, _) in reader.graph.constants.items()}
    return replace(reader.graph, constants=names)


def _refilled(
    before: cache.CachedCapture, model: nn.Module, key: Any, tensors: Mapping[str, Tensor]
) -> Program:
    """The program that was captured under a key before, with the present weights."""
    content, (_, input_shape, device, _, smooth) = before.content, key
    if isinstance(content, cache.Template):
        program = content.filled(tensors)
        probe(program)
        return program
    weights = {node: (name, tensors[name]) for node, (name, _) in content.constants.items()}
    with opaque_modules(model, before.opaque):
        return Reader(replace(content, constants=weights), device, smooth=smooth).read(input_shape)
