"""A folder of results, each of which belongs to a domain, with a manifest about all of them.

``manifest.json``          the head of the store; its identity is what all results have in common:
                           the version of SplineCam, the model, the options
``00000128-00000256.npz``  the results number 128 to 255, with the digests of their domains
``.claims``                a file without content, on which processes lock what they compute

Files appear only when they are complete. A result in two files is the same in both.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import length_hint
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from splinecam._util.files import made_folder, reason_of, remove_drafts, replaced
from splinecam._util.unpacking import PackedArrays
from splinecam.errors import FileError
from splinecam.stores import manifest
from splinecam.stores.claims import Claims
from splinecam.stores.untrusted import VALUES, Codec, damaged, inside, open_plain, read_arrays

_NAME = re.compile(r"(\d{8,15})-(\d{8,15})\.npz")
MANIFEST = "manifest.json"
_DOMAINS = "domains"  # the array of the digests
_ANEW = "Remove this file: its results are computed again."  # what to do about damage
# What decoding raises where arrays hold no results.
_DECODING = (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError)


class ResultStore:
    """The results in a folder, which is made, or continued if it has the same manifest.

    about: what all results have in common; a ``FileError`` says how those in the folder differ.
    notes: further entries of a new manifest. codec: how results are kept in files. done: the file
    of each result, by its number.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        notes: Mapping[str, Any] | None = None,
        codec: Codec = VALUES,
    ) -> None:
        self.folder, self.codec = folder, codec
        self.done: dict[int, Path] = {}
        self._listed: set[Path] = set()
        self.claims = Claims(made_folder(folder))
        with self.claims.whole():
            remove_drafts(folder)
            there = manifest.read_manifest(folder / MANIFEST, manifest.RESULTS)
            identity = {"splinecam": manifest.library_version(), **about}
            if there is None:
                manifest.write_manifest(
                    folder / MANIFEST, manifest.RESULTS, {"identity": identity, **(notes or {})}
                )
            else:
                manifest.check_identity(folder, manifest.RESULTS, there["identity"], identity)
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.claims.close()

    def refresh(self) -> None:
        """See which results there are by now, also from other processes."""
        for path in sorted(set(self.folder.iterdir()) - self._listed):
            self._listed.add(path)
            if _NAME.fullmatch(path.name):
                inside(self.folder, path.name)
                numbers, size = _range_of(path), path.stat().st_size if path.exists() else 0
                if len(numbers) * manifest.DIGEST <= size:
                    self.done |= dict.fromkeys(numbers, path)
                else:  # a name alone must not make entries for billions of results
                    self._discard(path, f"{size:,} bytes cannot hold {len(numbers):,} results")

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """The numbers of results that are in no file."""
        return [number for number in numbers if number not in self.done]

    def check(self, digests: Mapping[int, bytes]) -> None:
        """Raise an error unless the results belong to these domains; damaged files are removed."""
        for path in sorted({self.done[k] for k in digests if k in self.done}):
            arrays = self._arrays(path, (_DOMAINS,))
            if arrays is not None:
                self._compare(path, arrays[_DOMAINS], digests)

    def write(self, first: int, digests: Sequence[bytes], results: Sequence[Any]) -> None:
        """Write results with consecutive numbers to a file of their own."""
        path = self.folder / f"{first:08d}-{first + len(results):08d}.npz"
        domains: Any = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, manifest.DIGEST)
        arrays = {_DOMAINS: domains, **self.codec.encode(results)}
        try:
            with replaced(path) as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
        except FileError as error:
            raise FileError(
                f"{error} What was computed before is kept in {self.folder}: the same call "
                "continues from there."
            ) from error
        self._listed.add(path)
        self.done |= dict.fromkeys(_range_of(path), path)

    def read(self, digests: Mapping[int, bytes]) -> Iterator[Any]:
        """Yield the results of these numbers in order; a missing one raises a ``KeyError``."""
        opened, results, first = None, [], 0
        for number in digests:
            path = self.done[number]
            if path != opened:
                arrays = self._arrays(path)
                if arrays is None:
                    raise FileError(f"{path} was damaged. Call again: it is computed anew.")
                self._compare(path, arrays[_DOMAINS], digests)
                opened, first = path, _range_of(path).start
                results = _decoded(path, self.codec, arrays)
            yield results[number - first]

    def _compare(self, path: Path, there: NDArray[Any], digests: Mapping[int, bytes]) -> None:
        """Raise an error if a result in a file belongs to another domain."""
        for number, digest in zip(_range_of(path), there, strict=True):
            if number in digests and digests[number] != digest.tobytes():
                raise FileError(
                    f"{self.folder} holds results for other domains: domain {number} differs. "
                    "Choose another folder."
                )

    def _arrays(self, path: Path, names: Sequence[str] = ()) -> dict[str, NDArray[Any]] | None:
        """Arrays of a file, by default all; None if it is damaged, and then it is removed."""
        try:
            with open_plain(path) as file:
                content = PackedArrays(file, path)
                found = {name: content[name] for name in names or content}
                if len(found[_DOMAINS]) == len(_range_of(path)):
                    return found
                reason = "it lacks some results"
        except FileNotFoundError:
            reason = "it is gone"
        except FileError:
            raise
        except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            reason = str(error)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason_of(error)}.") from None
        self._discard(path, reason)
        return None

    def _discard(self, path: Path, reason: str) -> None:
        """Remove a damaged file, so that its results are computed anew."""
        warnings.warn(f"{path} is damaged ({reason}); its results are computed anew.", stacklevel=5)
        with contextlib.suppress(OSError):
            path.unlink()
        self._listed.discard(path)
        self.done = {number: file for number, file in self.done.items() if file != path}


def results_in(folder: Path) -> dict[int, Any]:
    """The results that a folder has now by their numbers; nothing is written or checked."""
    found: dict[int, Any] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise FileError(f"{folder} cannot be read: {reason_of(error)}.") from None
    for path in paths:
        results = _decoded(path, VALUES, read_arrays(path, None, _ANEW))
        found |= zip(_range_of(path), results, strict=True)
    return found


def _decoded(path: Path, codec: Codec, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
    """The results in the arrays of a file, as many as its name says."""
    try:
        results = codec.decode(arrays)
    except _DECODING as error:
        raise damaged(path, error, _ANEW) from error
    if len(results) != len(_range_of(path)):
        raise damaged(path, f"it has {len(results):,} results", _ANEW)
    return results


def _range_of(path: Path) -> range:
    """The numbers of the results in a file, which are in its name."""
    start, stop = path.stem.split("-")
    return range(int(start), int(stop))


Compute = Callable[[Iterator[int]], Iterable[tuple[int, Any]]]
"""Takes numbers, computes their results, and yields each result with its number."""

T = TypeVar("T")

_CLAIM = 16  # results that are claimed at a time
_SECONDS = 1.0  # after which results are written
_BYTES = 1 << 28  # of results, after which they are written in any case
_SHARE = 1 / 20  # of the time that writing may take on a slow disk
_PAUSE = 0.2  # seconds between two looks at what other processes compute


def fill(
    store: ResultStore, digests: Mapping[int, bytes], compute: Compute, *, seconds: float = _SECONDS
) -> None:
    """Compute the results that are missing in a store, and write them as they are done.

    What other processes are computing is left to them, and computed here if they end without it.
    In the end all results are in the store, and none of them in memory.

    digests: of the domain of each result, by its number. compute: may take numbers ahead of the
    results that it yields. seconds: how often results are written, if writing does not take long; 0
    writes every result on its own.
    """
    store.check(digests)
    while missing := store.missing(digests):
        done: dict[int, Any] = {}
        waiting, size, due = True, 0, time.monotonic() + seconds
        try:
            for number, result in compute(_Claimed(store, missing)):
                done[number], waiting = result, False
                size += store.codec.size(result)
                if (now := time.monotonic()) >= due or size > _BYTES:
                    _write(store, done, digests)
                    size, took = 0, time.monotonic() - now
                    due = now + took + (max(seconds, took / _SHARE) if seconds else 0.0)
        finally:  # an error does not lose what was done before
            try:
                _write(store, done, digests)
            finally:
                store.claims.release()
        if waiting:  # other processes have claimed all that is missing
            time.sleep(_PAUSE)
        store.refresh()


def _write(store: ResultStore, done: dict[int, Any], digests: Mapping[int, bytes]) -> None:
    """Write results, a file for each run of consecutive numbers, and forget them."""
    numbers = sorted(done)
    starts = [k for k, n in enumerate(numbers) if not k or numbers[k - 1] != n - 1]
    for start, stop in pairwise([*starts, len(numbers)]):
        some = numbers[start:stop]
        store.write(some[0], [digests[n] for n in some], [done[n] for n in some])
    done.clear()


class Taken(Iterator[T]):
    """The items whose numbers come next; each number is taken when its item is asked for.

    first: the number of the first item. numbers: taken so far, in order. There may be fewer items
    than ``__length_hint__`` says: other processes may compute them.

    >>> items = Taken(iter([2, 0]), "abc")
    >>> list(items), items.numbers
    (['c', 'a'], [2, 0])
    """

    def __init__(self, numbers: Iterator[int], items: Sequence[T], first: int = 0) -> None:
        self._coming, self._items, self._first = numbers, items, first
        self.numbers: list[int] = []

    def __next__(self) -> T:
        self.numbers.append(next(self._coming))
        return self._items[self.numbers[-1] - self._first]

    def __length_hint__(self) -> int:
        return length_hint(self._coming)


class _Claimed(Iterator[int]):
    """The missing results that can be claimed; each is claimed when it is asked for."""

    def __init__(self, store: ResultStore, missing: list[int]) -> None:
        self._store, self._waiting = store, deque(missing)
        self._mine: deque[int] = deque()

    def __next__(self) -> int:
        while not self._mine:
            if not self._waiting:
                raise StopIteration
            count = min(_CLAIM, len(self._waiting))
            some = [self._waiting.popleft() for _ in range(count)]
            if self._store.claims.take(some[0], some[-1] + 1):
                self._store.refresh()  # another process may have written it, and ended its claim
                self._mine.extend(self._store.missing(some))
        return self._mine.popleft()

    def __length_hint__(self) -> int:
        return len(self._mine) + len(self._waiting)
