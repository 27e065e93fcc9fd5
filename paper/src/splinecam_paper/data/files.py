"""Where data may lie on this machine, and how its files are read.

The files may be in a zip or tar archive, which is never unpacked to disk.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam import DataError
from splinecam._util.files import reason_of

# -- places ---------------------------------------------------------------------------------------


_VARIABLE = "SPLINECAM_DATA"
_DEBIAN = Path("/usr/share/datasets")  # where Debian's packages of data are installed


@dataclass(frozen=True)
class Wanted:
    """A data set: its title, the usual names of its folder and archives, and what to get.

    folders: below one of the roots, the most usual first.
    archives: patterns of file names, in one of the roots or of these folders.
    advice: which files to get, and from where.
    """

    title: str
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class Place:
    """A folder or an archive that may hold the data, and its path below the root it is in."""

    path: Path
    shown: str


def places(folder: str | os.PathLike[str] | None, wanted: Wanted) -> Iterator[Place]:
    """The folders and archives in which to look for a data set, the most explicit ones first.

    A folder that is named, by the argument or the environment variable SPLINECAM_DATA, may hold
    the files itself. The usual places hold them in a folder of the data set's name.
    """
    named, usual = _roots(folder)
    for root in dict.fromkeys([*named, *usual]):
        folders = [root / name for name in wanted.folders if (root / name).is_dir()]
        yield from (Place(path, path.relative_to(root).as_posix()) for path in folders)
        for base, pattern in product([root, *folders], wanted.archives):
            yield from (Place(path, path.name) for path in sorted(base.glob(pattern)))
        if root in named:
            yield Place(root, root.name)


def missing(folder: str | os.PathLike[str] | None, wanted: Wanted) -> DataError:
    """The error that says where a data set is looked for, what to get and where to put it."""
    named, usual = _roots(folder)
    looked = ", ".join(str(root) for root in dict.fromkeys([*named, *usual]))
    return DataError(
        f"{wanted.title} is not on this machine (looked in {looked}). {wanted.advice} Put what "
        f"you get into {Path('data', wanted.folders[0])}, or name the folder that it is in with "
        f"--data DIR or the environment variable {_VARIABLE}."
    )


def _roots(folder: str | os.PathLike[str] | None) -> tuple[list[Path], Sequence[Path]]:
    """The folders that are named, and the usual ones, among which are those of torchvision."""
    named = []
    if folder is not None:
        named.append(Path(folder).expanduser())
        if not named[0].is_dir():
            what = "is a file, not a folder" if named[0].exists() else "does not exist"
            raise DataError(f"The data folder {folder} {what}. Name a folder that holds data.")
    if os.environ.get(_VARIABLE):
        named.append(Path(os.environ[_VARIABLE]).expanduser())
    home = Path.home()
    cache = home / ".cache"
    usual = [Path("data"), cache / "splinecam", home / "data", cache / "torch/datasets/vision"]
    return named, [*usual, _DEBIAN]


# -- files of folders and archives ----------------------------------------------------------------


_LIMIT = 1 << 30  # bytes; every file that is read here is much smaller
_RATIO = 1032  # deflate compresses by no more than this
_DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


@dataclass(frozen=True)
class FileSet:
    """The files at a path, with their sizes in bytes, by their names in the folder or archive."""

    path: Path
    sizes: dict[str, int]
    _read: Callable[[str], bytes]

    def named(self, *names: str) -> str | None:
        """The file with one of these names, in any folder; the first name is preferred."""
        by_name = {PurePosixPath(file).name: file for file in reversed(self.sizes)}
        return next((by_name[name] for name in names if name in by_name), None)

    def where(self, name: str) -> str:
        """The path of a file, for messages."""
        return str(self.path / name) if self.path.is_dir() else f"{name} in {self.path}"

    def read(self, name: str, limit: int = _LIMIT) -> bytes:
        """The content of a file, whose size is compared with the limit first."""
        if self.sizes[name] > limit:
            size = f"{self.sizes[name]:,} bytes, more than the {limit:,} of any file of its kind"
            raise DataError(f"{self.where(name)} is damaged: it has {size}.")
        with _reading(self.where(name)):
            return self._read(name)


@contextlib.contextmanager
def opened(path: Path, below: Sequence[str] = ()) -> Iterator[FileSet]:
    """Open an archive, or the files in a folder and everything in these of its sub-folders."""
    with contextlib.ExitStack() as stack:
        with _reading(str(path)):
            if path.is_dir():
                files = _of_folder(path, below)
            elif path.suffix == ".zip":
                files = _of_zip(path, stack.enter_context(zipfile.ZipFile(path)))
            else:
                files = _of_tar(path, stack.enter_context(tarfile.open(path)))
        yield files


def unzipped(content: bytes, where: str, length: Callable[[bytes], int]) -> bytes:
    """The content of a gzip file; ``length`` tells from the first 16 bytes how much there is."""
    with _reading(where), gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        start = file.read(16)
        size = length(start)
        if size > _RATIO * len(content):
            raise DataError(
                f"{where} is damaged: its header announces {size:,} bytes, which do not fit into "
                f"{len(content):,} compressed bytes."
            )
        return start + file.read(max(0, size - len(start)) + 1)


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Convert errors while a file is read to a ``DataError`` that names it."""
    try:
        yield
    except _DAMAGED as error:
        reason = f"it is damaged ({error})"
        if isinstance(error, OSError) and error.errno is not None:
            reason = reason_of(error)
        raise DataError(f"{where} cannot be read: {reason}.") from error


def _of_folder(path: Path, below: Sequence[str]) -> FileSet:
    found = [file for file in path.iterdir() if file.is_file()]
    for name in below:
        for folder, _, files in os.walk(path / name):
            found.extend(Path(folder, file) for file in files)
    sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in sorted(found)}
    return FileSet(path, sizes, lambda name: (path / name).read_bytes())


def _of_zip(path: Path, archive: zipfile.ZipFile) -> FileSet:
    sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
    return FileSet(path, sizes, archive.read)


def _of_tar(path: Path, archive: tarfile.TarFile) -> FileSet:
    sizes = {member.name: member.size for member in archive if member.isfile()}

    def read(name: str) -> bytes:
        file = archive.extractfile(name)
        return b"" if file is None else file.read()

    return FileSet(path, sizes, read)


# -- image files ----------------------------------------------------------------------------------


LIMIT = 1 << 26  # bytes of one file
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def decoded(content: bytes, where: str, mode: str, size: int | None = None) -> NDArray[np.uint8]:
    """The pixels (H, W) of mode "L", grey, or (H, W, 3) of mode "RGB", of an image file.

    size: the side of a square, to which the middle of the image is scaled.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about images so large that they may be an attack
            with Image.open(io.BytesIO(content)) as file:
                image: Any = file
                if image.mode.startswith("I"):  # 16 bits, which pillow would cut off at 255
                    deep = np.asarray(image, np.float64) / 257
                    image = Image.fromarray(deep.round().clip(0, 255).astype(np.uint8))
                image = image.convert(mode)
                if size is not None:
                    image = _square(image, size)
                return np.asarray(image)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{where} is not an image that pillow can read ({error}).") from error


def _square(image: Any, size: int) -> Any:
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return image.crop((left, top, left + side, top + side)).resize((size, size))
