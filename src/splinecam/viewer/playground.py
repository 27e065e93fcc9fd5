"""The playground as one HTML file: it trains small networks and computes their regions itself."""

from __future__ import annotations

import os
from typing import BinaryIO

from splinecam._util.files import opened
from splinecam.viewer.page import COMPUTING_POLICY, HEAD, asset, fingerprint_of, in_element

_PAGE = (
    HEAD
    + """\
<meta name=description content="Train a small network and see its exact linear regions.">
<title>SplineCam playground</title>
<link rel=icon href="data:,">
<style>{style}</style>
<div id=playground>
<p>The playground is opening. If this text stays, the browser has no JavaScript or no WebGL2.</p>
</div>
<script type=module>{script}</script>
"""
)


def playground_page() -> str:
    """Return the text of the page.

    >>> "<script" in playground_page()
    True
    """
    style = in_element(asset("playground-style.css"), "style")
    script = in_element(asset("playground.js"), "script")
    policy = COMPUTING_POLICY.format(script=fingerprint_of(script), style=fingerprint_of(style))
    return _PAGE.format(policy=policy, style=style, script=script)


def write_playground(path: str | os.PathLike[str] | BinaryIO) -> None:
    """Write the playground to a file, which opens offline and asks nothing of anybody.

    >>> import io
    >>> page = io.BytesIO()
    >>> write_playground(page)
    >>> page.getvalue()[:15]
    b'<!doctype html>'
    """
    with opened(path) as file:
        file.write(playground_page().encode())
