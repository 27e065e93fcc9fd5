"""The options of the command ``splinecam``, and their help."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splinecam import __version__
from splinecam.cli import completion, words

__all__ = ["COLORS", "DPI", "FORMATS", "KINDS", "make_parser"]

COLORS = ("class", "slope", "area", "output", "layer", "vertices", "random", "merged")
FORMATS = ("png", "pdf", "svg")
KINDS = ("regions", "surface", "layers", "histograms")
AXES = ("scale", "ticks", "off")
DPI = 200

_MODEL = """\
MODEL is one of
  model.pt2                   a program written by torch.export.save
  package.module:factory      a function or class that makes an nn.Module, or a module itself;
                              the current folder is importable
  path/to/file.py:factory     the same, in a file
The model is used in eval mode. Code and exported programs are run, so use those that you trust;
checkpoints (--weights) are opened with weights_only, which runs no code.
"""


def make_parser() -> ArgumentParser:
    """The parser of all commands."""
    parser = ArgumentParser(
        prog="splinecam",
        description="The exact linear regions of a piecewise-linear network on a 2-D domain.",
        epilog="splinecam COMMAND --help tells more of each. To begin: splinecam demo",
        formatter_class=_wide,
    )
    parser.add_argument("-V", "--version", action="version", version=f"splinecam {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def command(name: str, arguments: str, summary: str, text: str) -> ArgumentParser:
        found = commands.add_parser(
            name,
            usage=f"splinecam {name} {arguments}",
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=text,
            formatter_class=_wide,
        )
        found.add_argument("--debug", action="store_true", help="show the traceback of an error")
        found.set_defaults(fail=found.error)
        return found

    for name, (arguments, summary, text, add_options) in _COMMANDS.items():
        add_options(command(name, arguments, summary, text))
    return parser


def _wide(prog: str) -> RawDescriptionHelpFormatter:
    """Help with room for the options' names."""
    return RawDescriptionHelpFormatter(prog, max_help_position=30)


# -- commands -----------------------------------------------------------------------------------

_DEMO = """\
examples:
  splinecam demo
  splinecam demo --out pictures --device cpu
"""


def _demo(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to (out)"
    )
    _add_device(parser)
    parser.add_argument(
        "--dpi",
        type=words.resolution,
        default=DPI,
        metavar="N",
        help=f"dots per inch of the pictures ({DPI})",
    )
    parser.add_argument(
        "--steps", type=words.count, default=800, metavar="N", help="training steps (800)"
    )


_PARTITION = f"""\
{_MODEL}
writes to DIR: partition.npz (sc.load, splinecam plot and stats read it), stats.json, stats.txt,
and the picture regions.png

examples:
  splinecam partition net.py:build --box -1 1 --out out
  splinecam partition net.py:build --arg width=64 --weights net.pt --box 0 0 2 1 --out out
  splinecam partition cnn.pt2 --through digits.npz --key x --pick 3 8 14 --out out
  splinecam partition cnn.pt2 --around digits.npy --pick 7 --side 0.5 --out out
"""


def _partition(parser: ArgumentParser) -> None:
    _add_model(parser)
    _add_domain(parser, required=True)
    outputs = parser.add_argument_group("results")
    outputs.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder to write to; made if needed"
    )
    _add_force(outputs)
    outputs.add_argument(
        "--format",
        nargs="+",
        choices=FORMATS,
        metavar="KIND",
        help="format of the picture: png, pdf, svg, or several of them (png)",
    )
    outputs.add_argument("--no-plot", action="store_true", help="draw no picture")
    _add_picture(outputs)
    how = parser.add_argument_group("computation")
    _add_device(how)
    how.add_argument(
        "--memory",
        type=words.bytes_of_memory,
        metavar="BYTES",
        help="memory to use, such as 500MB or 2GB",
    )
    how.add_argument("--max-regions", type=words.amount, metavar="N", help="stop if there are more")
    how.add_argument(
        "--validate",
        action=BooleanOptionalAction,
        default=True,
        help="check the result against the model (yes)",
    )
    how.add_argument("--thorough", action="store_true", help="check every region, not a sample")
    _add_quiet(how)


_PLOT = """\
examples:
  splinecam plot out/partition.npz
  splinecam plot out/partition.npz --color slope --out slope.pdf
  splinecam plot out/partition.npz --kind surface --output 0 --out surface.png
  splinecam plot out/partition.npz --color output --output 2 --axes ticks --out two.svg
  splinecam plot out/partition.npz --points digits.npz --key x --pick 3 8 14 --out marked.png
  splinecam plot out/partition.npz --kind layers --model net.py:build --out layers.png
"""


def _plot(parser: ArgumentParser) -> None:
    parser.add_argument("saved", type=Path, metavar="SAVED.npz", help="a saved partition")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture to write, .png, .pdf or .svg (SAVED.png)",
    )
    _add_force(parser)
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default=KINDS[0],
        metavar="KIND",
        help=f"what to draw: {', '.join(KINDS)} (regions)",
    )
    _add_picture(parser)
    parser.add_argument(
        "--points", type=Path, metavar="FILE", help="mark samples: .npy, .npz or .pt of a batch"
    )
    _add_pick(parser, "all")
    _add_model_option(parser, "the network, which --kind layers needs to show units")
    _add_quiet(parser)


_STATS = """\
examples:
  splinecam stats out/partition.npz
  splinecam stats out/partition.npz --json | jq .stats.NR
  splinecam stats small.npz large.npz        side by side
  splinecam stats out/partition.npz --table regions.csv
  splinecam stats out/partition.npz --full --model net.py:build
"""


def _stats(parser: ArgumentParser) -> None:
    parser.add_argument(
        "saved", type=Path, nargs="+", metavar="SAVED.npz", help="saved partitions, one or several"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--table", type=Path, metavar="FILE.csv", help="write one row per region to a file"
    )
    _add_force(parser)
    parser.add_argument(
        "--full", action="store_true", help="also the slopes in input space, which need --model"
    )
    _add_model_option(parser, "the network, for --full")


_CHECK = f"""\
{_MODEL}
The exit code is 0 for a supported model and 1 for one that is not.

examples:
  splinecam check net.py:build --input-shape 1,28,28
  splinecam check torchvision.models:resnet18 --input-shape 3,64,64
  splinecam check model.pt2
"""


def _check(parser: ArgumentParser) -> None:
    _add_model(parser)
    _add_domain(parser, required=False)


_OPS = """\
Names are those of ATen, to which a model is exported; --search also finds MaxPool2d or ReLU6.

examples:
  splinecam ops
  splinecam ops --search pool
"""


def _ops(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--search", metavar="WORD", help="only those with this word")
    which.add_argument("--markdown", action="store_true", help="print a page in Markdown")


_COMMANDS: dict[str, tuple[str, str, str, Callable[[ArgumentParser], None]]] = {
    "demo": ("[options]", "train a small classifier and show its regions", _DEMO, _demo),
    "partition": (
        "MODEL (--box|--through|--around|--polygon) ... --out DIR [options]",
        "compute, check, draw and save a partition",
        _PARTITION,
        _partition,
    ),
    "plot": ("SAVED.npz [--out FILE] [options]", "draw a saved partition", _PLOT, _plot),
    "stats": (
        "SAVED.npz ... [--json] [--table FILE] [options]",
        "show the statistics of saved partitions",
        _STATS,
        _stats,
    ),
    "check": (
        "MODEL [--input-shape 1,28,28] [options]",
        "say whether a model is supported, and what stands in the way",
        _CHECK,
        _check,
    ),
    "ops": (
        "[--search WORD | --markdown]",
        "list the operations that are supported, and those that are not",
        _OPS,
        _ops,
    ),
    "completion": ("SHELL", "print a completion script", completion.HELP, completion.add_options),
}


# -- options of several commands ------------------------------------------------------------------


def _add_model(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the network: see below")
    _add_factory(parser)
    parser.add_argument(
        "--result", type=words.key, metavar="KEY", help="which of several results: a name or index"
    )


def _add_model_option(parser: ArgumentParser, summary: str) -> None:
    parser.add_argument(
        "--model", metavar="MODEL", help=f"{summary}; written as for splinecam partition"
    )
    _add_factory(parser)


def _add_factory(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        type=words.argument,
        metavar="NAME=VALUE",
        help="argument of the factory; may be repeated",
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="state dict for what the factory makes: .pt, .pth, .npz or .safetensors",
    )


def _add_domain(parser: ArgumentParser, *, required: bool) -> None:
    group = parser.add_argument_group(
        "domain", "a polygon of the input space; FILE is .npy, .npz or .pt of a batch of inputs"
    )
    which = group.add_mutually_exclusive_group(required=required)
    which.add_argument(
        "--box",
        type=words.numbers,
        nargs="+",
        metavar="X",
        help="a rectangle, for models with two inputs: LO HI, or XMIN YMIN XMAX YMAX",
    )
    which.add_argument(
        "--through", type=Path, metavar="FILE", help="a square in the plane through three samples"
    )
    which.add_argument(
        "--around", type=Path, metavar="FILE", help="a square in a random plane around a sample"
    )
    which.add_argument(
        "--polygon", type=Path, metavar="FILE", help="the convex polygon with these corners"
    )
    _add_pick(group, "the first ones; of --polygon all")
    group.add_argument(
        "--input-shape",
        type=words.shape,
        metavar="1,28,28",
        help="the shape of one input, if the samples in FILE have another one",
    )
    group.add_argument(
        "--margin",
        type=words.share,
        metavar="X",
        help="with --through: room on each side, as a share of the samples' extent (0.2)",
    )
    group.add_argument(
        "--tight", action="store_true", help="with --through: a tight rectangle, not a square"
    )
    group.add_argument(
        "--side", type=words.positive, metavar="X", help="with --around: side of the square (1)"
    )
    group.add_argument(
        "--seed", type=int, metavar="N", help="with --around: which random plane (0)"
    )


def _add_pick(parser: Any, default: str) -> None:
    parser.add_argument(
        "--pick",
        type=int,
        nargs="+",
        metavar="I",
        help=f"which samples of FILE, counted from 0 ({default})",
    )
    parser.add_argument("--key", metavar="NAME", help="which array, if FILE holds several")


def _add_picture(parser: Any) -> None:
    parser.add_argument(
        "--color", choices=COLORS, metavar="BY", help=f"colour by {', '.join(COLORS)}"
    )
    parser.add_argument(
        "--output",
        type=int,
        metavar="K",
        help="which output: of --color slope or output, or of a surface",
    )
    parser.add_argument(
        "--boundary",
        action=BooleanOptionalAction,
        help="draw the decision boundary (by default on classes and with several outputs)",
    )
    parser.add_argument(
        "--level",
        type=words.number,
        metavar="X",
        help="draw the boundary where the only output has this value (0)",
    )
    parser.add_argument("--no-edges", action="store_true", help="draw no edges of regions")
    parser.add_argument(
        "--axes", choices=AXES, metavar="STYLE", help="a scale bar, ticks or off (scale)"
    )
    parser.add_argument("--size", type=words.inches, metavar="INCHES", help="width of the picture")
    parser.add_argument("--dpi", type=words.resolution, metavar="N", help=f"dots per inch ({DPI})")


def _add_device(parser: Any) -> None:
    parser.add_argument(
        "--device",
        type=words.device,
        default="auto",
        metavar="D",
        help="auto, cpu or cuda (auto: a GPU if there is one)",
    )


def _add_force(parser: Any) -> None:
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def _add_quiet(parser: Any) -> None:
    parser.add_argument("--quiet", action="store_true", help="print errors only")
