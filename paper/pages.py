"""The results of ``splinecam reproduce``, put into the pages of the paper's experiments.

``python paper/pages.py FOLDER`` takes the figures and numbers of full runs from a folder and
keeps small copies of them in ``docs/paper/results``. It writes the figures, the tables and the
table of speed anew where the pages have the marks ``<!-- results -->`` and ``<!-- speed -->``.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAPER = Path(__file__).parents[1] / "docs" / "paper"
RESULTS = PAPER / "results"
sys.path[:0] = [str(PAPER.parents[1] / "src"), str(Path(__file__).parent / "src")]

from splinecam._util.text import TextTable, number_text  # noqa: E402
from splinecam_paper.experiment import NAMES, foot, table  # noqa: E402

WIDE, SMALLEST = 1600, 700  # pixels across a figure: at most, and at least
HEAVY = 300_000  # bytes of a figure
LONG = 100_000  # characters of numbers
MOVIE = 2_500_000  # bytes of a movie


def refresh(folder: Path) -> list[str]:
    """Copy the results of a folder, and write the pages anew; the names of the experiments."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = []
    for name in NAMES:
        for path in sorted(folder.rglob(f"{name}.json"))[:1]:
            found.append(name)
            content = shortened(json.loads(path.read_text(encoding="utf-8")))
            write(RESULTS / f"{name}.json", json.dumps(content, indent=1) + "\n")
            for old in figures(name):
                old.unlink()
            for figure in sorted([path.with_suffix(".png"), *path.parent.glob(f"{name}-*.png")]):
                kind, picture = reduced(figure)
                (RESULTS / f"{figure.stem}.{kind}").write_bytes(picture)
            movie = path.with_suffix(".gif")
            if movie.is_file() and movie.stat().st_size <= MOVIE:
                (RESULTS / movie.name).write_bytes(movie.read_bytes())
    for page in pages():
        write(page, with_results(page))
    return found


def pages() -> list[Path]:
    """The pages of the paper, of those experiments that have one, and the first page."""
    known = [PAPER / "index.md", *(PAPER / f"{name}.md" for name in NAMES)]
    return [page for page in known if page.is_file()]


def with_results(page: Path) -> str:
    """The text of a page with its results, as the files in ``results`` give them."""
    text = page.read_text(encoding="utf-8")
    if speeds := speed_table():
        text = between(text, "speed", speeds)
    if (RESULTS / f"{page.stem}.json").is_file():
        text = between(text, "results", section(page.stem))
    return text


def between(text: str, mark: str, new: str) -> str:
    """A text with other words between a mark and its end, if it has the mark."""
    start, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    if start not in text:
        return text
    before, after = text.split(start, 1)
    return f"{before}{start}\n\n{new}\n\n{end}{after.split(end, 1)[-1]}"


def section(name: str) -> str:
    """The figures of an experiment, its table, and the sentences under the table."""
    content = read(name)
    shown = [f"![{caption(content, path)}](results/{path.name})" for path in figures(name)]
    return "\n\n".join([*shown, table(content).markdown(), foot(content)])


def caption(content: dict[str, Any], path: Path) -> str:
    """What a figure shows, for those who do not see it."""
    what = str(content["shows"]).replace("[", "(").replace("]", ")")
    part = path.stem.removeprefix(content["experiment"]).strip("-").replace("-", " ")
    kind = "the movie" if path.suffix == ".gif" else part
    return what[:1].upper() + what[1:] + (f": {kind}" if kind else "")


def figures(name: str) -> list[Path]:
    """The figures of an experiment in ``results``, that of its name first, a movie last."""
    kinds = ("png", "webp")
    first = [RESULTS / f"{name}.{kind}" for kind in kinds]
    others = sorted(path for kind in kinds for path in RESULTS.glob(f"{name}-*.{kind}"))
    return [path for path in (*first, *others, RESULTS / f"{name}.gif") if path.is_file()]


def read(name: str) -> dict[str, Any]:
    """The numbers of an experiment in ``results``."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


_LINK = {ord("["): ord("⟦"), ord("]"): ord("⟧")}


def speed_table() -> str:
    """The seconds of the paper beside ours, from all experiments that measure them."""
    rows = [
        row for name in NAMES if (RESULTS / f"{name}.json").is_file() for row in seconds_rows(name)
    ]
    # Tables show brackets as letters, but here labels are links.
    rows = [(label.translate(_LINK), cells) for label, cells in rows]
    text = TextTable("", ("paper (s)", "ours (s)", "ratio"), rows).markdown() if rows else ""
    return text.translate({value: key for key, value in _LINK.items()})


def seconds_rows(name: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of an experiment that compare seconds."""
    for row in read(name)["rows"]:
        paper, ours = row["paper"], row.get("seconds")
        if row["what"].startswith("seconds") and isinstance(paper, int | float) and ours:
            cells = [number_text(paper), f"{ours:.3g}", f"{paper / ours:,.0f}"]
            yield f"[{name}]({name}.md): {row['what'].removeprefix('seconds').strip(' ,')}", cells


def shortened(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a JSON file, without the longest lists of numbers if it is long."""
    for most in (3000, 1000, 300, 100, 30, 10, 3):
        if len(json.dumps(content, indent=1)) <= LONG:
            break
        content = {**content, "numbers": without_lists(content["numbers"], most)}
    return content


def without_lists(value: Any, most: int) -> Any:
    """A value in which a text replaces each list of more than so many numbers.

    >>> without_lists({"a": [1, 2, 3], "b": [1]}, 2)
    {'a': '3 numbers, left out here', 'b': [1]}
    """
    if isinstance(value, dict):
        return {key: without_lists(item, most) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > most and all(isinstance(item, int | float | None) for item in value):
        return f"{len(value):,} numbers, left out here"
    return [without_lists(item, most) for item in value]


def reduced(path: Path) -> tuple[str, bytes]:
    """A light picture for a page, and its kind: PNG with a palette, or WebP if that is heavy."""
    from PIL import Image

    image = Image.open(path).convert("RGB")
    wide = min(WIDE, image.width)
    while True:
        size = (wide, round(image.height * wide / image.width))
        small = image.resize(size, Image.Resampling.LANCZOS) if size != image.size else image
        palette = small.quantize(256, method=Image.Quantize.MAXCOVERAGE)
        png, webp = saved(palette, "png", optimize=True), saved(small, "webp", quality=80, method=6)
        if len(png) <= HEAVY and wide == min(WIDE, image.width):
            return "png", png
        if len(webp) <= HEAVY or wide * 0.85 < SMALLEST:
            return "webp", webp
        wide = round(wide * 0.85)


def saved(image: Any, kind: str, **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def write(path: Path, text: str) -> None:
    """Write a file as UTF-8."""
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("Name the folder with the results: python paper/pages.py FOLDER")
    refresh(Path(sys.argv[1]))
