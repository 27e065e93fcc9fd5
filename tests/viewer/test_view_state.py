"""The state of a view, as Python and the browser write it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from splinecam.viewer.view_state import KEYS, browser_state, checked_state, state_of_browser

SOURCE = Path(__file__).parents[2] / "viewer" / "src" / "state.ts"

# A state in the spelling of the browser, with all that it holds.
WHOLE: dict[str, Any] = {
    "center": [0.25, -1e-9],
    "width": 0.0,
    "color": "class",
    "output": None,
    "frame": 3,
    "edges": True,
    "hiddenLayers": [0, 2],
    "edgeWidth": 1.5,
    "boundary": False,
    "band": False,
    "levelSet": True,
    "level": -0.5,
    "points": True,
    "thumbnails": False,
    "theme": "dark",
    "selected": {"pane": 0, "at": [0.5, 0.5]},
    "compared": None,
}

WRONG = [
    ("center", 1),
    ("center", (1, 2, 3)),
    ("center", "ab"),
    ("center", (float("nan"), 0)),
    ("width", -1),
    ("width", True),
    ("width", "1"),
    ("width", float("inf")),
    ("color", 3),
    ("color", None),
    ("output", -1),
    ("output", 0.5),
    ("frame", True),
    ("edges", 1),
    ("hidden_layers", 0),
    ("hidden_layers", "0"),
    ("hidden_layers", [-1]),
    ("edge_width", None),
    ("level", float("nan")),
    ("theme", "blue"),
    ("theme", ["dark"]),
    ("selected", (0, 1)),
    ("selected", {"pane": 0}),
    ("selected", {"pane": 0, "at": (0, 0), "more": 1}),
    ("compared", {"pane": -1, "at": (0, 0)}),
]


def test_both_sides_have_the_same_state() -> None:
    interface = re.search(r"interface ViewState \{(.*?)\n\}", SOURCE.read_text(), re.S)
    assert interface is not None
    names = re.findall(r"^  (\w+):", interface[1], re.M)
    assert names == [*WHOLE]
    assert [*browser_state(dict.fromkeys(KEYS))] == names


def test_a_state_goes_to_the_browser_and_back() -> None:
    state = state_of_browser(WHOLE)
    assert [*state] == [*KEYS]
    assert browser_state(state) == WHOLE
    assert checked_state(state) == state


def test_arrays_are_plain_numbers() -> None:
    given = {
        "center": torch.tensor([1.0, 2.0], dtype=torch.float64),
        "width": np.float32(0.5),
        "frame": np.int64(1),
        "edges": np.bool_(True),
        "hidden_layers": np.array([1]),
        "selected": {"pane": 0, "at": np.zeros(2)},
    }
    state = checked_state(given)
    assert state["center"] == [1.0, 2.0]
    assert state["selected"] == {"pane": 0, "at": [0.0, 0.0]}
    assert [type(state[key]) for key in ("width", "frame", "edges")] == [float, int, bool]
    assert type(state["hidden_layers"][0]) is int


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_wrong_values(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{key} is .*, not "):
        checked_state({key: value})


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="has no 'colour'; it has center, width, color"):
        checked_state({"colour": "slope"})
    with pytest.raises(ValueError, match="has no '__proto__'"):
        state_of_browser({"__proto__": 1})
    for state in (None, [], "width", 3):
        with pytest.raises(TypeError):
            state_of_browser(state)
