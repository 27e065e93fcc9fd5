"""Compute an atlas in a folder, or what is missing of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from splinecam._util.files import folder_of, made_folder
from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar, tell
from splinecam.analysis.class_names import names_of
from splinecam.atlas.atlas import Atlas, open_atlas
from splinecam.atlas.atlas_data import write_domain
from splinecam.atlas.completing import clean, complete, is_clean
from splinecam.atlas.dissolving import dissolved_tiles
from splinecam.atlas.making import Making, Sizes, TileTooLarge
from splinecam.atlas.manifest import FILE, Manifest
from splinecam.atlas.spreading import Spread
from splinecam.engine.first_device import first_device, is_light
from splinecam.engine.plan import Plan, free_memory
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.io.partition_files import output_written
from splinecam.network.capture import capture
from splinecam.network.capture.isolation import dtype_of
from splinecam.network.capture.outputs import Output
from splinecam.parallel import Job, engine_for
from splinecam.stores.claims import Claims
from splinecam.stores.fingerprints import domain_digest
from splinecam.stores.model_facts import model_facts
from splinecam.stores.untrusted import refuse_links

__all__ = ["compute_atlas"]


def compute_atlas(  # noqa: PLR0913 - the options of a partition, each given by its name
    network: nn.Module,
    domain: Domain,
    store: str | os.PathLike[str],
    *,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: int | None = None,
    max_regions: int | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
    n_jobs: int | None = None,
    sizes: Sizes | None = None,
) -> Atlas:
    """The atlas of a domain in a folder, of which only what is missing there is computed.

    The arguments are those of ``partition``, which has checked them. sizes: of tiles, by default
    those that the memory allows.
    """
    folder = folder_of(store)
    with torch.inference_mode(False):
        engine = engine_for(n_jobs)
        first = first_device(device, network, domain.input_shape) if engine is None else "cpu"
        program = capture(network, domain.input_shape, device=first, output=output)
        names = names_of(names, prod(program.output_shape))
        identity = {"domain": domain_digest(domain).hex()}
        identity |= model_facts(network, domain, output)
        last = device_of(device)
        if _is_ready(folder, identity, names):
            atlas = open_atlas(folder, last)
            atlas._model, atlas._program, atlas.output = network, program.to(last), output
            return atlas
        with _alone(folder):
            manifest = _manifest(folder, domain, identity)
            if memory is None:
                memory = free_memory(last) // (1 if engine is None else 1 + engine.neighbours)
            plan = Plan.of(program, last if engine is None else None, 3 * memory // 4)
            if not manifest.complete:
                manifest.about |= {
                    "input_shape": list(domain.input_shape),
                    "layers": [layer.name for layer in program.layers],
                    "stripped": program.stripped,
                    "dtype": str(dtype_of(network)).removeprefix("torch."),
                    "output": output_written(output),
                }
            if names is not None or "names" not in manifest.about:
                manifest.about["names"] = names and list(names)
            with progress_bar(len(program.layers), "layer", progress) as bar, torch.no_grad():

                def report(name: str, regions: int, share: float) -> None:
                    tell(bar, name, regions)
                    bar.update(share)

                sizes = sizes or Sizes.within(memory)
                making = Making(folder, manifest, plan, domain, sizes)
                making.max_regions, making.report = max_regions, report
                spread = None
                if engine is not None:
                    light = is_light(network, domain.input_shape)
                    rest = output, domain.input_shape, device, light, 3 * memory // 4, None
                    spread = Spread(engine, [Job(program, None, *rest), Job(None, network, *rest)])
                    spread.prepare(making)
                _finish(making, spread)
        atlas = open_atlas(folder, last)
        atlas._model, atlas._program, atlas.output = network, plan.last.program.to(last), output
        return atlas


def _finish(making: Making, spread: Spread | None) -> None:
    """Compute what is missing of an atlas; spread: the workers, None for this process."""
    manifest = making.manifest
    if manifest.complete:
        manifest.write(making.folder)
        clean(making.folder, manifest)
        return
    compute = making.compute if spread is None else partial(spread.compute, making)
    with torch.inference_mode():
        coarse = making.coarse()
        while coarse is not None:
            try:
                compute(coarse)
                break
            except TileTooLarge:
                making.restart()
            coarse = making.coarse()
    with torch.inference_mode(False):
        dissolve = partial(dissolved_tiles, making, coarse)
        complete(making.folder, manifest, None if coarse is None else coarse.mesh, dissolve)
    if making.max_regions is not None:
        making.check_limit()


def _manifest(folder: Path, domain: Domain, identity: dict[str, Any]) -> Manifest:
    """The manifest in a folder, which must be of the same model and domain, or a new one."""
    if (folder / FILE).exists():
        manifest = Manifest.read(folder)
        manifest.check(folder, identity)
        return manifest
    write_domain(folder, domain)
    return Manifest(identity, {})


def _is_ready(folder: Path, identity: dict[str, Any], names: Sequence[str] | None) -> bool:
    """Whether an atlas is complete, so that it is opened as it is, also on a read-only disk."""
    if not (folder / FILE).exists():
        return False
    manifest = Manifest.read(folder)
    manifest.check(folder, identity)
    same = names is None or list(names) == manifest.about["names"]
    return manifest.complete and same and is_clean(folder, manifest)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder, and claim it until the end, which may be that of the process."""
    claims = Claims(made_folder(folder))
    try:
        if not claims.take(0, 1):
            raise FileError(
                f"Another process is computing the atlas in {folder}. Wait until it has ended, or "
                "choose another folder."
            )
        refuse_links(folder)
        yield
    finally:
        claims.close()
