"""The live pages of the site, and links to experiments.

The directive ``live`` shows a page in a frame. Every page ends with a link to an experiment in the
playground that fits it.
"""

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

# What one can try in the playground beside a page: the end of its address, and what it shows.
EXPERIMENTS = {
    "what_is_a_region": ("layers=6", "six units draw six lines"),
    "mathematics": ("layers=8,8", "a second layer folds the lines of the first"),
    "algorithm": ("layers=8,8&color=layer", "which layer cut a region last"),
    "exactness": (
        "layers=12,12&init=zero-bias",
        "units without biases, whose lines meet in one point",
    ),
    "scaling": ("layers=32,32,32&color=area", "thousands of regions"),
    "nn": ("activation=maxout", "maxout in place of ReLU"),
    "howto/implicit": ("data=star&layers=24,24&color=output", "the distance to a star"),
    "howto/surfaces": ("data=star&layers=24,24&color=output", "the distance to a star"),
    "howto/smooth": ("activation=gelu", "GELU, which has no linear regions"),
    "howto/compare": ("data=checkerboard&layers=48", "one wide layer on a checkerboard"),
    "howto/training": ("data=rings", "regions around two rings while a network learns them"),
}
USUAL = ("", "a network that learns two spirals")


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


def add_experiment(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """End a page that somebody wrote with a link to an experiment."""
    if app.builder.format == "html" and context.get("body") and "playground" not in page:
        address, what = EXPERIMENTS.get(page, USUAL)
        target = (
            "../" * page.count("/") + "live/playground.html" + (address and f"#{escape(address)}")
        )
        context["body"] += (
            f'<p class="live">Try it in your browser: <a href="{target}">{what}</a></p>'
        )


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
    app.connect("html-page-context", add_experiment)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True}
