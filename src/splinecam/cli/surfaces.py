"""``splinecam surface``: the surface of a network in three dimensions, in files and pictures."""

from __future__ import annotations

from argparse import Namespace

from splinecam._util.options import device_of
from splinecam._util.text import number_text
from splinecam.cli import models
from splinecam.cli.console import Console, claim, inside, json_text, make_folder
from splinecam.cli.parser import FORMATS
from splinecam.cli.pictures import prepare_pictures, write_figure
from splinecam.geometry.solids import box3
from splinecam.jobs.surfacing import surface
from splinecam.partitions.captured import capture

PICTURES = tuple(f".{kind}" for kind in FORMATS)
_LABEL = 12  # characters of the names of numbers


def surface_command(options: Namespace) -> int:
    """Compute a surface, check it, and write it to files."""
    console = Console(options.quiet)
    device_of(options.device)
    claim(options.out, force=options.force)
    drawn = [path for path in options.out if path.suffix.lower() in PICTURES]
    if drawn:
        prepare_pictures()
    with console.timed("model"):
        model, known = models.model_of(options)
    shape = options.input_shape or known or (3,)
    network = capture(model, shape, output=options.result, device="cpu")
    console.note("Model", f"{options.model}, {console.took('model')}")
    box = box3(*options.box, input_shape=shape)
    output = options.output[0] if len(options.output) == 1 else tuple(options.output)
    with console.timed("surface"), console.progress():
        found = surface(
            network,
            box,
            level=options.level,
            output=output,
            device=options.device,
            memory=options.memory,
            progress=not options.quiet,
        )
    console.note("Surface", f"{inside(found)}, {console.took('surface')}")
    if options.validate:
        with console.timed("check"):
            report = found.validate()
        head = str(report).splitlines()[0]
        checks = f"{len(report.checks)} checks passed, {head}"
        console.note("Check", f"{checks}, {console.took('check')}")
    if options.capped:
        found = found.capped()
    for path in options.out:
        make_folder(path.parent)
        if path in drawn:
            write_figure(found.plot(up=options.up).figure, [path])
        else:
            found.export(path, progress=not options.quiet)
    numbers = found.report()
    if options.json:
        console.out(json_text({"model": options.model, **numbers}))
        return 0
    lines = [
        f"{name:<{_LABEL}} {x if isinstance(x, str) else number_text(x)}"
        for name, x in numbers.items()
    ]
    written = ", ".join(str(path) for path in options.out)
    console.note("", "")
    console.out("\n".join([*lines, "", f"Written to {written}"]))
    return 0
