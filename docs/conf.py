"""How Sphinx builds the site: furo, Markdown by myst-parser, nothing from the network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]

import splinecam  # noqa: E402

project = "SplineCam"
author = "SplineCam developers"
copyright = "SplineCam developers, MIT licence"  # noqa: A001
release = version = splinecam.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "myst_parser",
    "docstrings",
    "gallery",
    "mathml",
]
exclude_patterns = ["extensions", "_build"]
nitpicky = True
# Names of other libraries, and of types that only say which strings or arrays are meant.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|nn|np|numpy|matplotlib|collections|fractions|numbers|os|typing)\..*"),
    ("py:.*", r"splinecam\.(winners|tree|ops\.register|oracle)(\..*)?"),
    (
        "py:.*",
        r"(AffineMaps|Tensor|Axes|Axes3D|AxesStyle|Floats|Figure|SubFigure|Program|Regions|Kind|Extrapolate|optional)",
    ),
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "SplineCam"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072B2",
        "color-brand-content": "#00639c",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', sans-serif",
    },
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#7cc4ee"},
}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
