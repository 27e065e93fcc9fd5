"""Files that appear only when they are complete, and errors that name the file and the reason.

A file is written without a name where the system supports that (``O_TMPFILE``), and else under a
hidden temporary name, so that a killed process never leaves an incomplete file. A temporary file
that it does leave is removed by the next process that writes the same file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from splinecam.errors import FileError

_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space, or choose another folder",
    errno.EDQUOT: "your disk quota is used up. Free some space, or choose another folder",
    errno.EROFS: "the file system is read-only. Choose another folder",
    errno.EACCES: "you have no permission. Choose another folder",
    errno.EPERM: "you have no permission. Choose another folder",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ENAMETOOLONG: "its name is too long",
}
_FILES = Path("/proc/self/fd")  # where Linux lists the open files of a process
_DRAFT = ".part"  # the ending of temporary names
_ATTEMPTS, _PAUSE = 10, 0.01  # to make a file that nobody removes; seconds between two looks at it


def reason_of(error: OSError) -> str:
    """The reason why the system refused to read or write a file, in words."""
    return _REASONS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert errors of the system while a file is written to a ``FileError`` that names it."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {reason_of(error)}.") from error


def folder_of(store: str | os.PathLike[str]) -> Path:
    """The folder that a caller names as a store."""
    if not isinstance(store, str | os.PathLike):
        raise TypeError(f"store must be the name of a folder, not {store!r}")
    return Path(store)


def made_folder(folder: Path) -> Path:
    """The folder, which is made if it is not there; a ``FileError`` says why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise FileError(f"{folder} is a file; give the name of a folder.") from None
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {reason_of(error)}.") from None
    return folder


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that appears at its path, or replaces the one there, if the block ends without error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replaced(f"{folder}/a.txt") as file:
    ...         count = file.write(b"complete")
    ...     Path(f"{folder}/a.txt").read_text()
    'complete'
    """
    shown = Path(path)
    target = Path(os.path.realpath(shown))  # a link is followed, not replaced
    if target.is_dir():
        raise FileError(f"{shown} is a folder; give the name of a file in it.")
    if not target.parent.is_dir():
        there = next(place for place in target.parents if place.exists())
        if not there.is_dir():
            raise FileError(f"{shown} cannot be written: {there} is a file, not a folder.")
        raise FileError(f"There is no folder {shown.parent}; make it first.")
    with writing(shown):
        if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
            with target.open("wb") as file:
                yield file
            return
        remove_drafts(target.parent, f".{target.name}.")
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_DRAFT}")
        unnamed = _unnamed(target.parent)
        try:
            with unnamed or _named(draft) as file:
                _lock(file)
                yield file
                file.flush()
                if unnamed is not None:
                    _name(unnamed, draft)
                if os.name == "nt":  # where a file that is open cannot be renamed
                    file.close()
                draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str] | BinaryIO) -> Iterator[IO[bytes]]:
    """A file to write to: the given one if it is open, and else one as of ``replaced``."""
    if isinstance(path, str | os.PathLike):
        with replaced(path) as file:
            yield file
    else:
        yield path


def _unnamed(folder: Path) -> IO[bytes] | None:
    """A file without a name, which vanishes with its process; None where it is not supported."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or os.link not in os.supports_dir_fd or not _FILES.is_dir():
        return None
    try:
        return os.fdopen(os.open(folder, flag | os.O_RDWR, 0o666), "wb")
    except OSError:  # the file system does not support it, or the named file fails as well
        return None


def _name(file: IO[bytes], path: Path) -> None:
    """Give a name to a file without one."""
    number = file.fileno()
    # The link in /proc is followed only if a folder is given, although the path is absolute.
    os.link(_FILES / str(number), path, src_dir_fd=number, follow_symlinks=True)


def _named(draft: Path) -> IO[bytes]:
    """A locked file with a temporary name."""
    for _ in range(_ATTEMPTS):
        file = draft.open("xb")
        # Whoever removes leftovers may have found the file before it was locked.
        if _lock(file) and draft.exists():
            return file
        if draft.exists():  # the file system has no locks, or the file is about to be removed
            time.sleep(_PAUSE)
            if draft.exists():
                return file
        file.close()
    return draft.open("xb")


def remove_drafts(folder: Path, prefix: str = ".") -> None:
    """Remove temporary files of killed processes, which hold no lock; prefix: of their names."""
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if path.name.startswith(prefix)]
        for draft in (path for path in found if path.suffix == _DRAFT and path.is_file()):
            with contextlib.suppress(OSError), draft.open("rb") as file:
                if _lock(file):
                    draft.unlink()


def _lock(file: IO[Any]) -> bool:
    """Lock a file until it is closed; returns False if that fails."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be removed anyway
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
