"""Tiny files in the formats of the standard data sets, made on the spot.

``make_data`` fills a folder that the experiments take as their ``--data``.
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from splinecam_paper.data.images import enlarged_digits
from splinecam_paper.data.meshes import bumpy_torus
from splinecam_paper.data.photos import formula_photo

CLASSES = {  # three cats and two others
    "n01443537": "goldfish",
    "n02123045": "tabby cat",
    "n02123394": "Persian cat",
    "n02124075": "Egyptian cat",
    "n07873807": "pizza",
}


def make_data(folder, *, train=200, test=50, per_class=(12, 4)):
    """Write every data set, tiny; returns the folder.

    train, test: how many images MNIST, Fashion-MNIST and CIFAR-10 have.
    per_class: how many training and test images each of the five classes of TinyImageNet has.
    """
    folder = Path(folder)
    make_idx(folder / "mnist", train, test)
    make_idx(folder / "FashionMNIST" / "raw", train, test, flip=True)
    make_cifar(folder / "cifar-10-batches-bin", train, test)
    make_image_folder(folder / "tiny-imagenet-200", *per_class)
    (folder / "photos").mkdir()
    grey = (formula_photo(48) * 255).byte().numpy()
    Image.fromarray(grey).save(folder / "photos" / "made.png")
    (folder / "bunny").mkdir()
    (folder / "bunny" / "bunny.ply").write_bytes(ply(*(x.numpy() for x in bumpy_torus(24, 12))))
    return folder


@functools.cache
def _digits(side, channels):
    return enlarged_digits(side, channels, tuple("0123456789"))


def idx(array):
    """The content of an IDX file."""
    array = np.asarray(array, np.uint8)
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def make_idx(folder, train=20, test=10, *, flip=False):
    """The four files of MNIST, with digits of scikit-learn, upside down for another data set."""
    folder.mkdir(parents=True)
    made = _digits(28, 1)
    step = -1 if flip else 1
    for part, images, labels, count in (
        ("train", made.train, made.train_labels, train),
        ("t10k", made.test, made.test_labels, test),
    ):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images[:count, 0, ::step]))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels[:count]))
    return folder


def make_cifar(folder, train=20, test=10):
    """The six batches of CIFAR-10's binary version, with coloured digits."""
    folder.mkdir(parents=True)
    made = _digits(32, 3)
    parts = np.array_split(np.arange(train), 5)
    for number, rows in enumerate(parts, start=1):
        batch = records(made.train[rows], made.train_labels[rows])
        (folder / f"data_batch_{number}.bin").write_bytes(batch.tobytes())
    batch = records(made.test[:test], made.test_labels[:test])
    (folder / "test_batch.bin").write_bytes(batch.tobytes())
    return folder


def records(images, labels):
    """The records (N, 3073) of CIFAR-10: a label and the bytes of an image."""
    return np.concatenate(
        [labels.astype(np.uint8)[:, None], images.reshape(len(images), -1)], axis=1
    )


def make_image_folder(folder, train=3, test=2, side=64):
    """Images of five classes in train/CLASS/images and val/images, as TinyImageNet has them."""
    made = _digits(side, 3)
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for label, wnid in enumerate(CLASSES):
        images = [np.moveaxis(image, 0, -1) for image in made.train[made.train_labels == label]]
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for number, image in enumerate(images[:train]):
            path = folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG"
            Image.fromarray(image).save(path, quality=95)
        for image in images[train : train + test]:
            name = f"val_{len(lines)}.JPEG"
            Image.fromarray(image).save(folder / "val" / "images" / name, quality=95)
            lines.append(f"{name}\t{wnid}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    words = {"n02123045": "tabby, tabby cat", "n01443537": "goldfish, Carassius auratus"}
    (folder / "words.txt").write_text("".join(f"{n}\t{w}\n" for n, w in words.items()))
    return folder


def ply(vertices, faces, kind="binary_little_endian"):
    """The content of a PLY file with a colour of each vertex, which readers have to skip."""
    head = (
        f"ply\nformat {kind} 1.0\ncomment made\nelement vertex {len(vertices)}\n"
        "property float x\nproperty float y\nproperty float z\nproperty uchar red\n"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    ).encode()
    if kind == "ascii":
        lines = [f"{x} {y} {z} 7" for x, y, z in vertices]
        lines += [" ".join(map(str, [len(face), *face])) for face in faces]
        return head + "\n".join(lines).encode() + b"\n"
    order = "<" if kind == "binary_little_endian" else ">"
    body = b"".join(struct.pack(f"{order}3fB", *vertex, 7) for vertex in vertices)
    body += b"".join(struct.pack(f"{order}B{len(face)}i", len(face), *face) for face in faces)
    return head + body
