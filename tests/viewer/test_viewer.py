"""Viewers from Python: what opens them, what comes back, and what is set."""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer import surroundings
from splinecam.viewer import viewer as viewing
from splinecam.viewer.container import Message
from splinecam.viewer.panes import Growing, panes_of
from splinecam.viewer.subjects import session_of
from splinecam.viewer.viewer import Viewer
from viewer_messages import unarchive, unpack


def network(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, outputs))


@pytest.fixture
def part() -> sc.Partition:
    return sc.partition(network(), sc.Domain.box(-1, 1), progress=False)


class Page:
    """A door behind which messages are kept."""

    url: str | None = None

    def __init__(self) -> None:
        self.notices: list[dict[str, Any]] = []
        self.told, self.closed = threading.Event(), False

    def notify(self, notice: bytes) -> None:
        self.notices.append(unpack(notice).message)
        self.told.set()

    def wait(self) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def viewer(part: sc.Partition, page: Page) -> Iterator[Viewer]:
    with Viewer(session_of([part])) as found:
        found.open(page)
        yield found


def tell(viewer: Viewer, **request: Any) -> Message:
    """The answer to what a browser tells, as JSON would bring it."""
    return unpack(viewer.session.answer(json.loads(json.dumps(request)), request_id=1))


def select(viewer: Viewer, **change: Any) -> Message:
    request = {
        "ask": "select",
        "pane": 0,
        "frame": 0,
        "mesh": "0/0",
        "region": None,
        "compared": None,
        "at": None,
        "unit": None,
    }
    return tell(viewer, **request | change)


# -- the selection --------------------------------------------------------------------------------


def test_a_selection_holds_objects_of_python(viewer: Viewer, part: sc.Partition) -> None:
    assert not viewer.selection
    assert repr(viewer.selection) == "Selection(nothing)"
    assert viewer.selection.input is None
    place = part.centroids[4]
    answer = select(viewer, region=4, compared=1, at=place.tolist(), unit=[0, 7])
    assert answer.message == {"kind": "ok"}
    found = viewer.selection
    assert found
    assert found.region is not None
    assert found.region.partition is part
    assert (found.region, found.compared) == (part[4], part[1])
    assert found.uv == tuple(place.tolist())
    assert found.unit == ("1", 7)
    assert found.input is not None
    assert found.input.dtype == torch.float32
    assert part.locate(found.input).item() == 4
    assert repr(found).startswith(f"Selection(region 4 of {len(part)}, compared with 1, at (")
    assert repr(found).endswith("layer 1, unit 7)")  # as in the page
    assert repr(found) in repr(viewer)


def test_a_selection_ends(viewer: Viewer) -> None:
    heard: list[Any] = []
    viewer.on_select(heard.append)
    select(viewer, region=0)
    select(viewer)
    assert not viewer.selection
    assert [bool(each) for each in heard] == [True, False]


def test_what_is_told_twice_is_one_selection(viewer: Viewer, part: sc.Partition) -> None:
    heard: list[Any] = []
    viewer.on_select(heard.append)
    place = part.centroids[3].tolist()
    select(viewer, region=3, at=place)
    window = sc.partition(part.model, part.domain.zoom(2, at=place), progress=False)
    viewer.session.keep("0/0/w1", window)
    number = int(window.locate(window.domain.embed(torch.tensor([place], dtype=torch.float64))))
    select(viewer, mesh="0/0/w1", region=number, at=place)
    assert len(heard) == 1
    assert viewer.selection.region == part[3]


def test_an_edge_without_a_region(viewer: Viewer) -> None:
    select(viewer, unit=[0, 2])
    found = viewer.selection
    assert found
    assert (found.region, found.uv, found.input, found.unit) == (None, None, None, ("1", 2))


def test_callbacks_and_their_exceptions(viewer: Viewer, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def fail(selection: object) -> None:
        raise ZeroDivisionError("in the callback")

    ends = [viewer.on_select(each) for each in (fail, heard.append, heard.append)]
    assert select(viewer, region=0).message == {"kind": "ok"}
    assert len(heard) == 2
    assert "in the callback" in caplog.text
    ends[1]()
    ends[1]()  # again
    select(viewer, region=1)
    assert len(heard) == 3
    with pytest.raises(TypeError, match="a callback is a function"):
        viewer.on_select("print")  # type: ignore[arg-type]


def test_a_window_gives_regions_of_the_given_partition(viewer: Viewer, part: sc.Partition) -> None:
    middle = part.centroids[3]
    domain = part.domain.zoom(1000, at=middle)
    window = sc.partition(part.model, domain, progress=False)
    viewer.session.keep("0/0/w1", window)
    select(viewer, mesh="0/0/w1", region=0, compared=0, at=middle.tolist())
    assert viewer.selection.region == viewer.selection.compared == part[3]


def test_a_window_of_a_model_gives_regions_of_the_window() -> None:
    domain = sc.Domain.box(-1, 1)
    viewer = Viewer(session_of([network(), domain]))
    window = sc.partition(network(), domain.zoom(10), progress=False)
    viewer.session.keep("0/0/w1", window)
    select(viewer, mesh="0/0/w1", region=0)
    assert viewer.selection.region == window[0]
    assert viewer.selection.partition is window


def test_another_plane_gives_regions_of_its_partition(viewer: Viewer) -> None:
    moved = sc.partition(network(), sc.Domain.box(0, 3), progress=False)
    viewer.session.keep("0/0/p1", moved)
    select(viewer, mesh="0/0/p1", region=1, at=[2.0, 2.0])
    assert viewer.selection.region == moved[1]


def test_two_panes_are_compared(part: sc.Partition) -> None:
    other = sc.partition(network(), sc.Domain.box(-1, 1), progress=False)
    viewer = Viewer(session_of([part, other]))
    select(viewer, pane=0, region=1, compared=2, comparedMesh="1/0")
    assert (viewer.selection.region, viewer.selection.compared) == (part[1], other[2])


@pytest.mark.parametrize(
    "change",
    [
        {"region": 10**6},
        {"region": -1},
        {"region": "1"},
        {"region": True},
        {"region": 1, "pane": 1},
        {"region": 1, "pane": None},
        {"region": 1, "frame": 5},
        {"region": 1, "mesh": None},
        {"region": 1, "mesh": "0/0/w9"},
        {"region": 1, "mesh": "9/9"},
        {"region": 1, "mesh": "../.."},
        {"region": 1, "at": [1]},
        {"region": 1, "at": ["x", 0]},
        {"region": 1, "at": {"u": 1}},
        {"compared": 10**6},
        {"compared": 1, "comparedMesh": 3},
        {"unit": [9, 0]},
        {"unit": [0]},
        {"unit": "10"},
    ],
)
def test_wrong_selections_change_nothing(viewer: Viewer, change: dict[str, Any]) -> None:
    select(viewer, region=0)
    before = viewer.selection
    assert select(viewer, **change).message["kind"] == "error"
    assert viewer.selection is before


# -- the state ------------------------------------------------------------------------------------


def test_the_state_is_reported(viewer: Viewer, page: Page) -> None:
    assert viewer.state == {}
    answer = tell(viewer, ask="state", state={"levelSet": True, "center": [1, 2]})
    assert answer.message == {"kind": "ok"}
    assert viewer.state == {"level_set": True, "center": [1.0, 2.0]}
    assert page.notices == []
    for wrong in (None, [], {"level_set": True}, {"width": -1}, {"evil": 1}):
        assert tell(viewer, ask="state", state=wrong).message["kind"] == "error"
    assert viewer.state == {"level_set": True, "center": [1.0, 2.0]}


def test_the_state_is_set(viewer: Viewer, page: Page) -> None:
    viewer.set(color="slope", hidden_layers=[0])
    viewer.state = {"width": 0.5}
    assert viewer.state == {"color": "slope", "hidden_layers": [0], "width": 0.5}
    assert page.notices == [
        {"kind": "state", "state": {"color": "slope", "hiddenLayers": [0]}},
        {"kind": "state", "state": {"width": 0.5}},
    ]
    begin = tell(viewer, ask="scene").message["state"]  # of a view that opens later
    assert (begin["color"], begin["hiddenLayers"], begin["width"]) == ("slope", [0], 0.5)
    with pytest.raises(ValueError, match="has no 'colour'"):
        viewer.set(colour="slope")
    viewer.state["width"] = 7  # a copy
    assert viewer.state["width"] == 0.5


def test_the_state_at_the_beginning(part: sc.Partition) -> None:
    options = {"color": "output", "output": 2, "level": 0.5, "state": {"edge_width": 2}}
    viewer = Viewer(session_of([part], **options))
    assert viewer.state == {"color": "output", "output": 2, "level": 0.5, "edge_width": 2.0}
    begin = tell(viewer, ask="scene").message["state"]
    assert begin == {"color": "output", "output": 2, "level": 0.5, "edgeWidth": 2.0}


def test_a_region_is_selected_from_python(viewer: Viewer, page: Page, part: sc.Partition) -> None:
    viewer.select(part[2])
    place = {"pane": 0, "at": part[2].centroid.tolist()}
    assert page.notices == [{"kind": "state", "state": {"frame": 0, "selected": place}}]
    viewer.select(None)
    assert viewer.state["selected"] is None
    other = sc.partition(network(), sc.Domain.box(-1, 1), progress=False)
    with pytest.raises(ValueError, match="is not of a partition that this viewer shows"):
        viewer.select(other[0])
    viewer.session.keep("0/0/w3", other)
    viewer.select(other[1])
    assert viewer.state["selected"] == {"pane": 0, "at": other[1].centroid.tolist()}
    viewer.session.panes[0].generation = 1  # the plane was moved since
    for gone in (other, part):
        with pytest.raises(ValueError, match="is not of a partition"):
            viewer.select(gone[0])


# -- opening and closing --------------------------------------------------------------------------


def test_ctrl_c_ends_waiting(viewer: Viewer, page: Page) -> None:
    viewer.wait()
    assert not page.closed
    viewer.close()
    viewer.close()
    assert page.closed
    assert "closed" in repr(viewer)
    viewer.wait()


def test_it_opens_in_the_browser(part: sc.Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(viewing, "open_browser", lambda url: not opened.append(url))
    with part.view(block=False) as viewer:
        assert viewer.url is not None
        assert viewer.url.startswith("http://127.0.0.1:")
        (ticket,) = opened
        assert viewer.url.split("/")[3] not in ticket
        assert viewer.url in repr(viewer)
        assert viewer.widget is None
        assert viewer._repr_mimebundle_() == {"text/plain": repr(viewer)}
        assert viewer._display_() == repr(viewer)


def test_the_address_is_told_where_no_browser_opens(
    part: sc.Partition, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(viewing, "open_browser", lambda url: False)
    with sc.view(part, block=False) as viewer:
        told = capsys.readouterr()
    assert told.err == f"The viewer is open at {viewer.url}\n"
    assert told.out == ""
    with sc.view(part, block=False, browser=False):
        assert capsys.readouterr().err == ""


def test_a_browser_that_fails_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str) -> bool:
        raise OSError

    monkeypatch.setattr(surroundings, "has_screen", lambda *_: True)
    monkeypatch.setattr(surroundings.webbrowser, "open", fail)
    assert not surroundings.open_browser("http://127.0.0.1:1/")


SCRIPT = """
import torch, splinecam as sc
part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
left_open = part.view(browser=False, block=False)
viewer = part.view(browser=False)
print("went on", flush=True)
"""


@pytest.mark.slow
def test_a_script_waits_until_ctrl_c_and_ends_with_a_viewer_open() -> None:
    words = [sys.executable, "-W", "error", "-c", SCRIPT]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def heed_interrupts() -> None:  # which programs in the background of a shell ignore
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(words, text=True, preexec_fn=heed_interrupts, **pipes) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("The viewer is open at http://127.0.0.1:")
        assert process.stderr.readline() == "Close its page or press Ctrl-C to end it.\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (0, "went on\n", "")


def test_ctrl_c_before_it_waits(part: sc.Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(text: str) -> None:
        if "Ctrl-C" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(viewing, "_say", interrupted)
    assert "closed" in repr(sc.view(part, browser=False, block=True))


def test_a_package_that_is_missing(part: sc.Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, door in (("server", "browser"), ("widget", "widget")):
        monkeypatch.setitem(sys.modules, f"splinecam.viewer.{name}", None)
        with pytest.raises(sc.SplineCamError, match=r"pip install 'splinecam\[view\]'"):
            sc.view(part, door=door)  # type: ignore[arg-type]


def test_what_is_shown_is_written_to_a_file(viewer: Viewer, tmp_path: Path) -> None:
    viewer.set(color="area", edge_width=3)
    path = tmp_path / "regions.html"
    viewer.to_html(path, colorings=["area"])
    text = path.read_bytes()
    assert b'id="splinecam-data"' in text
    file = io.BytesIO()
    viewer.to_html(file, colorings=["area"])
    assert file.getvalue() == text
    assert viewer.session.options.live  # this one goes on
    scene = unpack(recorded(text)['{"ask":"scene"}']).message
    assert (scene["live"], scene["state"]["color"], scene["state"]["edgeWidth"]) == (
        False,
        "area",
        3,
    )


def recorded(page: bytes) -> dict[str, bytes]:
    """The answers in a file."""
    found = re.search(rb'id="splinecam-data">(.*?)</script>', page, re.S)
    assert found is not None
    return unarchive(zlib.decompress(base64.b64decode(found[1])))


# -- subjects -------------------------------------------------------------------------------------


def panes(*subjects: Any, **options: Any) -> list[dict[str, Any]]:
    """The panes of a viewer as the browser gets them."""
    viewer = Viewer(session_of(subjects, **options))
    found: list[dict[str, Any]] = tell(viewer, ask="scene").message["panes"]
    return found


def test_the_code_that_recreates_a_view(part: sc.Partition) -> None:
    model, domain = network(), sc.Domain.box(-1, 1)
    for subjects, written in [
        ((part,), "part"),
        ((part, part), "part_1, part_2"),
        (([part, part],), "parts"),
        ((model, domain), "model, domain"),
        ((part, model, model, domain), "part, model_1, model_2, domain"),
    ]:
        assert session_of(subjects).options.python == written
    assert session_of([part], python="mine").options.python == "mine"


def test_several_partitions_are_side_by_side(part: sc.Partition) -> None:
    assert len(panes(part, part)) == 2


def test_a_list_has_a_slider(part: sc.Partition) -> None:
    (pane,) = panes([part, part, part], frames=["first", "second", "third"])
    assert pane["frames"] == ["first", "second", "third"]


def test_models_go_with_the_next_domain(part: sc.Partition) -> None:
    one, two, domain = network(1), network(2), sc.Domain.box(-1, 1)
    found = panes(part, one, two, domain, one, sc.Domain.box(0, 1))
    assert [pane["outputCount"] for pane in found] == [3, 1, 2, 1]
    assert found[3]["domain"]["corners"][0] == [0.0, 0.0]
    with pytest.raises(TypeError, match=r"sc.view\(model, domain\)"):
        panes(part, one)
    captured = sc.capture(one, input_shape=(2,))
    assert len(panes(captured, domain)) == 1


def test_a_run_and_its_folder(tmp_path: Path) -> None:
    watch = sc.watch(network(), sc.Domain.box(-1, 1), every=1, store=tmp_path / "run")
    for _ in range(2):
        watch.step()
    for subject in (watch, watch.run, tmp_path / "run", str(tmp_path / "run")):
        (pane,) = panes(subject)
        assert len(pane["frames"]) == 2
    assert panes(watch)[0]["grows"]
    assert not panes(watch, live=False)[0]["grows"]  # a file does not follow its run


def test_wrong_subjects_and_options(part: sc.Partition) -> None:
    for subjects in [(), (3,), (sc.Domain.box(-1, 1),), ([part, 3],)]:
        with pytest.raises(TypeError):
            sc.view(*subjects)
    with pytest.raises(TypeError, match="a viewer has no option 'colour'"):
        sc.view(part, colour="slope")
    with pytest.raises(ValueError, match='choose "widget" or "browser"'):
        sc.view(part, door="window")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no 'zoom'"):
        sc.view(part, state={"zoom": 3})


def test_a_run_that_grows_is_told(page: Page) -> None:
    watch = sc.watch(network(), sc.Domain.box(-1, 1), every=1)
    watch.step()
    growing = Growing(panes_of([watch]), page.notify, pause=0.01)
    watch.step()
    assert page.told.wait(300)
    growing.close()
    (notice,) = page.notices
    assert notice == {"kind": "frames", "pane": 0, "frames": ["step 0", "step 1"]}


def test_a_run_that_cannot_be_read_is_logged_once(
    page: Page, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = sc.watch(network(), sc.Domain.box(-1, 1), every=1, store=tmp_path / "run")
    watch.step()
    (pane,) = panes_of([tmp_path / "run"])
    looked = threading.Semaphore(0)

    def poll() -> None:
        looked.release()
        raise sc.FileError("it is damaged")

    pane.frames.poll = poll  # type: ignore[method-assign]
    growing = Growing([pane], page.notify, pause=0.01)
    for _ in range(3):
        assert looked.acquire(timeout=300)
    growing.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
