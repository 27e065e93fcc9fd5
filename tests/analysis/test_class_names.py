"""Names of classes: checked, remembered, saved, and used to choose classes."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import splinecam as sc
from drawing import cut_up, network

NAMES = ("cat", "dog", "horse")
BOX = sc.Domain.box(-3, 3)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(network(3), BOX, names=NAMES, progress=False)


def test_names_are_remembered(part: sc.Partition, tmp_path: Path) -> None:
    assert part.names == NAMES
    assert cut_up(network(3)).names is None
    part.save(tmp_path / "named.npz")
    assert sc.load(tmp_path / "named.npz").names == NAMES
    assert pickle.loads(pickle.dumps(part)).names == NAMES
    swept = sc.sweep(part.model, [BOX, BOX.zoom(2)], names=NAMES, progress=False)
    assert [each.names for each in swept] == [NAMES] * 2
    assert "'cat', 'dog', 'horse'" in repr(part)


def test_names_can_be_set_later() -> None:
    part = cut_up(network(3))
    part.names = ["a", "b", "c"]
    assert part.names == ("a", "b", "c")
    for wrong, error in (
        (["a", "b"], ValueError),
        ("abc", TypeError),
        (["a", "b", "a"], ValueError),
    ):
        with pytest.raises(error, match="names"):
            part.names = wrong
    with pytest.raises(TypeError, match="names must be a list"):
        part.names = 3  # type: ignore[assignment]
    assert part.names == ("a", "b", "c")
    part.names = None
    assert part.names is None


def test_names_are_checked_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splinecam.partitions.partition.run", None)
    with pytest.raises(ValueError, match="names has 2 entries, but there are 3 classes"):
        sc.partition(network(3), BOX, names=["a", "b"])
    with pytest.raises(ValueError, match="2 classes: the class at or below the level"):
        sc.partition(network(1), BOX, names=["yes"])
    with pytest.raises(ValueError, match="names has 2 entries"):
        sc.sweep(network(3), [BOX], names=["a", "b"])


def test_files_without_names_still_load(part: sc.Partition) -> None:
    """As versions before names wrote them."""
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    arrays = dict(np.load(file))
    about = json.loads(arrays["about"].tobytes())
    assert tuple(about.pop("names")) == NAMES
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    old = io.BytesIO()
    np.savez(old, **arrays)
    old.seek(0)
    again = sc.load(old)
    assert again.names is None
    assert len(again) == len(part)
    about["names"] = ["only one"]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    bad = io.BytesIO()
    np.savez(bad, **arrays)
    bad.seek(0)
    with pytest.raises(sc.FileError, match="names has 1 entries"):
        sc.load(bad)


def test_classes_by_name(part: sc.Partition) -> None:
    line = part.decision_boundary()
    i, j = max(line.pairs(), key=line.pairs().__getitem__)
    named = line.between(NAMES[j], NAMES[i])
    assert named.length == line.between(i, j).length > 0
    assert part.decision_boundary(classes=(NAMES[i], NAMES[j])).length == named.length
    assert f"classes {NAMES[i]} and {NAMES[j]}" in repr(named)
    found = part.class_regions()
    assert "dog: " in repr(found) or "cat: " in repr(found)
    for k, name in enumerate(NAMES):
        areas = [piece.area for piece in found.polygons(name)]
        assert areas == [piece.area for piece in found.polygons(k)]
    with pytest.raises(ValueError, match="no class 'cow'; the names are 'cat', 'dog', 'horse'"):
        line.between("cow", "cat")
    with pytest.raises(ValueError, match="has no names: set part"):
        cut_up(network(3)).class_regions().polygons("cat")


def test_a_loaded_domain_is_the_same(part: sc.Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "part.npz")
    assert sc.load(tmp_path / "part.npz").domain == part.domain
