"""From the arguments of ``view`` to a session; an error says that matplotlib is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from torch import nn

from splinecam._util.text import how_to_install
from splinecam.errors import SplineCamError
from splinecam.files.loading import loaded
from splinecam.geometry.domain import Domain
from splinecam.partitions.captured import Captured
from splinecam.partitions.partition import Partition
from splinecam.tiles.atlas import Atlas
from splinecam.training.runs import Run
from splinecam.training.watching import Watch
from splinecam.viewer.panes import MAX_REGIONS, SceneOptions, panes_of
from splinecam.viewer.view_state import browser_state, checked_state

if TYPE_CHECKING:
    from splinecam.viewer.session import Session


_OWN = "given"  # the name of a colouring by an array
# The names of subjects in the code that recreates a view.
_CALLED: tuple[tuple[Any, str], ...] = (
    (Partition, "part"),
    (Atlas, "atlas"),
    (nn.Module, "model"),
    (Captured, "network"),
    (Domain, "domain"),
    (Run, "run"),
    (Watch, "watch"),
    (Sequence, "parts"),
)


def session_of(
    subjects: Sequence[Any],
    *,
    color: Any = None,
    frames: Sequence[str] | None = None,
    max_regions: float = MAX_REGIONS,
    state: Mapping[str, Any] | None = None,
    **options: Any,
) -> Session:
    """Return the session of what is shown; options: of ``view``."""
    try:
        from splinecam.viewer.scene import scene_answer
        from splinecam.viewer.session import Session
        from splinecam.viewer.surfaces import has_surfaces, surface_session
    except ImportError as error:
        raise missing_package("The viewer needs matplotlib for its colours", error) from error
    if has_surfaces(subjects):
        options |= {"color": color, "frames": frames, "state": state}
        chosen = {name: value for name, value in options.items() if value is not None}
        return surface_session(subjects, **chosen)
    given = ("memory", "device", "smooth")
    computed: dict[str, Any] = {name: options.pop(name) for name in given if name in options}
    if "names" in options:
        computed["names"] = options["names"]
    panes = panes_of(_paired(subjects), labels=frames, max_regions=max_regions, **computed)
    known = {each.name for each in fields(SceneOptions)}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(
            f"a viewer has no option {unknown[0]!r}: see sc.view for its options; lines, "
            "legends and axes of part.plot are chosen in the page"
        )
    if color is not None and not isinstance(color, str):
        options["colors"] = {_OWN: color, **options.get("colors", {})}
        color = _OWN
    options.setdefault("python", _python(subjects))
    opening = browser_state(checked_state(state or {}))
    session = Session(panes, SceneOptions(color=color, state=opening, **options))
    headers = scene_answer(panes, session.options).message["panes"]
    output, most = session.options.output, max(pane["outputCount"] for pane in headers)
    if output is not None and not 0 <= output < most:
        raise ValueError(f"output is {output}; there are {most}, numbered from 0")
    return session


def _paired(subjects: Sequence[Any]) -> list[Any]:
    """Return subjects with each model, or its file, beside the next domain."""
    paired, models = list[Any](), list[Any]()
    for subject in map(loaded, subjects):
        if isinstance(subject, nn.Module | Captured):
            models.append(subject)
        elif isinstance(subject, Domain) and models:
            paired += [(model, subject) for model in models]
            models = []
        else:
            paired.append(subject)
    if models:
        raise TypeError("a model is shown on a domain: sc.view(model, domain)")
    return paired


def _python(subjects: Sequence[Any]) -> str:
    """Return the arguments with which ``view`` was called, under usual names."""
    kinds = [next((n for kind, n in _CALLED if isinstance(each, kind)), "") for each in subjects]
    words = []
    for k, (subject, name) in enumerate(zip(subjects, kinds, strict=True)):
        number = f"_{kinds[: k + 1].count(name)}" if kinds.count(name) > 1 else ""
        is_path = isinstance(subject, str | os.PathLike)
        words.append(repr(os.fspath(subject)) if is_path else f"{name}{number}")
    return ", ".join(words)


def missing_package(needs: str, error: ImportError) -> SplineCamError:
    """Return the error that a package is missing, and how to install it."""
    missing = f"{error.name} is not installed" if error.name else str(error)
    return SplineCamError(f"{needs}, and {missing}. Run: {how_to_install('view')}")
