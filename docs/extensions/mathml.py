"""Formulas as MathML, which browsers draw themselves: no scripts, no fonts, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    translator.body.append(_compact(tex2mathml(node.astext())))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    translator.body.append('<div class="formula">')
    translator.body.append(_compact(tex2mathml(node.astext(), as_block=True)))
    translator.body.append("</div>")
    raise nodes.SkipNode


def _compact(markup: str) -> str:
    return "".join(line.strip() for line in markup.splitlines())


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
