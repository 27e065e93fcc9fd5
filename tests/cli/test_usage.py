"""What needs no torch: the command line's help, and options that are wrong by themselves."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

import splinecam as sc
from splinecam.cli import main
from splinecam.cli.parser import amount, bytes_of_memory, device
from splinecam.cli.usage import parse
from splinecam.errors import DomainError, on_command_line, option
from splinecam.geometry.domain import Domain

PARTITION = "partition m:f --out x"
BOX = f"{PARTITION} --box -1 1"
THROUGH = f"{PARTITION} --through x.npy"
AROUND = f"{PARTITION} --around x.npy"
VIEW = "view m:f"

WRONG = [
    ("nonsense", "invalid choice"),
    # typos
    (f"{BOX} --slcie 0 1", "splinecam partition: error: there is no option --slcie. Did you mean"),
    ("partition m:f --bxo -1 1 --out x", "there is no option --bxo. Did you mean --box?"),
    (f"{BOX} --colour=slope", "there is no option --colour. Did you mean --color?"),
    ("plot x.npz --color sloep", "Did you mean slope?"),
    ("plot x.npz --zzz", "splinecam plot: error: there is no option --zzz.\n"),
    ("plot x.npz y.npz", "splinecam plot: error: unrecognized arguments: y.npz"),
    (PARTITION, "--box --vnnlib --through --around --fit --polygon is required"),
    ("partition m:f --box -1 1", "--out"),
    # values
    (f"{PARTITION} --box a", "'a' is not a finite number"),
    (f"{PARTITION} --box 0 nan", "'nan' is not a finite number"),
    (f"{PARTITION} --box 1", "two numbers (LO HI) or four (XMIN YMIN XMAX YMAX), not 1"),
    (f"{PARTITION} --box 1 2 3", "not 3"),
    (
        f"{PARTITION} --box 0 0 0 1 1 1",
        "for more inputs say which two to show, such as --slice 0 1",
    ),
    (f"{PARTITION} --box 1 -1", "1 must be below -1"),
    (f"{PARTITION} --box 0 0 1 0", "0 must be below 0"),
    (f"{BOX} --memory much", "such as 500MB"),
    (f"{BOX} --memory 10", "such as 500MB"),
    (f"{BOX} --max-regions 0", "'0' is not a whole number above 0, such as 500000 or 1e6"),
    (f"{BOX} --arg 3", "NAME=VALUE"),
    (f"{BOX} --device foo", "'foo' is not auto, cpu or cuda"),
    (f"{BOX} --dpi 0", "above 0"),
    (f"{BOX} --dpi 100000", "at most 2400"),
    (f"{BOX} --size -2", "0.5 to 100 inches"),
    (f"{BOX} --size 90 --dpi 1000", "25,000 pixels"),
    (f"{THROUGH} --margin -2", "'-2' is below 0"),
    (f"{THROUGH} --pick 0 1", "--pick takes 3 numbers with --through"),
    (f"{AROUND} --pick 0 1", "--pick takes 1 number with --around"),
    (f"{AROUND} --side 0", "'0' is not a number above 0"),
    ("check m:f --input-shape big", "not a shape"),
    ("plot x.npz --color nice", "invalid choice"),
    ("plot x.npz --out a.jpg", "must end in .png, .pdf or .svg"),
    ("stats a.npz --table t.xlsx", "must end in .csv or .parquet"),
    ("export a.npz", "the following arguments are required: FILE"),
    ("export a.npz b.ply c.stl", "c.stl must end in .geojson, .json, .parquet, .ply, .vtp or .vtk"),
    ("export a.npz b.ply --space world", "invalid choice"),
    # options that do not go together
    (f"{BOX} --through x.npy", "not allowed with"),
    (f"{BOX} --pick 3", "--pick goes with --through, --around, --fit, --polygon or --at"),
    (f"{BOX} --at 0 0", "--at goes with --slice"),
    (f"{THROUGH} --slice 0 1", "--slice goes with --box or --vnnlib"),
    (f"{BOX} --slice 0", "expected 2 arguments"),
    (f"{BOX} --slice 0 a", "'a' is not the index of a feature, such as 0 or 0,3,5"),
    (f"{BOX} --slice 0 heigth --features width height", "nor a name of --features. Did you mean"),
    (f"{BOX} --slice 0 1 --at 0 a.npy", "--at takes numbers or one file, and 'a.npy' is no number"),
    (f"{PARTITION} --box 0 1 2 --slice 0 1", "all LO and then all HI, not 3"),
    (f"{PARTITION} --box 0 2 1 1 --slice 0 1", "2 must be below 1"),
    (f"{BOX} --case 1", "--case goes with --vnnlib"),
    (f"{BOX} --refine edges", "'edges' is not a finite number"),
    (f"{BOX} --refine boundary 0.5", "--refine takes the word boundary alone, or levels"),
    (f"{BOX} --smooth 1e-3 --refine 0.5", "or levels without --smooth"),
    (f"{BOX} --refine boundary --undecided 1e-2", "--undecided goes with --smooth"),
    (f"{BOX} --smooth 1e-3 --undecided 1e-2", "--undecided goes with --refine"),
    (f"{BOX} --certificate a.txt", "--certificate a.txt must end in .cert"),
    (f"{BOX} --smooth 1e-3 --certificate a.cert", "--smooth is not for --certificate"),
    (f"{BOX} --refine boundary --certificate a.cert", "--refine is not for --certificate"),
    (f"{BOX} --smooth 0%", "'0' is not a number above 0"),
    (f"{BOX} --smooth 1e-3 --refine boundary --undecided 1", "not a number between 0 and 1"),
    (f"{BOX} --vnnlib a.vnnlib", "not allowed with"),
    (f"{BOX} --side 4", "--side goes with --around"),
    (f"{BOX} --seed 0", "--seed goes with --around"),
    (f"{AROUND} --tight", "--tight goes with --through"),
    (f"{BOX} --input-shape 1,8,8", "--box is for inputs of two numbers"),
    (f"{BOX} --no-plot --color area", "--no-plot draws none"),
    (f"{BOX} --no-plot --no-boundary", "--no-boundary is for a picture"),
    (f"{BOX} --output 0", "--output goes with --color slope or --color output"),
    ("plot x.npz --color class --output 3", "--output goes with --color slope, --color output or"),
    ("plot x.npz --key x", "--key goes with --points"),
    ("plot x.npz --kind histograms --no-edges", "--no-edges is not for --kind histograms"),
    ("plot x.npz --kind surface --axes off", "--axes is not for --kind surface"),
    ("plot x.npz --weights w.pt", "--weights goes with --model"),
    ("plot x.npz --model m:f", "--model is for --kind layers"),
    ("stats a.npz b.npz --table t.csv", "one saved partition"),
    ("stats a.npz --full", "--full goes with --model"),
    ("stats a.npz --model m:f", "--model goes with --full"),
    ("stats a.npz --force", "--force goes with --table"),
    ("export a.npz b.geojson --output 0", "--output is for a file that ends in .ply, .vtp or .vtk"),
    ("check m:f --pick 0", "--pick goes with --through, --around, --fit, --polygon or --at"),
    ("ops --search relu --markdown", "not allowed with"),
    ("view", "the following arguments are required: SUBJECT"),
    (f"{VIEW} --port 70000", "'70000' is not a port, 0 to 65535"),
    (f"{VIEW} --box 1", "two numbers (LO HI) or four"),
    (f"{VIEW} --labels y.npy", "--labels goes with --points"),
    (f"{VIEW} --points x.npy --labels-key y", "--labels-key goes with --labels"),
    (
        f"{VIEW} --pick 3",
        "--pick goes with --through, --around, --fit, --polygon, --points or --at",
    ),
    (f"{VIEW} --html a.png", "--html a.png must end in .html"),
    (f"{VIEW} --html a.html --port 8000", "--port is for the browser, and --html opens none"),
    (f"{VIEW} --html a.html --no-browser", "--no-browser is for the browser"),
    (f"{VIEW} --force", "--force goes with --html"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words for words, _ in WRONG])
def test_wrong_usage(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(words))
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith(f"usage: splinecam {words.split()[0] if words != 'nonsense' else ''}")


def test_the_nearest_command_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["partiton", "m:f"])
    assert capsys.readouterr().err.endswith("Did you mean partition?\n")


@pytest.mark.parametrize(
    ("words", "box"),
    [
        ("-1 1", ([-1], [1])),
        ("-1e3 1e3", ([-1000], [1000])),
        ("-1e-3 -.5E-3", ([-0.001], [-0.0005])),
        ("-1,1", ([-1], [1])),
        ("-1e0,-2.,3,4", ([-1, -2], [3, 4])),
        ("0 0 2 1", ([0, 0], [2, 1])),
    ],
)
def test_boxes(words: str, box: object) -> None:
    assert parse([*PARTITION.split(), "--box", *words.split()]).box == box
    assert parse([*PARTITION.split(), f"--box={','.join(words.split())}"]).box == box


def test_words() -> None:
    assert parse(["plot", "x.npz", "--level", "-2.5e-1"]).level == -0.25
    assert (amount("1e6"), amount("2k"), amount("7")) == (10**6, 2000, 7)
    assert (bytes_of_memory("2GB"), bytes_of_memory("5e8")) == (2 * 10**9, 5 * 10**8)
    assert device("cuda:1") == "cuda:1"


def test_messages_name_options() -> None:
    assert option("output", "0") == "output=0"
    with on_command_line():
        assert option("output", "0") == "--output 0"
        assert option("output", "'b'", flag="--result") == "--result b"
        assert (option("Domain.around"), option("through")) == ("--around", "--through")
        assert option("splinecam.op_table()") == "splinecam ops"
        assert option("part.attach()") == "part.attach()"  # which the command line does not have
        with pytest.raises(DomainError, match=r"one input has: --input-shape 5\.$"):
            Domain.slice((0, 1), (0, 1))
        with pytest.raises(DomainError, match=r"--box .* --input-shape is 1, 5\. Use --slice, --a"):
            Domain.box(-1, 1, input_shape=(1, 5))
    with pytest.raises(DomainError, match=r"one input has: input_shape=5\.$"):
        Domain.slice((0, 1), (0, 1))


# -- the package ----------------------------------------------------------------------------------


def python(code: str) -> str:
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_help_does_not_wait_for_torch() -> None:
    code = """if True:
        import sys
        import splinecam
        from splinecam.cli import main
        for words in ([], ["--version"], ["partition", "--help"], ["stats", "a", "--full"]):
            try:
                main(words)
            except SystemExit:
                pass
        print(*sorted({"torch", "numpy", "matplotlib"} & set(sys.modules)), "end")
    """
    assert python(code).splitlines()[-1].split() == ["end"]


@pytest.mark.slow
def test_partition_is_the_function_whatever_is_imported_first() -> None:
    code = """if True:
        import splinecam.partitions.partition
        from splinecam.partitions.partition import Partition
        from splinecam import partition
        assert splinecam.Partition is Partition
        print(type(partition).__name__, type(splinecam.partition).__name__)
    """
    assert python(code).split() == ["function", "function"]


@pytest.mark.slow
def test_a_chain_of_layers_needs_neither_dynamo_nor_sympy() -> None:
    code = """if True:
        import sys
        import splinecam as sc
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 1)))
        sc.partition(model, sc.Domain.box(-1, 1))
        print(*sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)), "end")
    """
    assert python(code).split() == ["end"]


def test_every_public_name() -> None:
    space: dict[str, object] = {}
    exec("from splinecam import *", space)
    assert {*space} - {"__builtins__"} == {*sc.__all__}
    assert {*sc.__all__} <= {*dir(sc)}
    assert all(getattr(sc, name) is space[name] for name in sc.__all__)
    known = {name for names in sc._MODULES.values() for name in names}
    assert {*sc.__all__} - known == {"nn", "results"}
    # These stay where they were, and are listed elsewhere.
    assert known - {*sc.__all__} == {"Conjunction", "OutputCondition", "movie", "op_table"}
    assert sc.plot.__name__ == "splinecam.plot"
    assert not hasattr(sc, "nonsense")
    assert not hasattr(sc, "__nonsense__")


def test_the_nearest_public_name_is_suggested() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'partiton'\. Did you mean partition\?"):
        sc.partiton  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        sc.nonsense  # type: ignore[attr-defined]  # noqa: B018
    code = "import splinecam\nsplinecam.domain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("Did you mean") == 1  # Python itself does not ask again


def test_a_partition_is_what_load_gives_to_type_checkers() -> None:
    assert get_type_hints(sc.load)["return"] == sc.Partition | Any
