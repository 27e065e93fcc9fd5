"""Claims of processes on parts of the work, which end with the process that holds them.

A claim is a lock on a range of bytes of an empty file: byte k stands for result k. The system
releases the locks of a killed process, also on another machine that shares the folder. Where a file
system has no locks every claim succeeds: then two processes may compute the same result, and the
later one replaces the earlier one.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from splinecam._util.files import writing
from splinecam.errors import FileError
from splinecam.stores.untrusted import inside

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_WHOLE = 1 << 40  # the byte that stands for the store itself


class Claims:
    """The claims of one process in a folder; they end with ``close``, or with this object.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claims = Claims(Path(folder))
    ...     found = claims.take(0, 10)
    ...     claims.close()
    >>> found
    True
    """

    def __init__(self, folder: Path) -> None:
        self._folder, path = folder, inside(folder, ".claims")
        with writing(path):
            self._number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, self._number)

    def take(self, start: int, stop: int) -> bool:
        """Claim the results from start to stop; False if another process has some of them."""
        return self._lock(start, stop - start, wait=False)

    def take_all(self, noun: str) -> None:
        """Claim a store that only one process at a time may write; noun: its name in the error."""
        if not self.take(0, _WHOLE):
            raise FileError(
                f"Another process writes {noun} in {self._folder}. Wait until it has ended, or "
                "choose another folder."
            )

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Wait until this process alone changes what the whole store has in common."""
        self._lock(_WHOLE, 1, wait=True)
        try:
            yield
        finally:
            self._unlock(_WHOLE, 1)

    def release(self) -> None:
        """End all claims."""
        self._unlock(0, _WHOLE)

    def close(self) -> None:
        """End all claims, and close their file."""
        self._close()

    def _lock(self, start: int, count: int, *, wait: bool) -> bool:
        if fcntl is None:
            return True
        try:
            how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.lockf(self._number, how, count, start)
        except (BlockingIOError, PermissionError):  # another process has it
            return False
        except OSError:  # the file system has no locks
            return True
        return True

    def _unlock(self, start: int, count: int) -> None:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._number, fcntl.LOCK_UN, count, start)
