"""The live pages of the site, and the directive ``live``, which shows one of them in a frame."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]


class Live(SphinxDirective):
    """A live page in a frame, with a link that opens it alone."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"title": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """The frame and the link; other builders than HTML leave both out."""
        title = escape(self.options["title"])
        above = "../" * self.env.docname.count("/")
        address = escape(f"{above}live/{self.arguments[0]}.html")
        shown = (
            f'<iframe class="live" src="{address}" title="{title}" loading="lazy" '
            'sandbox="allow-scripts allow-downloads"></iframe>'
            f'<p class="live"><a href="{address}">Open it alone</a></p>'
        )
        return [nodes.raw("", shown, format="html")]


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the live pages beside the site, but for those that are there already."""
    folder = Path(app.outdir) / "live"
    if error is not None or app.builder.format != "html":
        return
    sys.path.insert(0, str(DOCS))
    import live_pages

    live_pages.write_missing(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the pages."""
    app.add_directive("live", Live)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True}
