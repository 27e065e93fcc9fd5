"""Where Python runs: in a notebook, at a prompt or in a script, and whether a browser can open."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from typing import Any

from splinecam._util import progress


def in_marimo() -> bool:
    """Return whether a cell of marimo runs."""
    marimo: Any = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def in_notebook() -> bool:
    """Return whether a notebook shows values: Jupyter, VS Code, Colab or marimo."""
    return progress.in_notebook() or in_marimo()


def is_interactive() -> bool:
    """Return whether somebody types at a prompt, and the process lives on."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or in_notebook()


def open_browser(url: str) -> bool:
    """Open a page in a browser with windows; return whether there is one."""
    if not has_screen(os.environ, sys.platform):
        return False
    try:
        return webbrowser.open(url)
    except (OSError, webbrowser.Error):
        return False


def has_screen(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser with windows can open; one in a terminal cannot show the viewer.

    >>> has_screen({}, "linux"), has_screen({"DISPLAY": ":0"}, "linux"), has_screen({}, "darwin")
    (False, True, True)
    """
    if platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in environment or "BROWSER" in environment
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
