"""The pages of the viewer: one for the server, and one in a file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from splinecam._util.files import opened
from splinecam.viewer.container import archive, deflated
from splinecam.viewer.subjects import session_of

if TYPE_CHECKING:
    from splinecam.viewer.session import Session

# The page of the server; its script asks for the rest. Its address is secret and must not become a
# referrer. The empty icon keeps the browser from asking for one.
LIVE_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>SplineCam</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
</head>
<body>
<div id="splinecam"></div>
<noscript>The viewer needs JavaScript.</noscript>
<script type="module" src="viewer.js"></script>
</body>
</html>
"""


@cache
def asset(name: str) -> str:
    """Return the text of a built file: ``viewer.js`` or ``style.css``.

    >>> "export" in asset("viewer.js")
    True
    """
    return (files("splinecam.viewer") / "static" / name).read_text(encoding="utf-8")


_REGIONS = 4_000_000  # the most regions of a partition that is computed for a file

HEAD = """\
<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<meta name=color-scheme content="light dark">
<meta http-equiv=Content-Security-Policy content="{policy}">
"""
# The text is for pages that do not start. It comes before anything that could swallow it: a damaged
# quote ends at the quotes in the heading, a damaged end of an element comes later.
_PAGE = (
    HEAD
    + """\
<main id=splinecam>
<h1>"SplineCam"</h1>
<p>This page is opening. If this text stays, the page could not start: the file is damaged or
incomplete, or the browser has no JavaScript or no WebGL2.</p>
</main>
<title>{title}</title>
<style>{style}</style>
<script type=module>{script}</script>
<script type="text/plain" id="splinecam-data">{data}</script>
"""
)
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
# A worker is made of a text in the script. It compiles the kernel, which is in the script as well.
COMPUTING_POLICY = POLICY.replace(
    "'{script}'", "'{script}' 'wasm-unsafe-eval' blob:; worker-src blob:", 1
)


def to_html(
    subject: Any,
    path: str | os.PathLike[str] | BinaryIO,
    *,
    colorings: Sequence[str] | None = None,
    gradients: bool | None = None,
    **options: Any,
) -> None:
    """Write a viewer as one HTML file, which opens offline and asks nothing of anybody.

    It shows what ``sc.view`` shows, as deep as the partitions go: regions, outputs, maps and
    inputs at the cursor, level sets, the curves of units. The file appears only when it is
    complete. It takes about 50 MB for 1,000,000 regions.

    subject: a partition; a list of partitions of one domain, with a slider; a tuple of several,
    side by side; a model and a domain as a tuple; a run of ``sc.watch``, or its folder; a surface
    of ``sc.surface``, or a list of them, with a slider. path: the file, conventionally .html.

    colorings: the names of the colourings in the file, by default all, or fewer for many regions.
    gradients: whether the file holds the derivative of the winning output on each region, by
    default if that is not much. options: of ``sc.view``, such as color, output, level, points,
    labels, images, names, frames, title and state.

    >>> import splinecam as sc, tempfile
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sc.to_html(part, f"{folder}/regions.html", title="Three classes")
    ...     size = os.path.getsize(f"{folder}/regions.html")
    >>> size > 10_000
    True
    """
    subjects = subject if isinstance(subject, tuple) else (subject,)
    options.setdefault("max_regions", _REGIONS)
    session = session_of(subjects, live=False, **options)
    write_page(session, path, colorings=colorings, gradients=gradients)


def write_page(session: Session, path: str | os.PathLike[str] | BinaryIO, **recorded: Any) -> None:
    """Write a session that is not live to a file; recorded: options of ``Recording``."""
    from splinecam.viewer.recording import Recording
    from splinecam.viewer.surfaces import SurfaceSession

    with torch.no_grad():
        if isinstance(session, SurfaceSession):
            given = [name for name, value in recorded.items() if value is not None]
            if given:
                raise TypeError(f"a surface has no option {given[0]!r}")
            page = page_of(session.title, archive(session.recorded()), session.script)
        else:
            recording = Recording(session, **recorded)
            page = page_of(recording.scene.message["title"], archive(recording.answers()))
    with opened(path) as file:
        file.write(page)


def page_of(title: str, data: bytes, name: str = "viewer.js") -> bytes:
    """Return a page with a title and an archive of answers; name: the built script."""
    style, script = (
        in_element(asset("style.css"), "style"),
        in_element(asset(name), "script"),
    )
    policy = (POLICY if name == "viewer.js" else COMPUTING_POLICY).format(
        script=fingerprint_of(script), style=fingerprint_of(style)
    )
    before, after = _PAGE.split("{data}")
    before = before.format(policy=policy, title=html.escape(title), style=style, script=script)
    text = base64.b64encode(deflated(data))
    return b"".join([before.encode(errors="replace"), text, after.encode()])


def in_element(text: str, name: str) -> str:
    """Return a built file as the text of an element ``style`` or ``script``."""
    # What would end the element occurs only in texts, where the escaped form means the same.
    escaped = text.replace("\r\n", "\n").replace(f"</{name}", f"<\\/{name}")
    return escaped.replace("<!--", "<\\!--") if name == "script" else escaped


def fingerprint_of(text: str) -> str:
    """Return the fingerprint by which a policy allows an element of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
