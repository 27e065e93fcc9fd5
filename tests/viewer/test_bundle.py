"""The viewer's bundle is part of the package: it is up to date, small, and calls nobody."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "viewer"
STATIC = files("splinecam.viewer") / "static"
KILOBYTES = 100
# Names of XML that look like addresses and are never fetched.
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}


def fingerprint(folder: Path) -> str:
    """What build.mjs writes into SOURCES."""
    found = hashlib.sha256()
    names = [path.relative_to(folder).as_posix() for path in (folder / "src").rglob("*")]
    for name in sorted(["build.mjs", "package-lock.json", "kernel/kernel.wasm", *names]):
        if (folder / name).is_file():
            found.update(f"{name}\0".encode() + (folder / name).read_bytes() + b"\0")
    return found.hexdigest()


@pytest.mark.skipif(not SOURCES.exists(), reason="the sources of the viewer are not here")
def test_the_bundle_is_built_from_these_sources() -> None:
    built = (STATIC / "SOURCES").read_text().strip()
    assert built == fingerprint(SOURCES), "viewer/ has changed: run `make viewer` and commit it"


def test_the_bundle_is_small() -> None:
    """As bundles are weighed: compressed, as a web server sends them."""
    for script in ("viewer.js", "surface.js"):
        both = [(STATIC / name).read_bytes() for name in (script, "style.css")]
        assert sum(len(gzip.compress(content)) for content in both) <= KILOBYTES * 1000


def test_the_bundle_names_no_other_place() -> None:
    for name in ("viewer.js", "surface.js", "style.css"):
        text = (STATIC / name).read_text()
        assert set(re.findall(r"(?:https?|wss?)://[\w./-]+", text)) <= NAMESPACES
        assert "@import" not in text
        assert "innerHTML" not in text
        assert not re.search(r"\beval\(|\bnew Function\(", text)
