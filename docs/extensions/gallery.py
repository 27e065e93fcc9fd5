"""The directive ``gallery``: every script of examples/ with its picture, its words and its code."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"

# The titles, in the order of the page; scripts that are not named here follow by name.
TITLES = {
    "moons_circles": "Two moons and two circles",
    "training_movie": "A movie of training",
    "digits_cnn": "A convolutional network on digits",
    "generator": "A generator of images",
    "image_fitting": "An image as a network",
    "gelu_band": "The boundary of a smooth classifier, within a proved band",
    "siren": "A network of sines, within a proved error",
    "signed_distance": "A signed distance field",
    "linked_rings": "Surfaces in three dimensions",
    "bunny": "The bunny",
    "pooling": "Max-pooling against average pooling",
    "deep_random": "A deep random network",
    "wide_layer": "One wide layer",
    "wanted_area": "A boundary that encloses a wanted area",
    "wanted_shape": "A shape with a wanted area and perimeter",
    "heated_plate": "A physics loss integrated exactly",
    "boundary": "Boundaries, margins, levels and units",
    "encounter": "Where collision avoidance fails",
    "integrated_gradients": "Integrated gradients without sampling",
    "local_complexity": "How often units switch near images",
    "compression": "What compression does to a network",
    "architectures": "Comparing architectures",
    "definitions": "What is a region?",
}


@dataclass(frozen=True)
class Example:
    """A script, its docstring in paragraphs, and its picture relative to docs/, if there is one."""

    path: Path
    paragraphs: list[str]
    picture: str | None

    @property
    def title(self) -> str:
        """The heading of its section."""
        name = self.path.stem
        return TITLES.get(name, name.replace("_", " ").capitalize())


def examples() -> list[Example]:
    """All scripts with a docstring, in the order of the page."""
    found = []
    for path in sorted(EXAMPLES.glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text()))
        if text:
            found.append(Example(path, text.split("\n\n"), picture_of(path.stem)))
    place = {name: k for k, name in enumerate(TITLES)}
    return sorted(found, key=lambda each: (place.get(each.path.stem, len(place)), each.path.stem))


def picture_of(name: str) -> str | None:
    """The picture or the movie of a script, relative to docs/."""
    places = (f"img/{folder}{name}.{end}" for end in ("gif", "png", "svg") for folder in FOLDERS)
    return next((place for place in places if (DOCS / place).exists()), None)


FOLDERS = ("gallery/", "")
_RUN = re.compile(r"^(Run: )(.*)$", re.M)


class Gallery(SphinxDirective):
    """Writes the sections of the page."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Called where the directive stands."""
        self.env.note_dependency(str(Path(__file__)))
        return [self._section(each) for each in examples()]

    def _section(self, example: Example) -> nodes.Node:
        self.env.note_dependency(str(example.path))
        name = f"examples/{example.path.name}"
        section = nodes.section(ids=[nodes.make_id(example.path.stem)])
        section += nodes.title(text=example.title)
        self._parse(section, example.paragraphs[:1])
        if example.picture:
            # With a width it becomes a link to the picture in full size.
            section += nodes.image(uri=example.picture, alt=example.title, width="100%")
        rest = [_RUN.sub(r"\1``\2``", text) for text in example.paragraphs[1:]]
        if not any(_RUN.search(text) for text in example.paragraphs):
            rest.append(f"Run: ``python {name}``")
        self._parse(section, rest)
        code = nodes.literal_block(text=example.path.read_text(), language="python")
        opening = f"<details><summary>The code of {name}</summary>"
        section += nodes.raw("", opening, format="html")
        section += code
        section += nodes.raw("", "</details>", format="html")
        return section

    def _parse(self, section: nodes.Element, paragraphs: list[str]) -> None:
        """Docstrings are reStructuredText, whatever the page is written in."""
        from docutils.frontend import get_default_settings
        from docutils.parsers.rst import Parser
        from docutils.utils import new_document

        document = new_document("docstring", get_default_settings(Parser))
        Parser().parse("\n\n".join(paragraphs), document)
        section += [child.deepcopy() for child in document.children]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
