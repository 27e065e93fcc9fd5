"""Trainings with checkpoints: an interrupted one ends as one in a piece does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from splinecam_paper.experiment import Setup
from splinecam_paper.training import Training, accuracy, fit, mlp


def points() -> tuple[Tensor, Tensor]:
    x = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 1).long()


def trained(setup: Setup, **options: Any) -> tuple[nn.Module, dict[int, Any]]:
    model = mlp([2, 8, 2])
    training = options.pop("training", Training(6, batch=16, rate=0.05))
    return model, fit(model, points(), training, setup=setup, name="a", **options)


def setup_of(folder: Path) -> Setup:
    return Setup(folder, device="cpu", progress=False)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(x.equal(y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_training_learns_and_ends_in_eval_mode(tmp_path: Path) -> None:
    model, _ = trained(setup_of(tmp_path), training=Training(60, batch=8, rate=0.05))
    assert not model.training
    assert accuracy(model, *points(), batch=7) > 0.9


def test_interrupted_training_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(epoch: int, model: nn.Module) -> float:
        if epoch == 4 and interrupted:
            raise KeyboardInterrupt
        return float(next(model.parameters()).sum())

    interrupted = False
    options = {"record": record, "record_after": (0, 2, 4, 6)}
    whole, records = trained(setup_of(tmp_path / "whole"), **options)
    assert list(records) == [0, 2, 4, 6]
    monkeypatch.setattr("splinecam_paper.training._PAUSE", 0.0)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        trained(setup_of(tmp_path / "parts"), **options)
    interrupted = False
    parts, again = trained(setup_of(tmp_path / "parts"), **options)
    assert equal(whole, parts)
    assert again == records


def test_finished_training_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    first, _ = trained(setup_of(tmp_path))

    def fail(_: Tensor, __: Tensor) -> Tensor:
        raise AssertionError("trained again")

    assert equal(first, trained(setup_of(tmp_path), loss=fail)[0])


@pytest.mark.parametrize("change", ["training", "seed", "damage"])
def test_checkpoint_of_another_training_is_not_used(tmp_path: Path, change: str) -> None:
    setup = setup_of(tmp_path)
    trained(setup)
    if change == "damage":
        (tmp_path / "checkpoints" / "a.pt").write_bytes(b"no checkpoint")
    if change == "seed":
        setup = replace(setup, seed=1)
    training = Training(6, batch=8 if change == "training" else 16, rate=0.05)
    fresh, _ = trained(replace(setup, out=tmp_path / "fresh"), training=training)
    assert equal(fresh, trained(setup, training=training)[0])


def test_other_losses_and_augmentation(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 50)[:, None]
    model = mlp([1, 8, 1])

    def shifted(batch: Tensor, generator: torch.Generator) -> Tensor:
        return batch + 1e-3 * torch.randn(batch.shape, generator=generator)

    training = Training(80, batch=10, rate=0.02)
    options: dict[str, Any] = {"setup": setup_of(tmp_path), "name": "abs", "augment": shifted}
    fit(model, (x, x.abs()), training, loss=mse_loss, **options)
    assert mse_loss(model(x), x.abs()) < 0.01
