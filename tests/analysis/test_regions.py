"""A partition is a sequence of its regions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import splinecam as sc
from drawing import cut_up, network

NAMES = ("cat", "dog", "horse")
BOX = sc.Domain.box(-3, 3)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(network(3), BOX, names=NAMES, progress=False)


@pytest.fixture(scope="module")
def other() -> sc.Partition:
    return cut_up(network(3))


def test_a_partition_is_a_sequence_of_its_regions(part: sc.Partition, other: sc.Partition) -> None:
    regions = list(part)
    assert [region.index for region in regions] == list(range(len(part)))
    assert all(isinstance(region, sc.results.Region) for region in regions)
    assert part[0] == regions[0] == part[0]
    assert part[-1] == regions[-1]
    assert part[2:8:2] == regions[2:8:2]
    assert part[np.int64(3)] == part[torch.tensor(3)] == regions[3]
    assert next(reversed(part)) == regions[-1]
    with pytest.raises(IndexError, match=f"of {len(part):,} regions"):
        part[len(part)]


def test_regions_are_in_their_own_partition(part: sc.Partition, other: sc.Partition) -> None:
    assert part[3] in part
    assert part[3] in part
    assert other[3] not in part
    assert 3 not in part
    assert len({part[3], part[3], part[4]}) == 2
    assert len({part, other}) == 2
    assert part != other


def test_neighbours_are_plain_ints(part: sc.Partition) -> None:
    found = part[5].neighbours
    assert isinstance(found, tuple)
    assert all(type(k) is int for k in found)
    assert list(found) == sorted(found)
    assert json.loads(json.dumps(found)) == list(found)
