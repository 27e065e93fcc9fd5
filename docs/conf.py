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
    "sphinx.ext.intersphinx",
    "myst_parser",
    "sphinx_copybutton",
    "docstrings",
    "gallery",
    "live",
    "mathml",
]
if not tags.has("tests"):  # noqa: F821
    extensions.append("sphinx.ext.viewcode")  # half of all pages, none of which we write
exclude_patterns = ["extensions", "inventories", "_build"]
nitpicky = True
# Names that only say which strings or arrays are meant, and parts that have no page of their own.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(splinecam\.questions\.partition_data\.)?PartitionData",
    ),
    (
        "py:.*",
        r"splinecam\.(jobs\.\w+\._Options|questions\.(winners|constraints)|_util\.bvh|network\.(ops\.register|program)|testing\.oracle)(\..*)?",
    ),
    (
        "py:.*",
        r"(AffineMaps|AxesStyle|Curvature|Cuts|Mesh|Every|Field|Floats|Formula|Model|Options|FewOptions|Refine|Output|Point|Title|Program|Regions|Kind|Shown|Units|Extrapolate|Columns|Heights|Space|Integrand|Levels|Winner|optional)",
    ),
]

# The names of other projects that this site refers to, in plain text: nothing is downloaded.
intersphinx_mapping = {
    name: (address, f"inventories/{name}.inv")
    for name, address in {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "torch": "https://docs.pytorch.org/docs/stable",
        "matplotlib": "https://matplotlib.org/stable",
        "pandas": "https://pandas.pydata.org/docs",
    }.items()
}
intersphinx_disabled_reftypes = ["std:*"]

# What is copied from a session or a terminal is what one types.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

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
