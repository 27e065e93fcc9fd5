"""``splinecam check-property``: verdicts, exit codes, pictures and witnesses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.legend import Legend
from torch import nn

import splinecam as sc
from splinecam.cli import main
from splinecam_check import check

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    layers = [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)]
    return nn.Sequential(*layers)

def relu():
    return nn.ReLU()
"""


def text(inputs: int, boxes: list[str], unsafe: str) -> str:
    names = [f"X_{k}" for k in range(inputs)] + ["Y_0", "Y_1"]
    lines = [f"(declare-const {name} Real)" for name in names]
    bounds = " ".join(f"(and {box})" for box in boxes)
    return "\n".join([*lines, f"(assert (or {bounds}))", f"(assert {unsafe})"])


def box(lo: float, hi: float, inputs: int) -> str:
    return " ".join(f"(>= X_{k} {lo}) (<= X_{k} {hi})" for k in range(inputs))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("four.vnnlib").write_text(text(4, [box(-1, 1, 4)], "(>= Y_0 Y_1)"))
    Path("never.vnnlib").write_text(text(4, [box(-1, 1, 4)], "(>= Y_0 1000)"))
    Path("tie.vnnlib").write_text(text(2, [box(-1, 1, 2)], "(>= Y_0 1)"))
    boxes = [box(-1, -0.5, 2), box(0, 1, 2)]
    Path("two.vnnlib").write_text(text(2, boxes, "(>= Y_0 0.5)"))
    return tmp_path


def test_verdicts_and_exit_codes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--slice", "0", "1", "--device", "cpu"]
    assert main(["check-property", "net.py:build", "never.vnnlib", *words]) == 0
    assert capsys.readouterr().out == "holds on this slice\n"
    assert main(["check-property", "net.py:build", "four.vnnlib", *words]) == 1
    head, x, y = capsys.readouterr().out.splitlines()
    assert head.startswith("violated on ")
    assert x.startswith("input    [")
    assert y.endswith("unsafe by the model itself")
    assert main(["check-property", "net.py:relu", "tie.vnnlib"]) == 3
    assert capsys.readouterr().out.startswith("unresolved: rounding cannot tell")


def test_two_networks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared = "(declare-network {0} (declare-input X{0} real [2]) (declare-output Y{0} real [2]))"
    bounds = "(assert (== Xf[{0}] Xg[{0}]))\n(assert (and (>= Xf[{0}] -1) (<= Xf[{0}] 1)))"
    lines = ["(vnnlib-version <2.0>)", *map(declared.format, "fg"), *map(bounds.format, "01")]
    for name, limit in (("near", 0.5), ("far", -0.5)):
        unsafe = f"(assert (> Yf[0] (+ Yg[0] {limit})))"
        Path(f"{name}.vnnlib").write_text("\n".join([*lines, unsafe]))
    both = ["--beside", "net.py:relu", "--device", "cpu"]
    assert main(["check-property", "net.py:relu", "near.vnnlib", *both]) == 0
    assert main(["check-property", "net.py:relu", "far.vnnlib", *both]) == 1
    capsys.readouterr()
    assert main(["check-property", "net.py:relu", "far.vnnlib"]) == 2
    assert "is about f, g: give the second one as --beside." in capsys.readouterr().err
    assert main(["check-property", "net.py:relu", "two.vnnlib", *both]) == 2
    assert "is about one network: --beside makes two." in capsys.readouterr().err


@pytest.mark.slow
def test_the_verdict_is_that_of_the_library(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--at", "0.1,0.2,0.3,0.4"]
    command = ["check-property", "net.py:build", "four.vnnlib", "--slice", "2", "3", *at]
    files = ["--out", "new/unsafe.png", "--witness", "unsafe.npy"]
    code = main([*command, *files])
    out, err = capsys.readouterr()
    scope: dict[str, object] = {}
    exec(MODEL, scope)
    prop = sc.read_vnnlib("four.vnnlib")
    domain = sc.Domain.slice(prop.box, (2, 3), [0.1, 0.2, 0.3, 0.4])
    model = scope["build"]()  # type: ignore[operator]
    assert isinstance(model, nn.Module)
    found = sc.partition(model, domain, progress=False).check(prop)
    assert code == (found.status == "violated")
    assert f"{100 * found.share:.4g} %" in out
    assert Path("new/unsafe.png").stat().st_size > 1000
    x = torch.from_numpy(np.load("unsafe.npy"))
    assert bool(prop.violated(x, model(x)).all())
    assert "unsafe.npy" in err
    assert main([*command, *files, "--quiet"]) == 2  # the files exist
    assert main([*command, *files, "--quiet", "--force"]) == code


def test_several_boxes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check-property", "net.py:relu", "two.vnnlib"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert out.startswith("holds on this slice\nviolated on 50 % of this slice, area 0.5\n")
    assert main([*command, "--case", "0"]) == 0
    assert main([*command, "--case", "7"]) == 2
    assert "2 boxes" in capsys.readouterr().err


WIDE = """

def wide():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 5000), nn.ReLU(), nn.Linear(5000, 2))
"""


def test_the_first_counterexample_ends_the_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("net.py").write_text(MODEL + WIDE)
    Path("any.vnnlib").write_text(text(2, [box(-0.1, 0, 2), box(0, 0.1, 2)], "(>= Y_0 -100)"))
    command = ["check-property", "net.py:wide", "any.vnnlib", "--device", "cpu"]
    assert main([*command, "--json"]) == 1
    out, err = capsys.readouterr()
    (only,) = json.loads(out)["boxes"]
    assert (only["status"], only["area"], only["regions"]) == ("violated", None, None)
    assert only["witness"]["confirmed"]
    assert "none were needed" in err
    assert main([*command, "--case", "1", "--area", "--max-regions", "5"]) == 2
    assert "--max-regions 5" in capsys.readouterr().err


def test_the_verdict_in_the_format_of_the_competition(folder: Path) -> None:
    command = ["check-property", "net.py:relu", "two.vnnlib", "--force", "--quiet"]

    def written(*words: str) -> list[str]:
        main([*command, "--verdict", "result.txt", *words])
        return Path("result.txt").read_text().splitlines()

    head, *values = written()
    assert head == "sat"
    assert [line.split()[0].strip("(") for line in values] == ["X_0", "X_1", "Y_0", "Y_1"]
    x, y = (
        torch.tensor([float(line.split()[1].strip(")")) for line in part])
        for part in (values[:2], values[2:])
    )
    assert bool(sc.read_vnnlib("two.vnnlib").violated(x[None], nn.ReLU()(x[None])).all())
    assert y.tolist() == nn.ReLU()(x).tolist()
    assert (values[0][:2], values[-1][-2:]) == ("((", "))")
    assert written("--case", "0") == ["unknown"]  # as the other box is not looked at
    command[1:3] = ["net.py:build", "never.vnnlib"]
    assert written("--slice", "0", "1") == ["unknown"]  # as other slices are not
    Path("holds.vnnlib").write_text(text(2, [box(-1, 1, 2)], "(>= Y_0 1000)"))
    command[1:3] = ["net.py:relu", "holds.vnnlib"]
    assert written() == ["unsat"]


def test_the_inputs_that_vary_are_the_slice(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    varied = "(>= X_0 0.5) (<= X_0 0.5) (>= X_1 -1) (<= X_1 1) (>= X_2 0) (<= X_2 0) "
    varied += "(>= X_3 -1) (<= X_3 1)"
    Path("plane.vnnlib").write_text(text(4, [varied], "(>= Y_0 1000)"))
    assert main(["check-property", "net.py:build", "plane.vnnlib"]) == 0
    assert capsys.readouterr().out == "holds on this slice\n"


def test_onnx_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    weight = np.array([[1.0, -1.0], [0.5, 1.0]], np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"]),
        onnx.helper.make_node("Relu", ["h"], ["y"]),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value("x", onnx.TensorProto.FLOAT, [1, 2])],
        [value("y", onnx.TensorProto.FLOAT, [1, 2])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, "net.onnx")
    command = ["check-property", "net.onnx", "two.vnnlib", "--witness", "x.npy", "--quiet"]
    assert main(command) == 1
    assert capsys.readouterr().out == ""
    x = np.load("x.npy")
    session = onnxruntime.InferenceSession("net.onnx")
    y = session.run(None, {"x": x.reshape(1, 2)})[0]
    prop = sc.read_vnnlib("two.vnnlib")
    assert bool(prop.violated(torch.from_numpy(x), torch.from_numpy(y)).all())


def test_what_is_wrong_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-property", "net.py:build", "four.vnnlib"]) == 2
    assert "--slice 0 1" in capsys.readouterr().err
    assert main(["check-property", "net.py:build", "none.vnnlib", "--slice", "0", "1"]) == 2
    assert main(["check-property", "net.py:relu", "four.vnnlib", "--slice", "0", "1"]) == 2
    for words in (["--out", "a.gif"], ["--witness", "a.txt"], ["--force"]):
        with pytest.raises(SystemExit) as stop:
            main(["check-property", "net.py:relu", "tie.vnnlib", *words])
        assert stop.value.code == 2


def test_a_certificate_of_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check-property", "net.py:relu", "two.vnnlib", "--certificate", "two.cert"]
    assert main([*words, "--quiet"]) == 2
    assert "one with --case" in capsys.readouterr().err
    for case, verdict in enumerate(("holds", "fails")):
        assert main([*words, "--case", str(case), "--force"]) == case
        with Path("two.cert").open() as file:
            assert check(file)[1].startswith(f"{verdict} [[[")
    assert main([*words, "--case", "0"]) == 2
    assert "--force" in capsys.readouterr().err


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check-property", "net.py:relu", "two.vnnlib", "--json", "--quiet"]
    assert main(command) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "violated"
    assert [box["status"] for box in found["boxes"]] == ["holds", "violated"]
    assert found["boxes"][0]["witness"] is None
    unsafe = found["boxes"][1]
    assert unsafe["area"] == pytest.approx(0.5)
    assert unsafe["share"] == pytest.approx(0.5)
    assert unsafe["witness"]["confirmed"]
    assert unsafe["witness"]["input"][0] >= 0.5
    assert main(["check-property", "net.py:relu", "tie.vnnlib", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "unresolved"
    assert main(["check-property", "net.py:relu", "none.vnnlib", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_picture_says_what_is_unsafe(folder: Path) -> None:
    part = sc.partition(nn.ReLU(), sc.Domain.box(0, 1), progress=False)
    ax = part.check("two.vnnlib").plot()
    legends = [each for each in ax.artists if isinstance(each, Legend)]
    words = [text.get_text() for legend in legends for text in legend.get_texts()]
    assert words[-2:] == ["unsafe", "unsafe input"]
    star = next(line for line in ax.lines if line.get_marker() == "*")
    light, dark = (np.mean(to_rgb(c)) for c in (star.get_color(), star.get_markeredgecolor()))
    assert light > 0.9
    assert dark < 0.3
    assert len(part.check("two.vnnlib").plot(legend=False).artists) < len(ax.artists)
    words = ["--slice", "0", "2", "--out", "a.svg", "--features", "p", "q", "r", "s"]
    assert main(["check-property", "net.py:build", "four.vnnlib", *words, "--classes", "no", "yes"])
    drawn = Path("a.svg").read_text()
    assert all(f"<!-- {word} -->" in drawn for word in ("p", "r", "no", "unsafe"))
    assert "<!-- q -->" not in drawn
    assert (
        main(["check-property", "net.py:build", "four.vnnlib", *words[:3], "--features", "p"]) == 2
    )


def test_products_and_boxes_without_a_slice(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    ends = [value("x", kind, [1, 2])], [value("y", kind, [1, 2])]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "net", *ends)
    onnx.save(onnx.helper.make_model(graph), "flat.onnx")
    head = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]) (declare-output Y real [1,2]))
(assert (and (>= X[0,0] -1) (<= X[0,0] 1) (>= X[0,1] -1) (<= X[0,1] 1)))
"""
    words = ["--device", "cpu", "--area", "--json", "--verdict", "result.txt", "--force"]
    cases = (
        ("(>= {} 0.25)", "violated", 1),
        ("(> {} 9)", "holds", 0),
        ("(== {} 0.5)", "unresolved", 3),
    )
    for limit, status, code in cases:
        unsafe = limit.format("(* X[0,0] X[0,1])")
        Path("product.vnnlib").write_text(f"{head}(assert {unsafe})")
        assert main(["check-property", "flat.onnx", "product.vnnlib", *words]) == code
        found = json.loads(capsys.readouterr().out)
        assert found["status"] == status
        word = {1: "sat", 0: "unsat", 3: "unknown"}[code]
        assert Path("result.txt").read_text().split()[0] == word
        if status == "violated":
            area = 2 * (0.75 - 0.25 * np.log(4))
            assert found["boxes"][0]["area"] == pytest.approx(area, rel=1e-6)
