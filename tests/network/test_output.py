"""``output=`` selects one of several outputs of a model."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import CaptureError
from splinecam.network.capture.models import selected

BOX = sc.Domain.box(-1, 1)

Pair = namedtuple("Pair", ["logits", "features"])


@dataclass
class Result:
    logits: Tensor
    features: Tensor
    loss: Tensor | None = None


class ModelOutput(OrderedDict):
    """A dict that is a dataclass too, as the libraries of language models have it."""


@dataclass
class Classified(ModelOutput):
    logits: Tensor | None = None
    features: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            self[field.name] = getattr(self, field.name)


class Heads(nn.Module):
    """Two heads, put together by a function."""

    def __init__(self, pack: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.head = nn.Linear(2, 8), nn.Linear(8, 3)
        self.pack = pack

    def forward(self, x: Tensor) -> Any:
        features = torch.relu(self.trunk(x))
        return self.pack(self.head(features), features)


def as_dict(logits: Tensor, features: Tensor) -> Any:
    return {"logits": logits, "features": features}


def as_tuple(logits: Tensor, features: Tensor) -> Any:
    return logits, features


def difference(result: dict[str, Tensor]) -> Tensor:
    return result["logits"][:, :2] - result["features"][:, :2]


def partition(model: nn.Module, **options: Any) -> sc.Partition:
    return sc.partition(model, BOX, device="cpu", progress=False, **options)


PACKS: dict[str, tuple[Callable[[Tensor, Tensor], Any], Any, Any]] = {
    "dict": (as_dict, "logits", "features"),
    "tuple": (as_tuple, 0, 1),
    "from the end": (as_tuple, -2, -1),
    "list": (lambda a, b: [a, b], 0, 1),
    "named tuple": (Pair, "logits", "features"),
    "named tuple by index": (Pair, 0, 1),
    "dataclass": (Result, "logits", "features"),
    "model output": (Classified, "logits", "features"),
    "model output by index": (Classified, 0, 1),
    "namespace": (lambda a, b: SimpleNamespace(a=a, b=b), "a", "b"),
    "nested": (lambda a, b: {"main": {"x": [a]}, "aux": (b, None)}, "main", "aux"),
    "function": (as_dict, lambda out: out["logits"], lambda out: out["features"]),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", PACKS)
def test_each_output_is_partitioned(name: str) -> None:
    pack, first, second = PACKS[name]
    model = Heads(pack)
    for output, width in ((first, 3), (second, 8)):
        part = partition(model, output=output)
        assert part.values.shape[1] == width
        assert part._chosen_output == output
        assert part.validate().ok


def test_a_function_of_the_result_is_part_of_the_network() -> None:
    part = partition(Heads(as_dict), output=difference)
    assert part.values.shape[1] == 2
    assert part.validate().ok
    x = part._inputs(part.centroids)
    found = part.values.new_tensor(difference(part.model(x)).tolist())
    expected = (part.weight @ part.centroids[:, :, None])[:, :, 0] + part.bias
    assert torch.allclose(found, expected, atol=1e-5)
    folded = partition(Heads(as_dict), output=lambda out: out["logits"].abs())
    assert len(folded) > len(part)
    assert folded.validate().ok
    with pytest.raises(sc.UnsupportedOpError, match=r"aten\.mul"):
        partition(Heads(as_dict), output=lambda out: out["logits"] * out["logits"])


@pytest.mark.parametrize(
    "pack",
    [
        lambda a, b: (a,),
        lambda a, b: [a, None],
        lambda a, b: {"logits": a, "loss": None, "step": 3, "name": "net"},
        lambda a, b: {"outer": {"inner": (a,)}},
        lambda a, b: (a, a),
        lambda a, b: Result(a, None),
    ],
)
def test_a_single_tensor_is_taken_without_asking(pack: Callable[..., Any]) -> None:
    part = partition(Heads(pack))
    assert part.values.shape[1] == 3
    assert part._chosen_output is None
    assert part.validate().ok


MESSAGES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "dict": (
        as_dict,
        None,
        (
            "the model returns a dict with the keys 'logits' (B, 3) and 'features' (B, 8): "
            "choose one with output='logits'"
        ),
    ),
    "tuple": (
        as_tuple,
        None,
        "the model returns a tuple of 2 values, 0 (B, 3) and 1 (B, 8): choose one with output=0",
    ),
    "dataclass": (
        Result,
        None,
        (
            "the model returns a Result with the fields 'logits' (B, 3) and 'features' (B, 8): "
            "choose one with output='logits'"
        ),
    ),
    "named tuple": (Pair, None, "a Pair with the fields 'logits' (B, 3) and 'features' (B, 8)"),
    "three": (
        lambda a, b: {"a": a, "b": b, "c": [b + 1, b + 2]},
        None,
        "a dict with the keys 'a' (B, 3), 'b' (B, 8) and 'c' (a list): choose one with output='a'",
    ),
    "wrong key": (
        as_dict,
        "logit",
        (
            "there is no output 'logit': the model returns a dict with the keys 'logits' (B, 3) "
            "and 'features' (B, 8). Choose one with output='logits'"
        ),
    ),
    "wrong index": (
        as_tuple,
        2,
        (
            "there is no output 2: the model returns a tuple of 2 values, 0 (B, 3) and 1 (B, 8). "
            "Choose one with output=0"
        ),
    ),
    "name of a tuple": (as_tuple, "logits", "there is no output 'logits'"),
    "a tensor": (
        lambda a, b: a,
        "logits",
        "there is no output 'logits', as the model returns a tensor (B, 3): leave output= out",
    ),
    "several again": (
        lambda a, b: {"a": (a, b)},
        "a",
        "output='a' gives a tuple of 2 values, 0 (B, 3) and 1 (B, 8): choose one with a function",
    ),
    "no tensor": (lambda a, b: {"a": a, "n": 3}, "n", "output='n' gives no tensor, but an int"),
    "function that fails": (
        as_tuple,
        difference,
        (
            "output=difference cannot be applied to what the model returns, a tuple of 2 values, "
            "0 (B, 3) and 1 (B, 8): TypeError"
        ),
    ),
    "nothing": (lambda a, b: None, None, "the model must return a tensor, not None"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_say_what_there_is_to_choose_from(name: str) -> None:
    pack, output, message = MESSAGES[name]
    with pytest.raises(CaptureError) as caught:
        partition(Heads(pack), output=output)
    assert message in str(caught.value)


@pytest.mark.parametrize("output", [1.5, True, ["logits"], ("a", 0)])
def test_misuse_is_a_type_error(output: Any) -> None:
    for call in (
        lambda: partition(Heads(as_dict), output=output),
        lambda: sc.sweep(Heads(as_dict), [BOX], output=output),
    ):
        with pytest.raises(TypeError, match="output must be an index, a name, a function"):
            call()


def test_sweep_of_one_output() -> None:
    domains = [sc.Domain.box(-1, 1), sc.Domain.box(0, 2)]
    parts = sc.sweep(Heads(as_dict), domains, output="features", device="cpu", progress=False)
    assert [part.values.shape[1] for part in parts] == [8, 8]
    assert all(part.validate().ok and part._chosen_output == "features" for part in parts)


@pytest.mark.parametrize("output", ["logits", 1])
def test_files_remember_which_output(output: Any, tmp_path: Path) -> None:
    model = Heads(Classified)
    part = partition(model, output=output)
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz", model=model)
    assert again._chosen_output == output
    assert again.validate().ok
    alone = sc.load(tmp_path / "part.npz")
    assert alone._chosen_output == output
    alone.attach(model)
    assert alone.validate().ok
    with pytest.raises(sc.SplineCamError, match="not the one that was partitioned"):
        alone.attach(model, output="features" if output == "logits" else "logits")


def test_files_do_not_hold_functions(tmp_path: Path) -> None:
    model = Heads(as_dict)
    part = partition(model, output=difference)
    part.save(tmp_path / "part.npz")
    alone = sc.load(tmp_path / "part.npz")
    with pytest.raises(sc.SplineCamError, match="the function difference selects"):
        alone.attach(model)
    with pytest.raises(sc.SplineCamError, match="the function difference selects"):
        sc.load(tmp_path / "part.npz", model=model)
    alone.save(tmp_path / "again.npz")
    for path in ("part.npz", "again.npz"):
        again = sc.load(tmp_path / path, model=model, output=difference)
        assert again._chosen_output is difference
        assert again.validate().ok


def test_files_of_earlier_versions_are_read() -> None:
    file, older = BytesIO(), BytesIO()
    model = nn.Linear(2, 2)
    partition(model).save(file)
    file.seek(0)
    arrays = dict(np.load(file))
    about = json.loads(arrays["about"].tobytes())
    assert about.pop("output") is None
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(older, **arrays)
    older.seek(0)
    part = sc.load(older, model=model)
    assert part._chosen_output is None
    assert part.validate().ok


def test_pickles_remember_which_output() -> None:
    for output in ("logits", difference):
        part = partition(Heads(as_dict), output=output)
        again = pickle.loads(pickle.dumps(part))
        assert again._chosen_output == output
        assert again.validate().ok
    by_value = partition(Heads(as_dict), output=lambda out: out["logits"])
    assert pickle.loads(cloudpickle.dumps(by_value)).validate().ok
    by_value._model = None
    assert len(pickle.loads(pickle.dumps(by_value))) == len(by_value)


def test_the_selected_tensor() -> None:
    a, b = torch.zeros(2, 3), torch.ones(2, 4)
    assert selected({0: a, 1: b}, 1) is b
    assert selected({"a": a, "b": b}, -1) is b
    assert selected((a, (b,)), 1) is b
    assert selected(a, None) is a
