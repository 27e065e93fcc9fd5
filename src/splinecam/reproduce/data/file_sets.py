"""The files of a folder, a zip or a tar archive, read by name and never unpacked to disk."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from splinecam._util.files import reason_of
from splinecam.errors import DataError

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
