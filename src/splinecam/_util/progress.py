"""Report progress: a bar in interactive use, and the log."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm

log = logging.getLogger("splinecam")

_HIDDEN: tqdm[Any] = tqdm(disable=True)  # does nothing; to make one is a part of a small call


def progress_bar(total: int | None, unit: str, wanted: bool) -> tqdm[Any]:
    """A progress bar, which is shown in interactive use only."""
    if not wanted:
        return _HIDDEN
    notebook = in_notebook()
    interactive = (sys.stderr is not None and sys.stderr.isatty()) or notebook
    bar: Any = tqdm
    if notebook and find_spec("ipywidgets") is not None:  # else tqdm.auto warns
        bar = import_module("tqdm.auto").tqdm
    return bar(total=total, unit=unit, disable=not interactive, leave=False)


def in_notebook() -> bool:
    """Whether the code runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def tell(bar: tqdm[Any], name: str, regions: int, share: float = 0.0) -> None:
    """Report in the log and in the bar how many regions there are after a share of a layer."""
    text = f"{name}: {regions:,} regions" if regions else name
    log.info("%s", text)
    bar.set_description_str(text)
    bar.update(share)
