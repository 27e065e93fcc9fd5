"""Weights in files of torch, NumPy and safetensors, also by the option --weights."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import splinecam as sc
from splinecam.cli import main
from splinecam.errors import FileError, SplineCamError
from splinecam.files.loading import load_weights

CODE = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))
"""


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))


class Tied(nn.Module):
    """A network that applies one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.again(torch.relu(self.first(x)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of safetensors with the weights of a network."""
    save_file(net(1).state_dict(), tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_a_partition_with_weights_from_safetensors(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    Path("little.py").write_text(CODE)
    words = ["partition", "little.py:build", "--weights", path.name, "--box", "-1", "1"]
    assert main([*words, "--no-plot", "--out", "out"]) == 0
    found = sc.load("out/partition.npz")
    known = sc.partition(net(1), sc.Domain.box(-1, 1), progress=False)
    assert torch.equal(found.weight, known.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_of_weights(path: Path, dtype: torch.dtype) -> None:
    state = {name: weight.to(dtype) for name, weight in net(1).state_dict().items()}
    save_file(state, path)
    model = net()
    load_weights(model, path)
    assert all(weight.dtype == torch.float32 for weight in model.state_dict().values())
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, state[name].float())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrappers(path: Path, prefix: str) -> None:
    save_file({prefix + name: weight for name, weight in net(1).state_dict().items()}, path)
    model = net()
    load_weights(model, path)
    assert torch.equal(model[0].weight, net(1)[0].weight)


@pytest.mark.parametrize("kept", ["first", "again"])
def test_weights_under_two_names_may_be_in_the_file_once(path: Path, kept: str) -> None:
    given = Tied()
    save_file({f"{kept}.{name}": w for name, w in given.first.state_dict().items()}, path)
    model = Tied()
    load_weights(model, path)
    assert torch.equal(model.again.weight, given.first.weight)
    save_file({f"{kept}.bias": given.first.bias.detach()}, path)
    with pytest.raises(SplineCamError, match=r"Missing key\(s\).*first.weight"):
        load_weights(model, path)


def without_bias(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight for name, weight in state.items() if name != "2.bias"}


def with_another(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"4.weight": torch.zeros(3)}


def transposed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"0.weight": state["0.weight"].T.contiguous()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_bias, ["Missing key(s)", '"2.bias"']),
        (with_another, ["Unexpected key(s)", '"4.weight"']),
        (transposed, ["size mismatch for 0.weight", "[2, 5]", "[5, 2]"]),
    ],
)
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_weights_that_do_not_fit(
    tmp_path: Path,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    words: list[str],
    kind: str,
) -> None:
    state = change(net(1).state_dict())
    path = tmp_path / f"net.{kind}"
    if kind == "pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    with pytest.raises(SplineCamError, match="do not fit Sequential") as caught:
        load_weights(net(), path)
    assert all(word in str(caught.value) for word in words)


def test_damaged_files_are_an_error_that_names_them(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match=r"net.safetensors cannot be read: it is damaged"):
            load_weights(net(), path)
    path.write_bytes(b"\xff" * 7 + b"\x7f" + whole[8:])  # a header of 2**63 bytes
    with pytest.raises(FileError, match="damaged"):
        load_weights(net(), path)


def test_flipped_bytes_give_our_own_errors_or_weights(path: Path) -> None:
    whole = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(whole)
        changed[generator.randrange(len(whole) // 2)] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        try:
            load_weights(net(), path)
        except SplineCamError:
            refused += 1
    assert refused > 100


def test_absent_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no file"):
        load_weights(net(), tmp_path / "none.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        load_weights(net(), tmp_path / "folder.safetensors")


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(SplineCamError, match=r"pip install 'splinecam\[safetensors\]'"):
        load_weights(net(), path)


def test_samples_in_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("little.py").write_text(CODE)
    anchors = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    save_file({"x": anchors, "y": torch.arange(3)}, "samples.safetensors")
    words = ["partition", "little.py:build", "--through", "samples.safetensors", "--key", "x"]
    assert main([*words, "--no-plot", "--out", "out"]) == 0
    found = sc.load("out/partition.npz").domain
    assert torch.equal(found.corners, sc.Domain.through(*anchors.double()).corners)
