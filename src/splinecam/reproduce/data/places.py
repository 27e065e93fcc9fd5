"""Where data may lie on this machine, and what to say when it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from splinecam.errors import DataError

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
