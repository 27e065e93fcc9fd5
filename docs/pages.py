"""The Python code of Markdown pages: run it, and write its output and pictures into the pages.

A block of ``text`` right after a block of ``python`` is what the code prints. Pictures that a page
shows from ``img/pages/`` are files that its code saves. ``python docs/pages.py [PAGE ...]`` runs
pages and writes both anew; the tests run them and compare.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PICTURES = DOCS / "img" / "pages"

_BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.M | re.S)
_PICTURE = re.compile(r"img/pages/([\w.-]+)")


@dataclass(frozen=True)
class Block:
    """Code on a page, what the page says that it prints, and where on the page this stands."""

    code: str
    line: int
    printed: str | None
    place: tuple[int, int]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of Python code of a page, in order."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        yield Block(match[1], line, match[2], match.span(2))


def pictures(page: Path) -> set[str]:
    """The names of the files in ``img/pages`` that a page shows."""
    return set(_PICTURE.findall(page.read_text()))


def run(page: Path, folder: Path) -> list[str]:
    """Run a page from top to bottom in a folder; what each block printed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scope: dict[str, Any] = {"__name__": "__page__"}
    printed = []
    with chdir(folder), plt.rc_context():
        for block in blocks(page):
            # Errors are reported with the page's own line numbers.
            code = compile("\n" * block.line + block.code, str(page), "exec")
            with redirect_stdout(io.StringIO()) as out:
                exec(code, scope)
            printed.append(out.getvalue())
    plt.close("all")
    return printed


def refresh(page: Path) -> None:
    """Run a page, and put what it prints and draws where the page shows it."""
    with TemporaryDirectory() as name:
        printed = run(page, Path(name))
        PICTURES.mkdir(exist_ok=True)
        for picture in pictures(page):
            shutil.copy(Path(name) / picture, PICTURES / picture)
    text = page.read_text()
    for block, output in reversed(list(zip(blocks(page), printed, strict=True))):
        if block.printed is not None:
            start, end = block.place
            text = text[:start] + output + text[end:]
    page.write_text(text)


def all_pages() -> list[Path]:
    """The README and the pages of the documentation that have code."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in found if next(blocks(page), None)]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(ROOT / "src"))
    for each in [Path(arg).resolve() for arg in sys.argv[1:]] or all_pages():
        refresh(each)
