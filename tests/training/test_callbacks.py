"""Callbacks for Lightning and Hugging Face, with the real packages and no network."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import splinecam as sc

BOX = sc.Domain.box(-1, 1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2)
    )


def data() -> tuple[Tensor, Tensor]:
    x = torch.rand(40, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return x, (x[:, 0] > 0).long()


def weights(model: nn.Module) -> list[Tensor]:
    return [value.clone() for value in model.state_dict().values()]


# -- Lightning -----------------------------------------------------------------------------------


def fit_lightning(
    package: str, folder: Path, *, watched: bool, accumulate: int = 1, **options: Any
) -> tuple[Any, sc.results.Watch | None]:
    """Train for two epochs of five batches; the module and its watch."""
    pl = pytest.importorskip(package)

    class Classifier(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, index: int) -> Any:
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            return {"loss": loss} if index % 2 else loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    module = Classifier()
    watch = sc.watch(module, BOX, **{"every": 4, **options}) if watched else None
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        callbacks=[] if watch is None else [watch.lightning()],
        default_root_dir=folder,
    )
    torch.manual_seed(5)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    with warnings.catch_warnings():
        # Advice on the number of workers, and what Lightning itself uses of torch.
        warnings.filterwarnings("ignore", module="lightning|pytorch_lightning")
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        trainer.fit(module, loader)
    return module, watch


@pytest.mark.slow
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_callback_counts_steps(package: str, tmp_path: Path):
    module, watch = fit_lightning(package, tmp_path, watched=True)
    assert watch is not None
    run = watch.run
    assert run.steps == [0, 4, 8, 10]  # 10: the end of training
    assert [each.scalars["epoch"] for each in run] == pytest.approx([0, 0.8, 1.6, 2])
    assert "loss" not in run[0].scalars
    assert all(0 < each.scalars["loss"] < 2 for each in run[1:])
    final = sc.partition(module.net.eval(), BOX, progress=False)
    assert torch.equal(run[-1].partition.vertices, final.vertices)
    assert not torch.equal(run[0].partition.values.amax(), final.values.amax())


@pytest.mark.slow
def test_training_with_lightning_is_the_same(tmp_path: Path):
    alone, _ = fit_lightning("lightning.pytorch", tmp_path, watched=False)
    state = torch.get_rng_state()
    beside, _ = fit_lightning("lightning.pytorch", tmp_path, watched=True, every=3)
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, weights(alone), weights(beside)))


@pytest.mark.slow
def test_batches_of_lightning_that_only_accumulate_are_no_steps(tmp_path: Path):
    _, watch = fit_lightning("lightning.pytorch", tmp_path, watched=True, accumulate=2, every=1)
    assert watch is not None
    assert watch.run.steps == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_scalars_go_to_a_logger_of_lightning(tmp_path: Path):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    logger = loggers.CSVLogger(tmp_path)
    watch = sc.watch(network(), BOX, writer=logger, statistics=["num_regions"])
    snapshot = watch.step(loss=0.5)
    assert snapshot is not None
    logger.save()
    text = (Path(logger.log_dir) / "metrics.csv").read_text()
    head, row = (line.split(",") for line in text.splitlines())
    found = dict(zip(head, row, strict=True))
    assert float(found["splinecam/loss"]) == 0.5
    assert float(found["splinecam/num_regions"]) == snapshot.scalars["num_regions"]
    assert found["step"] == "0"


@pytest.mark.slow
def test_callbacks_record_local_complexity(tmp_path: Path):
    how: Any = {"statistics": "local_complexity", "points": {"train": data()[0][:3]}}
    for fit in (partial(fit_lightning, "lightning.pytorch"), fit_huggingface):
        _, watch = fit(tmp_path, watched=True, radius=0.3, **how)
        assert watch is not None
        for each in watch.run:
            low, high = (each.scalars[f"local_train_{side}"] for side in ("low", "high"))
            assert low <= each.scalars["local_train"] <= high


# -- Hugging Face --------------------------------------------------------------------------------


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self) -> None:
        self.x, self.labels = data()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, k: int) -> dict[str, Tensor]:
        return {"x": self.x[k], "labels": self.labels[k]}


class WithLoss(nn.Module):
    """As the models of transformers: a dict with the loss where there are labels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.net(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def fit_huggingface(
    folder: Path, *, watched: bool, **options: Any
) -> tuple[Any, sc.results.Watch | None]:
    """Train for two epochs of five batches; the model and the watch of its network."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    model = WithLoss()
    watch = sc.watch(model.net, BOX, **{"every": 4, **options}) if watched else None
    with warnings.catch_warnings():
        # Advice on pinned memory, and what accelerate itself uses of torch.
        warnings.filterwarnings("ignore", module="torch|accelerate|transformers")
        settings = transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=2,
            per_device_train_batch_size=8,
            learning_rate=0.01,
            logging_steps=2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=5,
        )
        trainer = transformers.Trainer(
            model=model,
            args=settings,
            train_dataset=Rows(),
            callbacks=[] if watch is None else [watch.huggingface()],
        )
        trainer.train()
    return (model, trainer), watch


@pytest.mark.slow
def test_huggingface_callback_counts_steps(tmp_path: Path):
    (model, trainer), watch = fit_huggingface(tmp_path, watched=True)
    assert watch is not None
    run = watch.run
    assert run.steps == [0, 4, 8, 10]
    assert [each.scalars["epoch"] for each in run] == pytest.approx([0, 0.8, 1.6, 2])
    logged = {each["step"]: each["loss"] for each in trainer.state.log_history if "loss" in each}
    assert "loss" not in run[0].scalars
    assert [each.scalars["loss"] for each in run[1:]] == [logged[k] for k in (4, 8, 10)]
    final = sc.partition(model.net.eval(), BOX, progress=False)
    assert torch.equal(run[-1].partition.vertices, final.vertices)


@pytest.mark.slow
def test_training_with_huggingface_is_the_same(tmp_path: Path):
    (alone, _), _ = fit_huggingface(tmp_path, watched=False)
    state = torch.get_rng_state()
    (beside, _), _ = fit_huggingface(tmp_path, watched=True, every=3)
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, weights(alone), weights(beside)))


# -- without the packages ------------------------------------------------------------------------


def test_callbacks_are_imported_lazily_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("lightning_callback", "huggingface_callback"):
        monkeypatch.delitem(sys.modules, f"splinecam.training.{name}", raising=False)
    watch = sc.watch(network(), BOX)
    with pytest.raises(sc.SplineCamError, match=r"splinecam\[lightning\]"):
        watch.lightning()
    with pytest.raises(sc.SplineCamError, match=r"splinecam\[huggingface\]"):
        watch.huggingface()


@pytest.mark.slow
def test_one_of_several_outputs_is_watched() -> None:
    """Models of transformers return a ``ModelOutput``; ``output`` goes on to ``sc.partition``."""
    outputs = pytest.importorskip("transformers.modeling_outputs")

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(2, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Any:
            hidden = self.body(x).relu()
            return outputs.SequenceClassifierOutput(
                logits=self.head(hidden), hidden_states=(hidden,)
            )

    model = Classifier()
    watch = sc.watch(model, BOX, every=1, output="logits", points={"any": torch.zeros(3, 2)})
    watch.step(loss=1.0)
    part = watch.run[-1].partition
    assert part._chosen_output == "logits"
    assert part.values.shape[1] == 2
    part.attach(model)
    assert part.validate().ok
