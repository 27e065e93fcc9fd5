"""The class ``Partition``, whose methods are the questions about one; make and load partitions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from math import prod
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import nn

from splinecam._util.arrays import Views
from splinecam._util.options import device_of
from splinecam.engine.run import Outcome, run
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain, Frame
from splinecam.network.capture import FirstLayers
from splinecam.network.capture.models import Output, dtype_of
from splinecam.network.capture.reading.stages import first_layers
from splinecam.network.program import Program
from splinecam.partitions import partition_files as _files
from splinecam.partitions.exports import export
from splinecam.partitions.objects import to_networkx, to_shapely
from splinecam.plot.accessor import Pictures
from splinecam.questions import attaching, boundary, certificates, measures
from splinecam.questions import class_regions as classes
from splinecam.questions import comparison as _counts
from splinecam.questions import differentiable as _differentiable
from splinecam.questions import neurons as _neurons
from splinecam.questions import preimage as _preimage
from splinecam.questions import sampling as _density
from splinecam.questions import stats as _stats
from splinecam.questions import topology as _topology
from splinecam.questions import validate as _validate
from splinecam.questions.measures import layer_count
from splinecam.questions.partition_data import PartitionData, Region, Smoothing, Unresolved
from splinecam.questions.sampling import sample_regions
from splinecam.questions.wanted import Wanted
from splinecam.smooth.tables import replaced

if TYPE_CHECKING:
    from splinecam.tiles.atlas import Atlas
    from splinecam.viewer.viewer import Viewer


_REFINEMENT = "refinement"  # the last entry of a refined partition's layers


def assemble(
    model: nn.Module | None,
    program: Program,
    domain: Domain,
    outcome: Outcome,
    *,
    output: Output = None,
    names: Sequence[str] | None = None,
    dtype: torch.dtype = torch.float32,
    wanted: Wanted | None = None,
) -> Partition:
    """The partition from the outcome of a run; only this function makes partitions.

    program: as it was captured, or with tables in place of smooth functions. dtype: of the model,
    for a partition without its model. wanted: what the outcome is to answer, if not everything.
    """
    refined = outcome.settled is not None and bool(outcome.settled.any())
    record: Smoothing | None = outcome.smoothing
    if record is not None and record.tables:
        program = replaced(program, record.tables)
    none = {layer.name: outcome.error.new_zeros(prod(layer.shape)) for layer in program.layers}
    errors = none | outcome.layer_errors  # a question may be settled before the last layers
    part = Partition(
        domain=domain,
        mesh=outcome.mesh,
        _outputs=outcome.output,
        _value_error=outcome.error,
        _layer_errors=errors,
        unresolved=tuple(
            Unresolved((u, v), name, ambiguity.reason)
            for name, ambiguity in outcome.ambiguities
            for u, v in Frame.of(domain).to_plane(ambiguity.uv).tolist()
        ),
        layers=tuple(layer.name for layer in program.layers),
        stripped=program.stripped,
        _dtype=dtype if model is None else dtype_of(model),
        _chosen_output=output,
        smoothing=record,
        _wanted=wanted if refined else None,
        _settled=outcome.settled if refined else None,
        _undecided=outcome.undecided,
    )
    if (record is not None and record.refined) or outcome.undecided is not None:
        part.layers = (*part.layers, _REFINEMENT)
        part._layer_errors[_REFINEMENT] = part._value_error.new_zeros(1)
    part.names = names
    part._model, part._program = model, program
    return part


def load(
    path: str | os.PathLike[str] | BinaryIO,
    *,
    model: nn.Module | str | os.PathLike[str] | None = None,
    output: Output = None,
    device: str | torch.device = "cpu",
    verify: bool = True,
) -> Partition | Any:  # a union of all results would ask every caller which one it is
    """The partition in a file that ``part.save`` wrote, or what a folder holds.

    A folder that ``sc.atlas`` has made gives an ``Atlas``, which reads its arrays when they are
    needed. A folder that ``sc.watch(..., store=folder)`` writes gives the ``Run`` as far as it is
    recorded, and one that ``sc.grid(..., store=folder)`` writes the ``Grid`` as far as it is
    computed, where missing numbers are nan. Both can be read from any process while they grow; load
    them again to see more. None of these holds the network. A ``FileError`` says what is wrong with
    a file or a folder that cannot be read.

    path: the name of the file or folder, or an open file. model: the network that was partitioned,
    or the path of its file, for the methods that need it (``patterns``, ``neurons``,
    ``fixed_units``, ``jacobian``, ``validate``, statistics in input space); it is compared with the
    file. output: needed again if it was a function, which a file does not hold. device: where the
    tensors are stored. verify: check that the regions are convex, fit together and cover the
    domain; without this check, loading takes a fraction of the time. Of an atlas, compare the
    checksum of every array when it is first read; ``verify=False`` is for folders that nobody else
    writes to. Types, shapes and the range of indices are always checked, and the checksums of
    files.

    >>> import splinecam as sc, tempfile, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     watch = sc.watch(net, sc.Domain.box(-1, 1), every=10, store=folder)
    ...     for _ in range(25):
    ...         _ = watch.step(loss=0.5)
    ...     run = sc.load(folder)
    ...     run.steps, len(run[-1].partition) == run[-1].scalars["num_regions"]
    ([0, 10, 20], True)
    """
    part: Partition | Atlas
    if isinstance(path, str | os.PathLike) and FilePath(path).is_dir():
        from splinecam.tiles.atlas import open_atlas
        from splinecam.training.grid import opened

        found = opened(FilePath(path))
        if found is not None and model is not None:
            raise TypeError(f"model= is for partitions and atlases, and {path} has a {found!r}")
        if found is not None:
            return found
        part = open_atlas(path, device_of(device), verify=verify)
    else:
        part = _files.read(path, Partition, device=device_of(device), verify=verify)
    if model is not None:
        part.attach(model, output=output)
    return part


def _unpickled(
    content: bytes, model: nn.Module | None, device: str, output: Output = None
) -> Partition:
    options: Any = {"model": model, "output": output, "device": device, "verify": False}
    part: Partition = load(BytesIO(content), **options)
    return part


class Partition(PartitionData, Views[Region]):
    """A convex polygon divided into V vertices, E edges and F regions, as flat tensors.

    Coordinates are plane coordinates of ``domain``. A region is a convex cell on which every unit
    keeps one linear piece; ``merged()`` unites neighbours with equal maps. A partition is a
    sequence of its regions: ``part[i]``, ``part[:10]``, ``for region in part``.

    domain: the polygon; mesh: the subdivision, in local coordinates that are centred and of about
    unit size, with the layers and units that drew its edges; values: (V, n_out) the output at the
    vertices; unresolved: places that float64 could not settle (usually none); layers: names of the
    non-linearities, in the order of evaluation; stripped: the final softmax, sigmoid or tanh that
    was left out, if any; smoothing: what was replaced in a model with smooth functions, None if
    there are none.

    With ``refine`` only what was asked can be answered, and ``complete`` says which regions are
    linear regions; an error says what needs all of them.
    """

    _noun = "region"

    def _view(self, index: int) -> Region:
        return Region(self, index)

    def __contains__(self, region: object) -> bool:
        return isinstance(region, Region) and region.partition is self

    def at_layer(self, layer: int | str) -> Partition:
        """The partition after the first layers, in the order of ``layers``, exact like this one.

        Its regions are what the first layers make together, before later layers divide them.
        Its outputs are the results of the last of these layers, as one vector; before the first
        layer they are the inputs. It is a partition in every other respect too: it has maps,
        statistics, pictures and files, and ``validate()`` compares it with what the model computes
        up to that layer. Its ``model`` is the module of the first layers.

        This needs the network, which is run again up to the layer. Where a network branches, the
        order of ``layers`` tells which layers are the first, also between branches.

        layer: how many layers, from 0 for the undivided domain to ``len(part.layers)``; or the name
        of the last one. A partition of a model with smooth functions has none but the last.

        >>> import splinecam as sc
        >>> model = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Hardtanh(-9, 1))
        >>> part = sc.partition(model, Domain.box(-2, 2), progress=False)
        >>> [len(part.at_layer(k)) for k in range(3)], len(part.at_layer("1"))
        ([1, 4, 9], 4)
        """
        if self.smoothing is not None:
            raise SplineCamError(
                "The bounds of a model with smooth functions are about its outputs, not about its "
                "layers. Partition the first layers as a module of their own, with smooth=..."
            )
        self._require("the regions after some layers")
        count = layer_count(self, layer)
        model = FirstLayers(self.model, count, self._chosen_output)
        with torch.inference_mode(False), torch.no_grad():
            program = first_layers(self._network, count)
            return assemble(model, program, self.domain, run(program, self.domain))

    # Each of these questions is a function of a partition, in a module of its own.

    attach = attaching.attach
    decision_boundary = boundary.decision_boundary
    level_set = boundary.level_set
    class_regions = classes.class_regions
    preimage = _preimage.preimage
    check = _preimage.check
    neurons = _neurons.neurons
    fixed_units = _neurons.fixed_units
    sample = sample_regions
    density = _density.density
    counts = _counts.counts
    topology = _topology.topology
    stats = _stats.stats
    table = measures.table
    ranges = cached_property(measures.output_ranges)
    validate = _validate.validate
    certify = certificates.certify
    differentiable = _differentiable.differentiable
    save = _files.save
    export = export
    to_networkx = to_networkx
    to_shapely = to_shapely

    @property
    def plot(self) -> Pictures:
        """Pictures: ``plot()``, ``plot.surface()``, ``plot.layers()``, ``plot.histograms()``."""
        return Pictures(self)

    def view(self, **options: Any) -> Viewer:
        """Open a viewer in which one points at regions and zooms without end.

        options: as for ``sc.view``.
        """
        from splinecam.viewer.viewer import view

        return view(self, **options)

    def to_html(self, path: str | os.PathLike[str] | BinaryIO, **options: Any) -> None:
        """Write a viewer as one HTML file, which opens offline.

        path: the file. options: as for ``sc.to_html``.
        """
        from splinecam.viewer.page import to_html

        to_html(self, path, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy in the file format; the model is pickled by its own rules."""
        file = BytesIO()
        self.save(file)
        output = None if self._model is None else self._chosen_output  # else the file holds it
        return _unpickled, (file.getvalue(), self._model, str(self.mesh.uv.device), output)

    def _repr_html_(self) -> str:
        from splinecam.plot.notebook import partition_card

        return partition_card(self)
