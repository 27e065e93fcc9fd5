"""Which options go together: what is wrong before any model or file is read."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from splinecam._util.text import did_you_mean
from splinecam.cli.parser import (
    DPI,
    EXPORTS,
    FORMATS,
    SOLIDS,
    SURFACES,
    make_parser,
    without_exponents,
)

# Each of these options needs one of the others.
_NEEDS = {
    "pick": ("through", "around", "fit", "polygon", "points", "at"),
    "key": ("through", "around", "fit", "polygon", "points", "at"),
    "slice": ("box", "vnnlib"),
    "at": ("slice",),
    "case": ("vnnlib",),
    "margin": ("through", "fit"),
    "tight": ("through",),
    "side": ("around",),
    "seed": ("around",),
    "arg": ("model", "subjects"),
    "weights": ("model", "subjects"),
    "full": ("model",),
    "labels": ("points",),
    "labels_key": ("labels",),
    "undecided": ("refine",),
}
_PICTURE = ("color", "output", "level", "axes", "no_edges", "boundary")
NOT_FOR = {"surface": ("axes", "points"), "histograms": (*_PICTURE, "points")}
_SAMPLES = {"through": 3, "around": 1}
_WIDE = 6.0  # the usual width of a picture in inches, about
_PICTURES = [f".{kind}" for kind in FORMATS]
_PIXELS = 25_000  # the largest width of a picture
# The files that a command writes if it is asked for them, with the endings of their names.
_WRITTEN = {
    "view": {"html": [".html", ".htm"]},
    "playground": {"out": [".html", ".htm"]},
    "difference": {"out": _PICTURES},
    "stats": {"table": [".csv", ".parquet"]},
    "check-property": {
        **{"out": _PICTURES, "witness": [".npy"], "certificate": [".cert"]},
        "verdict": [".txt"],
    },
}


def parse(argv: Sequence[str] | None = None) -> Namespace:
    """Return the options of a command; wrong ones end the program with exit code 2.

    >>> parse(["plot", "out/partition.npz", "--level", "-1e-3"]).level
    -0.001
    """
    words = sys.argv[1:] if argv is None else argv
    options = make_parser().parse_args(list(without_exponents(words)))
    for problem in _problems(options):
        options.fail(problem)
    return options


def _problems(options: Namespace) -> Iterator[str]:
    given = {name: value for name, value in vars(options).items() if _is_given(name, value)}
    for name, needed in _NEEDS.items():
        known = [_option(other) for other in needed if hasattr(options, other)]
        if known and name in given and not any(other in given for other in needed):
            yield f"{_option(name)} goes with {_either(known)}"
    if "box" in given and options.command != "surface":
        yield from _box(options)
    if "slice" in given:
        names = getattr(options, "features", None) or []
        for word in options.slice:
            if isinstance(word, str) and word not in names:
                nor = f", nor a name of --features.{did_you_mean(word, names)}" if names else ""
                yield f"{word!r} is not the index of a feature, such as 0 or 0,3,5{nor}"
    if "at" in given:
        files = [each for each in options.at if not isinstance(each, list)]
        if files and len(options.at) > 1:
            yield f"--at takes numbers or one file, and {str(files[0])!r} is no number"
        options.at = files[0] if files else list(chain.from_iterable(options.at))
    for name, samples in _SAMPLES.items():
        if name in given and len(options.pick or range(samples)) != samples:
            yield f"--pick takes {samples} number{'s' * (samples > 1)} with --{name}"
    if "thorough" in given and not options.validate:
        yield "--thorough is for the check, and --no-validate makes none"
    if "axes" in vars(options):
        yield from _picture(options, given)
    if "certificate" in given:
        for name in given.keys() & {"smooth", "refine"}:
            yield f"{_option(name)} is not for --certificate, which is about exact regions"
    written = _WRITTEN.get(options.command, {})
    for name, endings in written.items():
        yield from _ending(_option(name), getattr(options, name), endings)
    if written and "force" in given and not any(name in given for name in written):
        yield f"--force goes with {_either([_option(name) for name in written])}"
    if options.command in _COMMANDS:
        yield from _COMMANDS[options.command](options, given)


def _is_given(name: str, value: Any) -> bool:
    return value is not None and value != [] and (value is not False or name == "boundary")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _ending(option: str, path: Path | None, endings: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the name of a file that must have one of a few endings."""
    if path is not None and path.suffix.lower() not in endings:
        yield f"{option} {path} must end in {_either(endings)}".lstrip()


def _box(options: Namespace) -> Iterator[str]:
    corners = list(chain.from_iterable(options.box))
    sliced = options.slice is not None
    if sliced and len(corners) % 2:
        yield f"--box takes two numbers (LO HI), or all LO and then all HI, not {len(corners)}"
    elif len(corners) not in (2, 4) and not sliced:
        takes = f"two numbers (LO HI) or four (XMIN YMIN XMAX YMAX), not {len(corners)}"
        yield f"--box takes {takes}; for more inputs say which two to show, such as --slice 0 1"
    half = len(corners) // 2
    for low, high in zip(corners[:half], corners[half:], strict=True):
        if low > high or (low == high and not sliced):
            yield f"--box: {low:g} must be below {high:g}"
    options.box = corners[:half], corners[half:]
    if options.input_shape is not None and prod(options.input_shape) != 2 and not sliced:
        others = "--slice, --through, --around, --fit or --polygon"
        yield f"--box is for inputs of two numbers; use {others}"


def _picture(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    asked = [name for name in (*_PICTURE, "points", "size", "dpi", "format") if name in given]
    shown = {name: f"--no-{name}" for name in asked if given[name] is False}
    kind = getattr(options, "kind", "regions")
    for name in asked:
        if getattr(options, "no_plot", False):
            yield f"{shown.get(name, _option(name))} is for a picture, and --no-plot draws none"
        if name in NOT_FOR.get(kind, ()):
            yield f"{shown.get(name, _option(name))} is not for --kind {kind}"
    used = kind == "surface" or options.color in ("slope", "output")
    used |= given.get("refine", ["boundary"]) != ["boundary"]  # levels of the output
    if "output" in given and not used:
        those = ["--color slope", "--color output", *["--kind surface"] * ("kind" in given)]
        yield f"--output goes with {_either(those)}"
    if "model" in given and "kind" in given and kind != "layers":
        yield "--model is for --kind layers, where it shows a unit of each layer"
    if (options.dpi or DPI) * (options.size or _WIDE) > _PIXELS:
        wide = f"{_PIXELS:,} pixels wide"
        yield f"--size or --dpi is too large: a picture may be {wide}"
    if "kind" in given:
        yield from _ending("--out", options.out or options.saved.with_suffix(".png"), _PICTURES)


def _partition(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    words = given.get("refine", ["boundary"])
    if words != ["boundary"] and ("boundary" in words or "smooth" in given):
        yield "--refine takes the word boundary alone, or levels without --smooth"
    if "undecided" in given and "smooth" not in given:
        yield "--undecided goes with --smooth"
    yield from _ending("--certificate", options.certificate, [".cert"])


def _view(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    for name in ("port", "no_browser"):
        if name in given and "html" in given:
            yield f"{_option(name)} is for the browser, and --html opens none"


def _difference(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    if "output" in given and "out" not in given:
        yield "--output goes with --out"


def _stats(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    if options.table is not None and len(options.saved) > 1:
        yield "--table is for one saved partition at a time"
    if options.model is not None and not options.full:
        yield "--model goes with --full"


def _export(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    for path in options.files:
        yield from _ending("", path, EXPORTS)
    surfaces = [path for path in options.files if path.suffix.lower() in SURFACES]
    for name in ("output", "space"):
        if name in given and not surfaces:
            yield f"{_option(name)} is for a file that ends in {_either(SURFACES)}"


def _surface(options: Namespace, given: dict[str, Any]) -> Iterator[str]:
    count = len(options.box)
    if count not in (2, 6):
        yield f"--box takes 2 numbers (LO HI) or 6 (XMIN YMIN ZMIN XMAX YMAX ZMAX), not {count}"
    options.box = (
        [options.box[:1] * 3, options.box[1:] * 3]
        if count == 2
        else [options.box[:3], options.box[3:]]
    )
    for low, high in zip(*options.box, strict=False):
        if low >= high:
            yield f"--box: {low:g} must be below {high:g}"
    if len(options.output) > 2:
        yield f"--output takes one output or two, not {len(options.output)}"
    if prod(options.input_shape or (3,)) != 3:
        yield "--input-shape is of inputs of three numbers"
    for path in options.out:
        yield from _ending("--out", path, (*SOLIDS, *_PICTURES))


_COMMANDS = {
    "surface": _surface,
    "partition": _partition,
    "view": _view,
    "difference": _difference,
    "stats": _stats,
    "export": _export,
}
