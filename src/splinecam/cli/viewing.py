"""``splinecam view``: networks, saved partitions and runs in the browser."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from splinecam._util.options import device_of
from splinecam.cli import models
from splinecam.cli.console import Console, claim, make_folder
from splinecam.cli.pictures import are_images
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.network.model_files import kind_of_file
from splinecam.partitions.captured import capture


def view_command(options: Namespace) -> int:
    """Open a viewer and wait until it is closed, or write it to a file."""
    from splinecam.viewer import viewer as viewing
    from splinecam.viewer.page import to_html
    from splinecam.viewer.subjects import session_of

    console = Console(options.quiet)
    if options.html is not None:
        claim([options.html], force=options.force)
    device_of(options.device)
    domain, anchors = models.domain_of(options)
    subjects: list[Any] = []
    for word in options.subjects:
        with console.timed(word):
            subjects += _subject(word, options, domain)
        console.note("Subject", f"{word}, {console.took(word)}")
    if domain is not None and not any(isinstance(each, Domain) for each in subjects):
        raise SplineCamError(
            "A domain is for a network, and none is given: saved partitions and runs have theirs."
        )
    look = _look(options, _input_shape(subjects), anchors)
    try:
        if options.html is None:
            session = session_of(subjects, **look)
        else:
            make_folder(options.html.parent)
            with console.timed("page"):
                to_html(tuple(subjects), options.html, **look)
    except ValueError as error:  # a colour or an output that is not there
        raise SplineCamError(f"{error}.") from error
    if options.html is not None:
        size = options.html.stat().st_size / 1e6
        console.out(f"Written to {options.html} in {console.took('page')}: {size:.1f} MB")
        return 0
    shown, port = not options.no_browser, options.port or 0
    viewing.opened(session, door="browser", browser=shown, port=port, block=True)
    return 0


def playground_command(options: Namespace) -> int:
    """Write the playground, and open it where there is a browser."""
    from splinecam.viewer.playground import write_playground
    from splinecam.viewer.surroundings import open_browser

    claim([options.out], force=options.force)
    make_folder(options.out.parent)
    write_playground(options.out)
    opened = not options.no_browser and open_browser(options.out.resolve().as_uri())
    Console().out(f"Written to {options.out}" + ("" if opened else ": open it in a browser"))
    return 0


def _subject(word: str, options: Namespace, domain: Domain | None) -> list[Any]:
    """Return what a word names: a network with its domain, a partition, or a run."""
    path = Path(word)
    kind = kind_of_file(path) if path.exists() else ""
    if kind == "folder":
        return [path]
    if kind == "partition":
        return [models.saved_partition(path, options)]
    model, shape = models.find_model(word, options.arg, options.weights)
    if domain is None:
        raise SplineCamError(
            f"Say which of its inputs to show for {word}: --box -1 1 for inputs of two numbers, "
            "--slice 0 1 --box -1 1 for more, or samples with --fit, --through, --around or "
            "--polygon."
        )
    domain = models.fitted(word, shape, domain, options)
    network = capture(model, domain.input_shape, output=options.result, device=options.device)
    return [network, domain]


def _look(
    options: Namespace, shape: tuple[int, ...] | None, anchors: Tensor | None
) -> dict[str, Any]:
    """Return the options of ``view``."""
    names = ("color", "output", "level", "title", "max_regions", "memory")
    look = {name: getattr(options, name) for name in names}
    if options.through is not None:
        look["anchors"] = anchors
    points = anchors
    if anchors is not None and options.at is not None and shape is not None:
        points = anchors.reshape(-1, *shape)
    if options.points is not None:
        points = models.read_samples(options.points, options.key, shape)
        if anchors is None:
            points = models.picked(points, options.pick, options.points)
    if points is not None:
        look |= {"points": points, "images": True if are_images(points) else None}
    if options.labels is not None:
        assert points is not None  # the parser sees to it
        look["labels"] = models.read_labels(options.labels, len(points), key=options.labels_key)
    return {name: value for name, value in look.items() if value is not None}


def _input_shape(subjects: list[Any]) -> tuple[int, ...] | None:
    """Return the shape of one input of what is shown, where it is known."""
    domains = (getattr(each, "domain", each) for each in subjects)
    return next((each.input_shape for each in domains if isinstance(each, Domain)), None)
