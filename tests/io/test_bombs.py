"""Small files that announce, or unpack to, far more than their size explains."""

import gzip
import io
import pickle
import re
import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.cli.models import read_samples
from splinecam.files.loading import load_weights
from splinecam.network.model_files import kind_of_file
from splinecam.stores.result_store import ResultStore, results_in

MANY = 12_000_000  # numbers: 96 MB in float64, of which 64 MiB are always free
ALLOWED = 1 << 20  # bytes that are read of the other arrays


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, Any]:
    """The arrays of a saved partition."""
    part = sc.partition(net(), sc.Domain.box(-1, 1), progress=False)
    part.save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as found:
        return dict(found)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every array that NumPy reads."""
    sizes: list[int] = []
    original = np.lib.format.read_array

    def counted(*arguments: Any, **options: Any) -> Any:
        array = original(*arguments, **options)
        sizes.append(array.nbytes)
        return array

    monkeypatch.setattr(np.lib.format, "read_array", counted)
    return sizes


# -- arrays of NumPy -----------------------------------------------------------------------------


def with_zeros(path: Path, arrays: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> None:
    """Write arrays, of which one is so many zeros, without holding them all in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in {**arrays, name: None}.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                if key == name:
                    file.write(header(shape))
                    for _ in range(8 * int(np.prod(shape)) // 1_000_000):
                        file.write(bytes(1_000_000))
                elif array is not None:
                    np.lib.format.write_array(file, array)


def header(shape: tuple[int, ...]) -> bytes:
    """The first bytes of a file of an array in float64."""
    file = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def test_arrays_that_nobody_asks_for_are_not_read(
    arrays: Any, tmp_path: Path, read: list[int]
) -> None:
    with_zeros(tmp_path / "more.npz", arrays, "extra", (MANY,))
    part = sc.load(tmp_path / "more.npz")
    assert 0 < sum(read) < ALLOWED
    assert len(part) == len(arrays["mesh_offsets"]) - 1


@pytest.mark.slow
def test_arrays_larger_than_the_file_explains(arrays: Any, tmp_path: Path, read: list[int]) -> None:
    del arrays["values"]
    with_zeros(tmp_path / "large.npz", arrays, "values", (MANY // 2, 2))
    with pytest.raises(
        sc.FileError, match=r"(?s)large\.npz is not opened.*np\.savez\(\"plain\.npz\""
    ) as e:
        sc.load(tmp_path / "large.npz")
    assert "damaged" not in str(e.value)
    with_zeros(tmp_path / "weights.npz", {}, "0.weight", (MANY // 2, 2))
    with pytest.raises(sc.FileError, match=r"weights\.npz is not opened"):
        load_weights(net(), tmp_path / "weights.npz")
    with pytest.raises(sc.FileError, match=r"weights\.npz is not opened"):
        read_samples(tmp_path / "weights.npz")
    assert sum(read) < ALLOWED


def test_results_larger_than_the_file_explains(tmp_path: Path, read: list[int]) -> None:
    digest = bytes(16)
    with ResultStore(tmp_path, {}) as store:
        domains = np.frombuffer(digest, np.uint8)[None]
        with_zeros(tmp_path / "00000000-00000001.npz", {"domains": domains}, "results", (MANY,))
        store.refresh()
        with pytest.raises(sc.FileError, match="is not opened"):
            list(store.read({0: digest}))
    with pytest.raises(sc.FileError, match="is not opened"):
        results_in(tmp_path)
    assert sum(read) < ALLOWED


def test_headers_that_announce_what_is_not_there(arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "header.npz"
    for shape in ((10**10, 2), (-1, 2), (2**62, 2**62)):
        with zipfile.ZipFile(path, "w") as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w") as file:
                    if key == "values":
                        file.write(header(shape))
                    else:
                        np.lib.format.write_array(file, array)
        with pytest.raises(sc.FileError, match="values has 0 bytes, which do not fit the shape"):
            sc.load(path)
        (tmp_path / "x.npy").write_bytes(header(shape))
        with pytest.raises(sc.FileError, match="do not fit the shape"):
            read_samples(tmp_path / "x.npy")


def test_a_zip_that_lies_about_its_sizes(arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "lie.npz"
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"values.npy"))
    struct.pack_into("<I", content, entry + 24, 2**31)  # the size of the unpacked file
    path.write_bytes(content)
    with pytest.raises(sc.FileError, match="do not fit the shape"):
        sc.load(path)


def test_a_long_description(arrays: Any, tmp_path: Path) -> None:
    about = arrays["about"].tobytes()
    arrays["about"] = np.frombuffer(about[:-1] + b" " * 4_000_000 + b"}", np.uint8)
    np.savez_compressed(tmp_path / "about.npz", **arrays)
    with pytest.raises(sc.FileError, match="is not opened"):
        sc.load(tmp_path / "about.npz")
    np.savez(tmp_path / "plain.npz", **arrays)
    assert len(sc.load(tmp_path / "plain.npz")) > 1


def test_honest_files_that_compress_well(tmp_path: Path) -> None:
    last = nn.Linear(12, 2000)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), last)
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    part.save(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as found:
        np.savez_compressed(tmp_path / "packed.npz", **found)
    sizes = [(tmp_path / name).stat().st_size for name in ("plain.npz", "packed.npz")]
    assert sizes[0] > 100 * sizes[1]
    again = sc.load(tmp_path / "packed.npz")
    assert len(again) == len(part)
    assert torch.equal(again.values, part.values)


# -- pickles of torch ----------------------------------------------------------------------------


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def tensor(numel: int, shape: tuple[int, ...], stride: tuple[int, ...], last: bytes = b"") -> bytes:
    """The instructions that make a tensor; ``last`` is what old files add to a storage."""
    sizes = [b"(" + b"".join(map(number, each)) + b"t" for each in (shape, stride)]
    storage = text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + (storage + number(numel) + last + b"tQ" + number(0))
        + (sizes[0] + sizes[1] + b"\x89ccollections\nOrderedDict\n)RtR")
    )


def state(value: bytes) -> bytes:
    return b"\x80\x02}" + text("0.weight") + value + b"s."


TWICE = b"h\x00h\x00\x86q\x00"  # a pair of the last pair
NESTED = b"\x80\x02)q\x00" + 60 * TWICE
PICKLES = {
    "a key of 2^60 values": NESTED + b"}h\x00K\x01s.",
    "a set of 2^60 values": NESTED + b"cbuiltins\nset\n]h\x00a\x85R.",
    "a counter of 2^60 values": NESTED + b"ccollections\nCounter\nh\x00\x85\x85R.",
    "one number, expanded": state(tensor(1, (10**6, 1000), (0, 0))),
    "many of them": b"\x80\x02]" + 50 * (tensor(1, (10**6,), (0,)) + b"a") + b".",
    "a storage that is not there": state(tensor(10**12, (10**12,), (1,))),
    "zero bytes": state(b"cbuiltins\nbytearray\n" + number(10**10) + b"\x85R"),
    "doubled bytes": state(
        41 * b"c_codecs\nencode\n" + text("a") + text("latin1") + b"\x86R"
        + 40 * (text("hex") + b"\x86R")
    ),
    "memory of any kind": state(b"ctorch\nTensor\n" + number(10**5) + number(10**5) + b"\x86R"),
    "an object of any size": state(b"ctorch\nTensor\n" + number(10**10) + b"\x85\x81"),
    "a sum below zero": state(tensor(1, (10**6, 10**6), (0, 0)) + tensor(1, (-(10**12),), (0,))),
}  # fmt: skip


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_pickles(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", content)
        archive.writestr("a/byteorder", b"little")
        archive.writestr("a/version", b"3\n")
        archive.writestr("a/data/0", struct.pack("<f", 1.0))
    for read in (lambda: load_weights(net(), path), lambda: read_samples(path)):
        with pytest.raises(
            sc.FileError, match=r"bomb\.pt (is not opened|cannot be read)"
        ) as caught:
            read()
        assert re.search("Save tensors alone", str(caught.value))


def test_old_files_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(net().state_dict(), path, _use_new_zipfile_serialization=False)
    load_weights(net(), path)
    about = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    first = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, about)]
    value = state(tensor(10**9, (10**9,), (1,), last=b"N"))
    path.write_bytes(b"".join([*first, value, pickle.dumps([], 2)]))
    with pytest.raises(sc.FileError, match="is not opened: its tensors would take"):
        load_weights(net(), path)


def test_deflated_files_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "deflated.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", state(tensor(2 * MANY, (2 * MANY,), (1,))))
        with archive.open("a/data/0", "w") as file:
            for _ in range(MANY // 125_000):
                file.write(bytes(1_000_000))
    for read in (lambda: load_weights(net(), path), lambda: kind_of_file(path)):
        with pytest.raises(sc.FileError, match="is not opened"):
            read()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + 1_500_000 * b"N" + b".")
    for read in (lambda: load_weights(net(), path), lambda: kind_of_file(path)):
        with pytest.raises(sc.FileError, match="is not opened"):
            read()


def test_honest_checkpoints(tmp_path: Path) -> None:
    path, model = tmp_path / "honest.pt", net()
    held = {
        "model": {name: nn.Parameter(each) for name, each in model.state_dict().items()},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "schedule": {"milestones": Counter([3, 5]), "order": OrderedDict(a=[1, (2, "b")])},
        "shape": torch.Size([2]),
        "seen": {(1, "a"): {3, 4}, "device": torch.device("cpu"), "kind": torch.float16},
        "bytes": (b"\xff\x00", bytearray(b"ab"), 1j, 2.5, None, 10**15),
        "expanded": torch.ones(3).expand(1000, 3),
    }
    torch.save(held, path)
    other = net()
    other.load_state_dict({name: 0 * each for name, each in other.state_dict().items()})
    load_weights(other, path)
    assert torch.equal(other.state_dict()["0.weight"], model.state_dict()["0.weight"])


# -- properties ----------------------------------------------------------------------------------


def test_compressed_properties(tmp_path: Path) -> None:
    path = tmp_path / "bomb.vnnlib.gz"
    start = b"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))\n"
    path.write_bytes(gzip.compress(start + b"(assert (<= X_0 1))\n" * 300_000))
    with pytest.raises(sc.FileError, match=r"is not opened.*gunzip --keep .*bomb\.vnnlib\.gz"):
        sc.read_vnnlib(path)
    path.write_bytes(gzip.compress(start + b"(assert (<= X_0 1))\n" * 20_000))
    assert sc.read_vnnlib(path).box[1].tolist() == [1.0]
