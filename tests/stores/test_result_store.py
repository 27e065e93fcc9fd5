"""Stores of results: written as they are done, refused if they are others, shared by processes."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.errors import FileError
from splinecam.stores.claims import Claims
from splinecam.stores.manifest import domain_digest, function_name, model_facts, weights_digest
from splinecam.stores.result_store import ResultStore, fill, results_in
from splinecam.stores.untrusted import decode, encode, inside, read_array, seal, write_array

DIGESTS = {k: bytes([k]) * 16 for k in range(50)}


def squares(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
    for number in numbers:
        yield number, {"square": number**2}


def values(store: ResultStore) -> list[int]:
    return [result["square"] for result in store.read(DIGESTS)]


def test_what_is_missing_is_computed_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def stops(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
        for number in numbers:
            asked.append(number)
            if number == 20 and asked.count(20) == 1:
                raise KeyboardInterrupt
            yield number, {"square": number**2}

    with ResultStore(tmp_path / "run", {"kind": "a"}) as store, pytest.raises(KeyboardInterrupt):
        fill(store, DIGESTS, stops)
    assert set(results_in(tmp_path / "run")) == set(range(20)), "what was done before is kept"
    with ResultStore(tmp_path / "run", {"kind": "a"}) as store:
        fill(store, DIGESTS, stops)
        assert values(store) == [k**2 for k in range(50)]
    assert sorted(asked) == sorted([*range(50), 20])


def test_results_are_written_while_others_are_computed(tmp_path: Path) -> None:
    seen = []

    def watched(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
        for number in numbers:
            seen.append(len(results_in(tmp_path)))
            yield number, number

    with ResultStore(tmp_path, {}) as store:
        fill(store, {k: DIGESTS[k] for k in range(4)}, watched, seconds=0.0)
    assert seen == list(range(4))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"weights": "b", "reduce": "f"}, "a model with other weights"),
        ({"weights": "a", "reduce": "g"}, "another function"),
        ({"weights": "a"}, "another function"),
    ],
)
def test_another_computation_is_refused(tmp_path: Path, about: Any, message: str) -> None:
    ResultStore(tmp_path, {"weights": "a", "reduce": "f", "outputs": [1.0, 2.0]})
    ResultStore(tmp_path, {"weights": "a", "reduce": "f", "outputs": [1.0, 2.0 + 1e-12]})
    with pytest.raises(FileError, match=message):
        ResultStore(tmp_path, {"outputs": [1.0, 2.0], **about})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"identity": {"splinecam": "0.0.1"}}, r"version of SplineCam \(0\.0\.1, and this is"),
        ({"version": 99}, "version 99 of the format"),
        ({"version": 2}, r"version 2 .* reads version 3\. Choose another folder"),
        ({"format": "splinecam run"}, "not the head of results: it holds splinecam run"),
    ],
)
def test_another_version_is_refused(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    ResultStore(tmp_path, {})
    path = tmp_path / "manifest.json"
    entries = json.loads(path.read_text())
    del entries["crc32"]
    path.write_bytes(seal(entries | entry))
    with pytest.raises(FileError, match=message):
        ResultStore(tmp_path, {})


def test_other_domains_are_refused(tmp_path: Path) -> None:
    with ResultStore(tmp_path, {}) as store:
        fill(store, DIGESTS, squares)
        with pytest.raises(FileError, match="for other domains: domain 3 differs"):
            fill(store, DIGESTS | {3: b"x" * 16}, squares)
    with ResultStore(tmp_path, {}) as store:
        more = DIGESTS | {k: bytes([k]) * 16 for k in range(50, 60)}
        fill(store, more, squares)
        assert len(list(store.read(more))) == 60, "a longer list continues the shorter one"


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    with ResultStore(tmp_path, {}) as store:
        fill(store, DIGESTS, squares, seconds=math.inf)  # all of them into one file
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with ResultStore(tmp_path, {}) as store:
        with pytest.warns(UserWarning, match="is damaged"):
            fill(store, DIGESTS, squares)
        assert values(store) == [k**2 for k in range(50)]


def test_a_full_disk_loses_nothing_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def full(number: int) -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    with ResultStore(tmp_path, {}) as store, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match=r"the disk is full.*the same call continues"):
            fill(store, DIGESTS, squares, seconds=0.0)
    assert set(results_in(tmp_path)) == set(range(3))
    assert not list(tmp_path.glob(".*.part"))
    with ResultStore(tmp_path, {}) as store:
        fill(store, DIGESTS, squares)
        assert values(store) == [k**2 for k in range(50)]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".00000000-00000032.npz.abcd1234.part").write_bytes(b"incomplete")
    ResultStore(tmp_path, {})
    assert not list(tmp_path.glob(".*.part"))


def test_a_result_that_another_process_has_claimed_is_left_to_it(tmp_path: Path) -> None:
    ready, other = os.pipe()
    with ResultStore(tmp_path, {}) as store:
        child = os.fork()
        if not child:  # claims some results, writes them after a while, and ends
            claims = Claims(tmp_path)
            claims.take(0, 16)
            os.write(other, b"x")
            while not (tmp_path / "00000016-00000050.npz").exists():
                pass
            store.write(0, [DIGESTS[k] for k in range(10)], [{"square": -1}] * 10)
            os._exit(0)
        os.read(ready, 1)
        fill(store, DIGESTS, squares, seconds=math.inf)  # all of them into one file
        os.waitpid(child, 0)
        assert values(store) == [-1] * 10 + [k**2 for k in range(10, 50)]


def test_results_keep_their_types_and_bits() -> None:
    given = [
        {"NR": 4, "ARV": 0.1 + 0.2, "none": None, "yes": True, "text": "a"},
        (1, [2.5, (3,)], {}),
        {1: "one", (2, 3): "pair"},
        {"array": 5},
        np.float32(0.5),
        math.inf,
    ]
    found = decode(encode(given))
    assert found == [*given[:4], 0.5, math.inf]
    assert isinstance(found[0]["NR"], int)
    tensor, array = decode(encode([torch.eye(2), np.arange(3)]))
    assert torch.equal(tensor, torch.eye(2))
    assert np.array_equal(array, np.arange(3))
    with pytest.raises(TypeError, match="a store cannot keep object"):
        encode([object()])


def test_fingerprints_tell_domains_weights_and_functions_apart() -> None:
    box = sc.Domain.box(-1, 1)
    assert domain_digest(box) == domain_digest(sc.Domain.box(-1, 1))
    assert domain_digest(box) != domain_digest(sc.Domain.box(-1, 1 + 1e-15))
    a, b = nn.Linear(2, 1).state_dict(), nn.Linear(2, 1).state_dict()
    assert weights_digest(a) == weights_digest(dict(reversed(a.items()))) != weights_digest(b)

    def outer(k: int) -> Any:
        return lambda part: k * len(part)

    assert function_name(outer(1)) == function_name(outer(1)) != function_name(outer(2))
    assert function_name(partial(sorted, key=len)) == "builtins.sorted(['key', builtins.len])"


def test_models_with_equal_weights_differ_in_what_they_compute() -> None:
    linear, box = nn.Linear(2, 3), sc.Domain.box(-1, 1)
    relu = model_facts(nn.Sequential(linear, nn.ReLU()), box, None)
    leaky = model_facts(nn.Sequential(linear, nn.LeakyReLU()), box, None)
    assert relu["weights"] == leaky["weights"]
    assert relu["outputs"] != leaky["outputs"]


# -- folders that somebody else has written -------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", ".claims", "00000000-00000050.npz"])
def test_a_store_has_no_links(tmp_path: Path, name: str) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with ResultStore(folder, {}) as store:
        fill(store, DIGESTS, squares, seconds=math.inf)
    (folder / name).rename(elsewhere)
    for there in (elsewhere, tmp_path / "nowhere"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(there)
        with pytest.raises(FileError, match="link"):
            ResultStore(folder, {})
    assert elsewhere.exists()
    assert not (tmp_path / "nowhere").exists()


def test_a_name_that_promises_too_much_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "00000000-999999999999.npz").write_bytes(b"x" * 100)
    with pytest.warns(UserWarning, match="100 bytes cannot hold"), ResultStore(tmp_path, {}) as it:
        assert not it.done
    assert not list(tmp_path.glob("*.npz"))


def test_forged_results_are_refused(tmp_path: Path) -> None:
    """Also with right checksums, and as read by either way."""
    forged = ["[1", "[]", "3", '[{"array": 1}]', '[{"array": [1]}]', '[{"tuple": 3}]']
    forged += ['[{"dict": [[[1], 2]]}]', '[{"dict": 1}]', "[" * 9999, '[{"tensor": "x"}]']
    path = tmp_path / "00000000-00000001.npz"
    domains = np.frombuffer(DIGESTS[0], np.uint8)[None]
    for text in forged:
        with ResultStore(tmp_path, {}) as store:
            np.savez(path, domains=domains, results=np.frombuffer(text.encode(), np.uint8))
            store.refresh()
            with pytest.raises(FileError, match="damaged"):
                list(store.read({0: DIGESTS[0]}))
        with pytest.raises(FileError, match="damaged"):
            results_in(tmp_path)


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    for name in ("/etc/passwd", "..", ".", "", "a/b", "../a", "a\\b", "C:a", "a\0", 3, None, ["a"]):
        with pytest.raises(FileError, match="not the name of a file"):
            inside(tmp_path, name)
    assert inside(tmp_path, "a b", ".c") == tmp_path / "a b" / ".c"


@pytest.mark.parametrize("array", [np.arange(7), np.zeros((0, 2)), np.eye(3), np.int8([[1]])])
def test_arrays_come_back_and_numpy_reads_them(array: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for _ in range(2):  # and are replaced
        write_array(path, array)
        again = read_array(path, "fi", "")
        assert again.dtype == array.dtype
        assert np.array_equal(again, array)
        assert np.array_equal(np.load(path, mmap_mode="r"), array)
    path.rename(tmp_path / "b.npy")
    with pytest.raises(FileError, match="checksum"):
        read_array(tmp_path / "b.npy", "fi", "")
    assert read_array(tmp_path / "b.npy", "fi", "", verify=False).shape == array.shape
