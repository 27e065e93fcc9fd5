"""The command ``splinecam difference``: where and by how much two networks differ."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from splinecam._util.files import replaced, writing
from splinecam._util.options import device_of
from splinecam.cli.console import Console, claim, plain
from splinecam.cli.models import domain_of, find_model, fitted
from splinecam.cli.parser import DPI
from splinecam.cli.pictures import prepare_pictures
from splinecam.jobs.difference import difference
from splinecam.questions.difference import Difference


def difference_command(options: Namespace) -> int:
    """Compare two networks: print the numbers, and draw a picture if one is asked for."""
    console = Console(options.quiet)
    if options.out is not None:
        prepare_pictures()
        claim([options.out], force=options.force)
    device_of(options.device)
    found = domain_of(options)
    assert found is not None  # the parser sees to it
    domain, _ = found
    models = []
    for word, weights in ((options.first, options.weights), (options.second, options.weights_b)):
        with console.timed(word):
            model = find_model(word, arguments=dict(options.arg), weights=weights)
        domain = fitted(word, model.input_shape, domain, options)
        console.note("Model", f"{word}, {console.took(word)}")
        models.append(model.model)
    console.note("Domain", repr(domain).removeprefix("Domain(").removesuffix(")"))
    with console.timed("difference"), console.progress():
        diff = difference(
            models[0],
            models[1],
            domain,
            output=options.result,
            device=options.device,
            memory=options.memory,
            max_regions=options.max_regions,
            smooth=options.smooth,
            progress=not options.quiet,
        )
    size = repr(diff.partition).removeprefix("Partition(").removesuffix(")")
    console.note("Regions", f"{size}, {console.took('difference')}")
    if options.out is not None:
        _draw(diff, options)
        console.note("Picture", str(options.out))
    console.note("", "")
    text = _json(diff, options) if options.json else f"{diff}\n\n{diff.largest()}"
    Console().out(text)  # the result, also with --quiet
    return 0


def _draw(diff: Difference, options: Namespace) -> None:
    """Draw the picture to its file."""
    import matplotlib.pyplot as plt

    labels = (options.first, options.second)
    figure = diff.plot(output=options.output, labels=labels).figure
    with writing(options.out):
        options.out.parent.mkdir(parents=True, exist_ok=True)
    with replaced(options.out) as file:
        figure.savefig(file, format=options.out.suffix[1:].lower(), dpi=DPI)
    plt.close(figure)


def _json(diff: Difference, options: Namespace) -> str:
    """The numbers, the largest differences with their inputs, and the areas of pairs of classes."""
    found = [diff.largest(norm) for norm in (1, 2, "inf")]
    content: dict[str, Any] = {
        "models": [options.first, options.second],
        "stats": diff.stats(),
        "error": diff.error.tolist(),
        "largest": [
            {
                "norm": f"{each.norm:g}",
                "value": each.value,
                "error": each.error,
                "place": each.place,
                "input": each.input.tolist(),
                "outputs": [output.tolist() for output in each.outputs],
            }
            for each in found
        ],
        "areas": diff.disagreement.areas.tolist(),
        "unresolved": [place._asdict() for place in diff.unresolved],
    }
    return json.dumps(plain(content), indent=2, allow_nan=False)
