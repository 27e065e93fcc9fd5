"""The built files of the viewer, which come with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["asset", "live_page"]

# The address of the page is secret: it goes to nobody as the referrer. The empty icon keeps the
# browser from asking for one.
_PAGE = """\
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
    """The text of a built file: ``viewer.js`` or ``style.css``.

    >>> "export" in asset("viewer.js")
    True
    """
    return (files("splinecam.viewer") / "static" / name).read_text(encoding="utf-8")


def live_page() -> str:
    """The page that a server gives to the browser, where the script asks for the rest."""
    return _PAGE
