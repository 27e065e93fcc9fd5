"""The options of all commands, and their types: functions from a word to its value."""

from __future__ import annotations

import ast
import math
import re
from argparse import (
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from splinecam import __version__
from splinecam._util.text import amount_of, bytes_of, did_you_mean
from splinecam.cli import console as completion
from splinecam.cli.help_texts import HELP

_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?(,.*)?", re.IGNORECASE)


def without_exponents(words: Iterable[str]) -> Iterator[str]:
    """Yield the words with negative numbers as argparse knows them: -1e3 and -1,1 are no options.

    >>> list(without_exponents(["--box", "-1e3", "-2.5,1", "--level", "-1E-2"]))
    ['--box', '-1000', '-2.5', '1', '--level', '-0.01']
    """
    for word in words:
        if not _NEGATIVE.fullmatch(word):
            yield word
            continue
        for part in word.split(","):
            yield format(Decimal(part), "f") if _NEGATIVE.fullmatch(part) else part


def _require(valid: bool, message: str) -> None:
    if not valid:
        raise ArgumentTypeError(message)


def number(word: str) -> float:
    """Read a finite number."""
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    _require(math.isfinite(found), f"{word!r} is not a finite number")
    return found


def numbers(word: str) -> list[float]:
    """Read one number, or several with commas between them."""
    try:
        return [number(part) for part in word.split(",")]
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; MODEL goes before --box") from None


def numbers_or_file(word: str) -> list[float] | Path:
    """Read one number or several with commas between them, or else the name of a file."""
    try:
        return [number(part) for part in word.split(",")]
    except ArgumentTypeError:
        return Path(word)


def axis(word: str) -> int | tuple[int, ...] | str:
    """Read a feature: its index, with commas in several dimensions, or else its name."""
    if not re.fullmatch(r"-?\d+(,-?\d+)*", word):
        return word
    index = tuple(map(int, word.split(",")))
    return index if len(index) > 1 else index[0]


def _whole(word: str) -> int:
    return int(word) if word.isdecimal() else -1


def _checked(
    read: Callable[[str], Any], valid: Callable[[Any], object], otherwise: str
) -> Callable[[str], Any]:
    """Return a type: what ``read`` makes of a word; if that is invalid, ``otherwise`` says why."""

    def kind(word: str) -> Any:
        found = read(word)
        _require(bool(valid(found)), f"{word!r} {otherwise}")
        return found

    return kind


positive = _checked(number, lambda x: x > 0, "is not a number above 0")
not_negative = _checked(number, lambda x: x >= 0, "is below 0")
share = _checked(number, lambda x: 0 < x < 1, "is not a number between 0 and 1, such as 1e-3")
inches = _checked(number, lambda x: 0.5 <= x <= 100, "is not a width of 0.5 to 100 inches")
count = _checked(_whole, lambda n: n > 0, "is not a whole number above 0")
port = _checked(_whole, lambda n: 0 <= n < 1 << 16, "is not a port, 0 to 65535")
resolution = _checked(count, lambda n: n <= 2400, "is too fine: at most 2400 dots per inch")
amount = _checked(  # also written 1e6, 2k or 2M
    amount_of, lambda n: n and n > 0, "is not a whole number above 0, such as 500000 or 1e6"
)
bytes_of_memory = _checked(  # also written 2e9, 2G, 2GB or 2GiB
    bytes_of, lambda n: n and n >= 10**6, "is not an amount of memory, such as 500MB or 2GB"
)
# The name of a device, whether it is there or not.
device = _checked(str, re.compile(r"auto|cpu|cuda(:\d+)?").fullmatch, "is not auto, cpu or cuda")


def where(word: str) -> float | str:
    """Read what regions are divided for: the word ``boundary``, or a level."""
    return word if word == "boundary" else number(word)


def levels_of(options: Namespace) -> list[float]:
    """Return the levels that regions are divided for."""
    return [level for level in getattr(options, "refine", None) or () if level != "boundary"]


def error_bound(word: str) -> float | str:
    """Read an error that outputs may have: a number above 0, or text such as ``1%``.

    >>> error_bound("1e-3"), error_bound("0.5%")
    (0.001, '0.5%')
    """
    relative = word.endswith("%")
    found = positive(word.removesuffix("%"))
    return f"{found:g}%" if relative else found


def shape(word: str) -> tuple[int, ...]:
    """Read numbers with commas, or with ``x`` between them."""
    sizes = word.strip("()").replace("x", ",").replace(" ", "").rstrip(",").split(",")
    whole = all(size.isdecimal() and int(size) for size in sizes)
    _require(whole, f"{word!r} is not a shape such as 2 or 1,28,28")
    return tuple(map(int, sizes))


def argument(word: str) -> tuple[str, Any]:
    """Read ``width=64``: a name, and a Python literal or else a plain word."""
    name, equals, value = word.partition("=")
    _require(bool(equals) and name.isidentifier(), f"{word!r} is not NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def index_or_name(word: str) -> int | str:
    """Read the index of an output, or its name."""
    return int(word) if re.fullmatch(r"-?\d+", word) else word


COLORS = ("class", "slope", "area", "output", "layer", "vertices", "random", "merged")
FORMATS = ("png", "pdf", "svg")
SURFACES = (".ply", ".vtp", ".vtk")
SOLIDS = (*SURFACES, ".obj", ".stl", ".glb")
EXPORTS = (".geojson", ".json", ".parquet", *SURFACES)
KINDS = ("regions", "surface", "layers", "histograms")
AXES = ("scale", "ticks", "off")
DPI = 200


class _Parser(ArgumentParser):
    """A parser that asks whether the nearest command or value was meant."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and end the program."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        near = did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        super().error(f"{message}.{near}" if near else message)


class _Command(_Parser):
    """The parser of one command, whose errors about unknown options show its own usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the options; what is left over is an error."""
        known = [name for action in self._actions for name in action.option_strings]
        # This comes first: otherwise the message is that a required option is missing.
        for word in takewhile(lambda word: word != "--", args):
            name = word.partition("=")[0]
            if word.startswith("--") and not any(each.startswith(name) for each in known):
                self.error(f"there is no option {name}.{did_you_mean(name, known)}")
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def make_parser() -> ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="splinecam",
        description="The exact linear regions of a piecewise-linear network on a 2-D domain.",
        epilog="splinecam COMMAND --help tells more of each. To begin: splinecam demo",
        formatter_class=_wide,
    )
    parser.add_argument("-V", "--version", action="version", version=f"splinecam {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=_Command
    )
    for name, add_options in _COMMANDS.items():
        arguments, summary, text = HELP[name].split("\n", 2)
        command = commands.add_parser(
            name,
            usage=f"splinecam {name} {arguments}",
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=text.lstrip(),
            formatter_class=_wide,
        )
        _flag(command, "--debug", "show the traceback of an error")
        command.set_defaults(fail=command.error)
        add_options(command)
    return parser


def _wide(prog: str) -> RawDescriptionHelpFormatter:
    """Return a formatter of help with room for the names of options."""
    return RawDescriptionHelpFormatter(prog, max_help_position=30)


# `Any` stands for a parser or a group of options, whose common class argparse keeps private.


def _option(
    parser: Any, name: str, kind: Callable[[str], Any], metavar: str, text: str, **more: Any
) -> None:
    """Add an option with a value, which ``kind`` reads from its text."""
    parser.add_argument(name, type=kind, metavar=metavar, help=text, **more)


def _choice(parser: Any, name: str, values: tuple[str, ...], text: str, **more: Any) -> None:
    """Add an option whose value is one of a few words."""
    parser.add_argument(name, choices=values, help=text, **more)


def _flag(parser: Any, name: str, text: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text)


def _add(parser: Any, *names: str) -> None:
    """Add options that several commands have."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


_FLAG = {"action": "store_true"}
_FACTORY = ("--arg", "--weights")
_NAMES = ("--classes", "--features")
_SHARED: dict[str, dict[str, Any]] = {
    "model": {"metavar": "MODEL", "help": "the network: see below"},
    "saved": {"type": Path, "metavar": "SAVED.npz", "help": "a saved partition"},
    "--arg": {"type": argument, "metavar": "NAME=VALUE", "action": "append", "default": []}
    | {"help": "argument of the factory; may be repeated"},
    "--weights": {"type": Path, "metavar": "FILE"}
    | {"help": "state dict for what the factory makes: .pt, .pth, .npz or .safetensors"},
    "--result": {"type": index_or_name, "metavar": "KEY"}
    | {"help": "which of several results: a name or index"},
    "--classes": {"metavar": "NAME", "nargs": "+"}
    | {"help": "names of the classes, in the order of the outputs (the names in the file)"},
    "--features": {"metavar": "NAME", "nargs": "+"}
    | {"help": "names of all features, or of the two that are shown, for the axes"},
    "--points": {"type": Path, "metavar": "FILE"}
    | {"help": "mark samples: .npy, .npz or .pt of a batch"},
    "--json": _FLAG | {"help": "print JSON"},
    "--force": _FLAG | {"help": "overwrite files that exist"},
    "--quiet": _FLAG | {"help": "print errors only"},
    "--device": {"type": device, "metavar": "D", "default": "auto"}
    | {"help": "auto, cpu or cuda (auto: a GPU if there is one)"},
    "--memory": {"type": bytes_of_memory, "metavar": "BYTES"}
    | {"help": "memory to use, such as 500MB or 2GB"},
}


# -- commands -----------------------------------------------------------------------------------


def _demo(parser: ArgumentParser) -> None:
    _option(parser, "--out", Path, "DIR", "folder to write to (out)", default=Path("out"))
    _add(parser, "--device")
    dots = f"dots per inch of the pictures ({DPI})"
    _option(parser, "--dpi", resolution, "N", dots, default=DPI)
    _option(parser, "--steps", count, "N", "training steps (800)", default=800)


def _playground(parser: ArgumentParser) -> None:
    default = Path("out/playground.html")
    _option(parser, "--out", Path, "FILE", f"file to write ({default})", default=default)
    _add(parser, "--force")
    _flag(parser, "--no-browser", "only write it")


def _partition(parser: ArgumentParser) -> None:
    _add(parser, "model", *_FACTORY, "--result")
    _add_domain(parser, required=True)
    outputs = parser.add_argument_group("results")
    _option(outputs, "--out", Path, "DIR", "folder to write to; made if needed", required=True)
    text = "write a certificate, which splinecam_check.py checks, to a .cert file"
    _option(outputs, "--certificate", Path, "FILE", text)
    _add(outputs, "--force")
    formats = "format of the picture: png, pdf, svg, or several of them (png)"
    _choice(outputs, "--format", FORMATS, formats, nargs="+", metavar="KIND")
    _flag(outputs, "--no-plot", "draw no picture")
    _add_picture(outputs)
    how = _add_computation(parser, refine=True)
    check = "check the result against the model (yes)"
    how.add_argument("--validate", action=BooleanOptionalAction, default=True, help=check)
    _flag(how, "--thorough", "check every region, not a sample")
    _add(how, "--quiet")


def _plot(parser: ArgumentParser) -> None:
    _add(parser, "saved")
    _option(parser, "--out", Path, "FILE", "picture to write, .png, .pdf or .svg (SAVED.png)")
    _add(parser, "--force")
    kinds = f"what to draw: {', '.join(KINDS)} (regions)"
    _choice(parser, "--kind", KINDS, kinds, default=KINDS[0], metavar="KIND")
    _add_picture(parser)
    _add(parser, "--points")
    _add_pick(parser, "all")
    _add_model(parser, "the network, which --kind layers needs to show units")
    _add(parser, "--quiet")


def _stats(parser: ArgumentParser) -> None:
    _option(parser, "saved", Path, "SAVED.npz", "saved partitions, one or several", nargs="+")
    _add(parser, "--json")
    _option(parser, "--table", Path, "FILE", "write one row per region to a .csv or .parquet file")
    _add(parser, "--force")
    _flag(parser, "--full", "also the slopes in input space, which need --model")
    _add_model(parser, "the network, for --full")


def _export(parser: ArgumentParser) -> None:
    _add(parser, "saved")
    text = f"files to write, which end in {', '.join(EXPORTS)}"
    _option(parser, "files", Path, "FILE", text, nargs="+")
    _option(parser, "--output", int, "K", "the output that is the height of a surface (none)")
    text = "coordinates of a surface: plane, or input for networks with 2 or 3 inputs (plane)"
    _choice(parser, "--space", ("plane", "input"), text, metavar="SPACE")
    text = "numbers of each region, by their names in the table (class area layer)"
    _option(parser, "--columns", str, "NAME", text, nargs="+")
    _add(parser, "--force", "--quiet")


def _difference(parser: ArgumentParser) -> None:
    _option(parser, "first", str, "MODEL_A", "the first network: see below")
    _option(parser, "second", str, "MODEL_B", "the second network")
    _add(parser, *_FACTORY)
    _option(parser, "--weights-b", Path, "FILE", "the same for the second network")
    _add(parser, "--result")
    _add_domain(parser, required=True)
    outputs = parser.add_argument_group("results")
    _add(outputs, "--json")
    _option(outputs, "--out", Path, "FILE", "picture to write, .png, .pdf or .svg")
    _option(outputs, "--output", int, "K", "the output that the picture shows (all)")
    _add(outputs, "--force")
    _add(_add_computation(parser), "--quiet")


def _local(parser: ArgumentParser) -> None:
    _add(parser, "model", *_FACTORY, "--result")
    balls = parser.add_argument_group("balls")
    text = "the samples: .npy, .npz or .pt of a batch"
    _option(balls, "--points", Path, "FILE", text, required=True)
    _add_pick(balls, "all")
    text = "the shape of one input, if the samples in FILE have another one"
    _option(balls, "--input-shape", shape, "1,28,28", text)
    _option(balls, "--radius", positive, "X", "radius of the ball around each", required=True)
    _option(balls, "--directions", count, "N", "diameters of each ball (12)", default=12)
    _option(balls, "--seed", int, "N", "which random directions (0)", default=0)
    text = "how far the mean may be off, relative to it (0.01)"
    _option(balls, "--precision", positive, "X", text, default=0.01)
    _flag(balls, "--exact", "divide all diameters exactly")
    _add(parser, "--json", "--device", "--memory", "--quiet")


def _surface(parser: ArgumentParser) -> None:
    _add(parser, "model", *_FACTORY, "--result")
    text = "the box: LO HI for all three axes, or XMIN YMIN ZMIN XMAX YMAX ZMAX"
    _option(parser, "--box", number, "X", text, nargs="+", required=True)
    text = "the shape of one input of three numbers (3)"
    _option(parser, "--input-shape", shape, "3", text)
    _option(parser, "--level", number, "X", "the value of the output (0)", default=0.0)
    text = "which output (0); two of them: where both are equal"
    _option(parser, "--output", int, "K", text, nargs="+", default=[0])
    results = parser.add_argument_group("results")
    text = f"files to write, which end in {', '.join(SOLIDS)}, or pictures: .png, .pdf, .svg"
    _option(results, "--out", Path, "FILE", text, nargs="+", required=True)
    _flag(results, "--capped", "close the surface at the sides of the box")
    text = "the axis that points up in pictures: x, y or z (z)"
    _choice(results, "--up", ("x", "y", "z"), text, default="z", metavar="AXIS")
    _add(results, "--json", "--force")
    how = parser.add_argument_group("computation")
    check = "check the surface against the model (yes)"
    how.add_argument("--validate", action=BooleanOptionalAction, default=True, help=check)
    _add(how, "--device", "--memory", "--quiet")


def _view(parser: ArgumentParser) -> None:
    text = "what to look at, one or several: see below"
    _option(parser, "subjects", str, "SUBJECT", text, nargs="+")
    _add_model(parser, "the network of a saved partition")
    _add(parser, "--result")
    _add_domain(parser, required=False)
    look = parser.add_argument_group("look")
    text = f"colour by {', '.join(COLORS)}, or a column of the table of regions"
    _option(look, "--color", str, "BY", text)
    _option(look, "--output", int, "K", "which output colours and level sets mean")
    text = "the level of the boundary of a network with one output (0)"
    _option(look, "--level", number, "X", text)
    _add(look, "--points")
    _option(look, "--labels", Path, "FILE", "their classes: .npy, .npz or .pt, numbered from 0")
    _option(look, "--labels-key", str, "NAME", "which array, if --labels holds several")
    _option(look, "--title", str, "TEXT", "the heading of the page")
    how = parser.add_argument_group("opening and computation")
    _option(how, "--html", Path, "FILE", "write one file that needs no Python, and open nothing")
    _add(how, "--force")
    _flag(how, "--no-browser", "open no browser; open the address that is printed")
    _option(how, "--port", port, "N", "port of the server (any free one)")
    _add(how, "--device", "--memory")
    text = "regions that are computed for one picture (200k)"
    _option(how, "--max-regions", amount, "N", text)
    _add(how, "--quiet")


def _check(parser: ArgumentParser) -> None:
    _add(parser, "model", *_FACTORY, "--result")
    _add_domain(parser, required=False)


def _check_property(parser: ArgumentParser) -> None:
    _add(parser, "model")
    _option(parser, "property", Path, "PROPERTY", "the property: a .vnnlib or .vnnlib.gz file")
    _add(parser, *_FACTORY, "--result")
    text = "the second network, of a property of two networks"
    _option(parser, "--beside", str, "MODEL", text)
    which = parser.add_argument_group("slice")
    _add_slice(which, "which of the property's boxes, counted from 0 (all)")
    _add_pick(which, "the first one")
    text = "the shape of one input, if that of the property is another one"
    _option(which, "--input-shape", shape, "1,28,28", text)
    results = parser.add_argument_group("results")
    _add(results, "--json", *_NAMES)
    _option(results, "--out", Path, "FILE", "draw the unsafe part: a .png, .pdf or .svg file")
    _flag(results, "--area", "find all that is unsafe; else the check ends with the first input")
    _option(results, "--witness", Path, "FILE", "write an unsafe input to an .npy file")
    text = "write sat, unsat or unknown to a file, and the unsafe input, as VNN-COMP wants it"
    _option(results, "--verdict", Path, "FILE", text)
    text = "write a certificate of the verdict, which splinecam_check.py checks, to a .cert file"
    _option(results, "--certificate", Path, "FILE", text)
    _add(results, "--force")
    _add(_add_computation(parser), "--quiet")
    parser.set_defaults(error_code=2)  # 1 says that the property is violated


def _ops(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    _option(which, "--search", str, "WORD", "list only operations with this word")
    _flag(which, "--markdown", "print a page in Markdown")


def _reproduce(parser: ArgumentParser) -> None:
    _option(parser, "names", str, "NAME", "experiments, or all of them: all", nargs="*")
    _flag(parser, "--list", "list the experiments and the figures that they reproduce")
    _flag(parser, "--quick", "a smaller run, of at most two minutes")
    _option(parser, "--data", Path, "DIR", "folder with data sets")
    _option(
        parser, "--out", Path, "DIR", "folder to write to (out/paper)", default=Path("out/paper")
    )
    _option(parser, "--seed", int, "N", "seed of the first network (0)", default=0)
    _add(parser, "--device", "--quiet")


# What adds the options of each command.
_COMMANDS: dict[str, Callable[[ArgumentParser], None]] = {
    "demo": _demo,
    "playground": _playground,
    "partition": _partition,
    "plot": _plot,
    "stats": _stats,
    "export": _export,
    "difference": _difference,
    "local": _local,
    "surface": _surface,
    "view": _view,
    "check": _check,
    "check-property": _check_property,
    "ops": _ops,
    "reproduce": _reproduce,
    "completion": completion.add_options,
}


# -- options of several commands ------------------------------------------------------------------


def _add_model(parser: ArgumentParser, summary: str) -> None:
    _option(parser, "--model", str, "MODEL", f"{summary}; written as for splinecam partition")
    _add(parser, *_FACTORY)


def _add_domain(parser: ArgumentParser, *, required: bool) -> None:
    group = parser.add_argument_group(
        "domain", "a polygon of the input space; FILE is .npy, .npz or .pt of a batch of inputs"
    )
    which = group.add_mutually_exclusive_group(required=required)
    text = "a rectangle, for models with two inputs: LO HI, or XMIN YMIN XMAX YMAX"
    text += "; with --slice: LO HI for all features, or all LO and then all HI"
    _option(which, "--box", numbers, "X", text, nargs="+")
    text = "the box of inputs of a property, a .vnnlib or .vnnlib.gz file; with --slice"
    _option(which, "--vnnlib", Path, "FILE", text)
    _option(which, "--through", Path, "FILE", "a square in the plane through three samples")
    _option(which, "--around", Path, "FILE", "a square in a random plane around a sample")
    text = "a rectangle around samples, of more than two inputs in their principal plane"
    _option(which, "--fit", Path, "FILE", text)
    _option(which, "--polygon", Path, "FILE", "the convex polygon with these corners")
    _add_slice(group, "with --vnnlib: which of its boxes, counted from 0, if there are several")
    _add_pick(group, "the first ones; of --fit and --polygon all")
    text = "the shape of one input, if the samples in FILE have another one"
    _option(group, "--input-shape", shape, "1,28,28", text)
    text = "room on each side, a share of the samples' extent (--through: 0.2, --fit: 0.1)"
    _option(group, "--margin", not_negative, "X", text)
    _flag(group, "--tight", "with --through: a tight rectangle, not a square")
    text = "with --around: side of the square (1)"
    _option(group, "--side", positive, "X", text)
    _option(group, "--seed", int, "N", "with --around: which random plane (0)")


def _add_slice(parser: Any, case: str) -> None:
    text = "which two features of a box to show: names of --features, or numbers, counted from 0; "
    text += "of images such as 0,3,5 0,3,6"
    _option(parser, "--slice", axis, "I", text, nargs=2)
    text = "with --slice: the values of all features, or FILE (the centre of the box)"
    _option(parser, "--at", numbers_or_file, "X", text, nargs="+")
    _option(parser, "--case", int, "K", case)


def _add_pick(parser: Any, default: str) -> None:
    text = f"which samples of FILE, counted from 0 ({default})"
    _option(parser, "--pick", int, "I", text, nargs="+")
    _option(parser, "--key", str, "NAME", "which array, if FILE holds several")


def _add_picture(parser: Any) -> None:
    _add(parser, *_NAMES)
    _choice(parser, "--color", COLORS, f"colour by {', '.join(COLORS)}", metavar="BY")
    text = "which output: of --color slope or output, or of a surface"
    _option(parser, "--output", int, "K", text)
    text = "draw the decision boundary (by default on classes and with several outputs)"
    parser.add_argument("--boundary", action=BooleanOptionalAction, help=text)
    text = "draw the boundary where the only output has this value (0)"
    _option(parser, "--level", number, "X", text)
    _flag(parser, "--no-edges", "draw no edges of regions")
    _choice(parser, "--axes", AXES, "a scale bar, ticks or off (scale)", metavar="STYLE")
    _option(parser, "--size", inches, "INCHES", "width of the picture")
    _option(parser, "--dpi", resolution, "N", f"dots per inch ({DPI})")


def _add_computation(parser: ArgumentParser, *, refine: bool = False) -> Any:
    group = parser.add_argument_group("smooth functions, such as GELU, SiLU and tanh")
    text = "replace them by pieces; outputs may be off by X, or by X%% of their range"
    _option(group, "--smooth", error_bound, "X", text)
    if refine:
        text = "with --refine: on which share of the domain the class may be uncertain (1e-3)"
        _option(group, "--undecided", share, "X", text)
    how = parser.add_argument_group("computation")
    if refine:
        text = "boundary, or levels of an output (--output): only divide regions where these may be"
        _option(how, "--refine", where, "WHERE", text, nargs="+")
    _add(how, "--device", "--memory")
    _option(how, "--max-regions", amount, "N", "stop if there are more")
    return how
