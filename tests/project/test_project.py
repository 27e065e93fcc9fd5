"""The files around the code: versions that agree, links that lead somewhere, valid metadata."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from torch import nn

import splinecam as sc
from splinecam._util.text import how_to_install

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAPER = tomllib.loads((ROOT / "paper" / "pyproject.toml").read_text())["project"]
HOME = PYPROJECT["project"]["urls"]["Homepage"]
PLACES = (  # where files of the repository are found on the web
    f"{HOME}/blob/main/",
    HOME.replace("github.com", "raw.githubusercontent.com") + "/main/",
)
TEXTS = ["README.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"]
SUFFIXES = {".py", ".c", ".h", ".cu"}
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def text(name: str) -> str:
    return (ROOT / name).read_text()


def links(markdown: str) -> set[str]:
    """All targets of links and pictures of a page, but for those in code."""
    prose = re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S)
    prose = re.sub(r"`[^`\n]*`", "``", prose)
    return {*re.findall(r"\]\(([^)\s]+)\)", prose), *re.findall(r'(?:src|href)="([^"]+)"', prose)}


def anchors(page: Path) -> set[str]:
    """The headings of a Markdown page as links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_there(link: str, folder: Path) -> bool:
    """Whether a link into the repository, relative or absolute, leads to something."""
    place = next((place for place in PLACES if link.startswith(place)), None)
    if place is None and urlsplit(link).scheme:
        return not link.startswith(HOME + "/blob")
    path, _, anchor = link.removeprefix(place or "").partition("#")
    target = (ROOT if place else folder) / path
    if anchor and target.suffix == ".md":
        return target.exists() and anchor in anchors(target)
    return target.exists()


# -- the README on the package index ----------------------------------------------------------


@pytest.fixture(scope="module")
def on_the_index() -> str:
    pytest.importorskip("hatch_fancy_pypi_readme")
    words = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_no_relative_link_is_left_on_the_package_index(on_the_index: str) -> None:
    found = links(on_the_index)
    assert len(found) > 20
    assert [link for link in found if not urlsplit(link).scheme and not link.startswith("#")] == []
    assert all(is_there(link, ROOT) for link in found)


@pytest.mark.slow
def test_pictures_are_raw_files_on_the_package_index(on_the_index: str) -> None:
    pictures = re.findall(r'<img src="([^"]+)"', on_the_index)
    assert len(pictures) == text("README.md").count("<img ") > 2
    assert all(picture.startswith(PLACES[1]) for picture in pictures)


@pytest.mark.slow
def test_only_links_differ_on_the_package_index(on_the_index: str) -> None:
    plain = on_the_index
    for place in PLACES:
        plain = plain.replace(place, "")
    assert plain.strip() == text("README.md").strip()


@pytest.mark.parametrize("name", [*TEXTS, "paper/README.md"])
def test_links_lead_somewhere(name: str) -> None:
    folder = (ROOT / name).parent
    assert [link for link in links(text(name)) if not is_there(link, folder)] == []


def test_a_link_that_leads_nowhere_is_seen() -> None:
    assert not is_there("docs/nothing.md", ROOT)
    assert not is_there("docs/notation.md#nothing", ROOT)
    assert not is_there(PLACES[0] + "nothing.md", ROOT)
    assert is_there(PLACES[0] + "docs/notation.md#tolerances", ROOT)


# -- metadata -----------------------------------------------------------------------------------


def test_the_address_is_everywhere_the_same() -> None:
    urls = PYPROJECT["project"]["urls"]
    assert {*urls} == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith(HOME) and is_there(url, ROOT) for url in urls.values())
    paths = [*TEXTS, "CITATION.cff", *(str(path.relative_to(ROOT)) for path in TEMPLATES)]
    for name in paths:
        for found in re.findall(r"https://github\.com/splinecam/[\w.-]+", text(name)):
            assert found == HOME, name


def test_versions_agree() -> None:
    version = PYPROJECT["project"]["version"]
    assert version == sc.__version__ == PAPER["version"]
    assert re.search(rf"^version: {re.escape(version)}$", text("CITATION.cff"), re.M)
    titles = re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.M)
    assert titles[:2] == ["Unreleased", version]


def test_the_changelog_has_the_sections_of_keep_a_changelog() -> None:
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for part in text("CHANGELOG.md").split("\n## ")[1:]:
        sections = re.findall(r"^### (.+)$", part, re.M)
        assert sections
        assert {*sections} <= known
        assert len({*sections}) == len(sections)


def test_everything_that_is_pinned_is_wanted_and_the_extras_are_documented() -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in text("constraints.txt").splitlines()
        if not line.startswith("#")
    }
    extras = PYPROJECT["project"]["optional-dependencies"]
    names = [*PAPER["dependencies"], *(name for names in extras.values() for name in names)]
    wanted = {re.split(r"[<>=\[ ]", name)[0].lower() for name in names}
    assert wanted - {"splinecam"} <= pinned
    assert all(f"| `{extra}` |" in text("docs/install.md") for extra in extras)


def test_the_source_distribution_has_the_files_of_the_project() -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all((ROOT / path.removeprefix("/")).exists() for path in included)
    assert {f"/{name}" for name in [*TEXTS, "CITATION.cff"]} <= {*included}


# -- files for GitHub and for citing ------------------------------------------------------------


def yaml(path: Path) -> Any:
    return pytest.importorskip("yaml").safe_load(path.read_text())


@pytest.mark.slow
def test_the_citation_is_complete() -> None:
    citation = yaml(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    required = {"authors", "cff-version", "message", "title"}
    known = required | {"abstract", "type", "version", "license", "repository-code", "url"}
    known |= {"keywords", "preferred-citation"}
    assert required <= {*citation} <= known
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert citation["keywords"] == PYPROJECT["project"]["keywords"]
    paper = citation["preferred-citation"]
    assert {"authors", "title", "type"} <= {*paper}
    assert paper["type"] == "conference-paper"
    bibtex = " ".join(text("README.md").partition("```bibtex")[2].partition("```")[0].split())
    assert paper["title"] in bibtex
    assert str(paper["year"]) in bibtex
    for author in paper["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in bibtex


def test_the_paper_is_cited_alike_everywhere() -> None:
    cited = {
        text(name).partition("```bibtex")[2].partition("```")[0]
        for name in ("README.md", "docs/index.md")
    }
    assert len(cited) == 1


@pytest.mark.slow
def test_templates_are_forms_that_github_knows() -> None:
    forms = [path for path in TEMPLATES if path.name != "config.yml"]
    assert len(forms) == 3
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    for path in forms:
        form = yaml(path)
        assert (
            {"name", "description", "body"} <= {*form} <= {"name", "description", "body", "labels"}
        )
        asked = [field for field in form["body"] if field["type"] != "markdown"]
        assert asked
        assert {field["type"] for field in form["body"]} <= kinds
        assert len({field["id"] for field in asked}) == len(asked)
        assert all(field["attributes"]["label"] for field in asked)
        assert any(field.get("validations", {}).get("required") for field in asked)
    config = yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")
    contacts = config["contact_links"]
    assert all({*contact} == {"name", "url", "about"} for contact in contacts)
    assert all(is_there(contact["url"], ROOT) for contact in contacts)
    request = text(".github/PULL_REQUEST_TEMPLATE.md")
    assert request.count("- [ ]") >= 4
    assert all(is_there(link, ROOT) for link in links(request))


def test_contributors_are_told_how_things_are_deprecated() -> None:
    told = text("CONTRIBUTING.md").partition("## Deprecation")[2].partition("\n## ")[0]
    assert "DeprecationWarning" in told
    assert "CHANGELOG.md" in told


def test_the_public_face_can_be_held_in_the_head() -> None:
    assert len(sc.__all__) <= 40
    part = sc.partition(nn.ReLU(), sc.Domain.box(-1, 1), progress=False)  # which has fields, too
    assert len([name for name in dir(part) if not name.startswith("_")]) <= 47
    pictures = {"view", "to_html", "movie"}  # whose options are those of matplotlib and of the page
    verbs = [getattr(sc, name) for name in sc.__all__ if name not in pictures]
    long = [
        verb.__name__
        for verb in verbs
        if inspect.isfunction(verb) and len(inspect.signature(verb).parameters) > 10
    ]
    assert long == []


@pytest.mark.slow
def test_only_pictures_need_matplotlib() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import splinecam as sc; from torch import nn\n"
        "part = sc.partition(nn.Linear(2, 2), sc.Domain.box(-1, 1))\n"
        "part._repr_html_(), part.stats(), sc.results.Atlas, sc.watch, sc.grid, sc.sweep\n"
        "part.plot()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Plotting needs matplotlib" in done.stderr.splitlines()[-1]


# -- the code -----------------------------------------------------------------------------------

FOLDERS = [ROOT / "src", ROOT / "paper" / "src"]
SOURCES = [path for root in FOLDERS for path in sorted(root.rglob("*")) if path.suffix in SUFFIXES]
FUNCTION = re.compile(r"^[A-Za-z_][\w\s*]*?\b(\w+)\(([^;{}()]*)\)\s*\{", re.M)


def test_files_have_at_most_700_lines_unless_a_comment_says_why() -> None:
    texts = {path.name: path.read_text().splitlines() for path in SOURCES}
    long = {name: lines for name, lines in texts.items() if len(lines) > 700}
    marked = {name for name in long if re.search(r"\blong: \w", "\n".join(long[name][:20]))}
    assert {*long} - marked == set()


def test_functions_in_c_have_at_most_10_parameters() -> None:  # those in Python: see ruff's PLR0913
    found = 0
    for path in SOURCES:
        if path.suffix != ".py":
            code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
            for name, parameters in FUNCTION.findall(code):
                assert parameters.count(",") < 10, f"{path.name}: {name}"
                found += 1
    assert found > 50


def test_the_files_that_make_names_are_there() -> None:
    named = re.findall(r"\b(?:tests|benchmarks)/[\w/]+\.py", text("Makefile"))
    assert len(named) > 2
    assert all((ROOT / name).exists() for name in named)


def test_only_the_command_line_knows_of_the_paper() -> None:
    knowing = [
        path for path in (ROOT / "src").rglob("*.py") if "splinecam_paper" in path.read_text()
    ]
    names = sorted(path.relative_to(ROOT / "src" / "splinecam").as_posix() for path in knowing)
    assert names == ["_util/text.py", "cli/commands.py"]


# -- the suite itself ---------------------------------------------------------------------------

CLOCKS = {"time", "timeit", "resource", "psutil", "tracemalloc"}


def test_no_test_looks_at_the_clock_or_at_free_memory() -> None:
    for path in sorted(
        [*(ROOT / "tests").rglob("*.py"), *(ROOT / "paper" / "tests").rglob("*.py")]
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                used = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {(node.module or "").partition(".")[0]}
            else:
                continue
            assert not used & CLOCKS, f"{path.name}:{node.lineno}"


def test_what_partitions_may_use_by_default_does_not_depend_on_the_machine() -> None:
    import torch

    from splinecam.engine.plan import free_memory

    assert free_memory(torch.device("cpu")) == int(0.75 * (8 << 30))


@pytest.mark.slow
def test_wheels_are_built_for_every_target_of_the_build_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT))
    import hatch_build

    listed = re.search(r"^TARGETS := (.*)$", text("Makefile"), re.M)
    assert listed is not None
    assert listed[1].split() == [*hatch_build.TARGETS]
    endings = {target: hatch_build._ending(target) for target in hatch_build.TARGETS}
    assert {*endings.values()} == {"so", "dylib", "dll"}
    assert endings["x86_64-windows-gnu"] == "dll"
    folder = ROOT / hatch_build.FOLDER
    assert {path.name for path in folder.glob("*.c")} == {*hatch_build.SOURCES}


# -- hints ---------------------------------------------------------------------------------------


def test_a_hint_to_install_also_names_the_way_from_a_clone() -> None:
    # One function makes the hints of all messages, and pages name the way from a clone.
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    naming = [page for page in pages if re.search(r"install .splinecam\[", page.read_text())]
    names = sorted(page.relative_to(ROOT).as_posix() for page in naming)
    assert names == ["docs/install.md", "src/splinecam/_util/text.py"]
    assert how_to_install("view").endswith(
        "in a clone: pip install -e '.[view]' -c constraints.txt"
    )


def test_extras_that_messages_name_exist() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = re.findall(r"how_to_install\([\"'](\w+)", code)
    named += re.findall(r"\b(?:missing|optional)\(\"[\w. ]+\", f?\"[^\"]+\", \"(\w+)\"", code)
    assert len(named) > 15
    assert set(named) - {"dreams"} <= set(PYPROJECT["project"]["optional-dependencies"])


def test_pages_that_messages_name_are_links() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "src" / "splinecam").rglob("*.py"))
    named = re.findall(r"(\S*)\bdocs/(\S+?\.md)", code)
    assert named
    assert all(place == f'"{PLACES[0]}' for place, _ in named)
    assert all((ROOT / "docs" / page).exists() for _, page in named)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("target", "extras"),
    [("demo", "plot"), ("docs", "docs,examples"), ("test", "test"), ("test-slow", "dev")],
)
def test_make_installs_what_a_target_needs(target: str, extras: str, tmp_path: Path) -> None:
    words = ["make", "-n", target, f"VENV={tmp_path / 'venv'}"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"-e '\.\[(.*)\]'", told) == [extras]
    assert ("-e paper" in told) == (extras == "dev")
