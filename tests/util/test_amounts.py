"""Amounts of memory in words, such as "4GB"."""

from __future__ import annotations

import pytest
from torch import nn

import splinecam as sc
from drawing import cut_up, network
from splinecam._util.options import memory_of
from splinecam._util.text import bytes_of
from splinecam.cli import parser as option_types

BOX = sc.Domain.box(-3, 3)


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("4 GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("1.5GB", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("2GiB", 2**31),
        ("2e9", 2 * 10**9),
        ("2000000000", 2 * 10**9),
        ("2000000000b", 2 * 10**9),
    ],
)
def test_memory_in_words(word: str, number: int) -> None:
    assert memory_of(word) == bytes_of(word) == option_types.bytes_of_memory(word) == number


@pytest.mark.parametrize(
    "word", ["", "GB", "much", "-4GB", "0GB", "4XB", "4GiG", "nan", "inf", "1e999", "1.5"]
)
def test_memory_in_other_words(word: str) -> None:
    with pytest.raises(ValueError, match='is not an amount of memory: write "500MB", "4GB"'):
        sc.partition(nn.Linear(2, 1), BOX, memory=word)
    with pytest.raises(Exception, match="is not an amount of memory"):
        option_types.bytes_of_memory(word)


def test_memory_in_words_limits_a_partition() -> None:
    model = network(1)
    part = sc.partition(model, BOX, memory="4GB", progress=False)
    (swept,) = sc.sweep(model, [BOX], memory="4GB", progress=False)
    assert len(part) == len(swept) == len(cut_up(model))
    with pytest.raises(sc.LimitError, match="memory=2,000 bytes"):
        sc.partition(network(1, width=60), BOX, memory="2kB", progress=False)
