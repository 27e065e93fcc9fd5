"""What becomes a pane, its frames, and how it grows."""

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.frames import RunFrames
from splinecam.viewer.panes import Pane, panes_of

BOX = sc.Domain.box(-1, 1)


def network(seed: int = 0, width: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3)).eval()


def part_of(seed: int = 0, domain: sc.Domain = BOX) -> sc.Partition:
    return sc.partition(network(seed), domain, progress=False)


def test_panes_side_by_side_and_frames():
    first, second = part_of(0), part_of(1)
    panes = panes_of([first, [first, second], (network(2), BOX)], titles=["a", "b", "c"])
    assert [pane.title for pane in panes] == ["a", "b", "c"]
    assert [pane.labels for pane in panes] == [[""], ["0", "1"], [""]]
    assert panes[0].partition(0) is first
    assert panes[1].partition(1) is second
    assert panes[2].partition(0).validate().ok
    assert panes[2].partition(0) is panes[2].partition(0)
    assert all(pane.live and not pane.frames.grows and not pane.frames.poll() for pane in panes)
    assert [pane.title for pane in panes_of([first, second])] == ["Sequential 1", "Sequential 2"]
    assert panes_of([(first, second)], labels=["begin", "end"])[0].labels == ["begin", "end"]


def test_the_network_of_a_frame_is_that_of_its_time():
    model = network()
    first = sc.partition(model, BOX, progress=False)
    with torch.no_grad():
        model[0].weight.mul_(-3)
    second = sc.partition(model, BOX, progress=False)
    pane = Pane("training", [first, second])
    for frame, part in enumerate((first, second)):
        again = pane.computed(frame, BOX)
        assert len(again) == len(part)
        assert torch.equal(again.values, part.values)


@pytest.mark.parametrize(
    ("subjects", "error", "text"),
    [
        ([], TypeError, "nothing to show"),
        ([[]], ValueError, "empty"),
        ([3], TypeError, "a viewer shows a partition"),
        ([[3]], TypeError, "partitions, not"),
        ([("net", BOX)], TypeError, "goes a model"),
        (["no/such/folder"], sc.FileError, "is not there"),
    ],
)
def test_what_cannot_be_shown(subjects, error, text):
    with pytest.raises(error, match=text):
        panes_of(subjects)


def test_one_domain_for_the_frames_of_a_pane():
    with pytest.raises(sc.DomainError, match="same domain"):
        panes_of([[part_of(), part_of(domain=sc.Domain.box(-2, 2))]])


def test_titles_labels_and_frames_are_counted():
    part = part_of()
    with pytest.raises(ValueError, match="2 titles for 1 pane"):
        panes_of([part], titles=["a", "b"])
    with pytest.raises(ValueError, match="1 labels for 2"):
        panes_of([[part, part]], labels=["a"])
    with pytest.raises(IndexError, match="frame 1 of 1"):
        panes_of([part])[0].partition(1)


def test_a_partition_without_its_model_is_not_live(tmp_path):
    part_of().save(tmp_path / "part.npz")
    pane = panes_of([sc.load(tmp_path / "part.npz")])[0]
    assert not pane.live
    with pytest.raises(sc.SplineCamError, match="loaded without it"):
        pane.computed(0, BOX)


def test_a_watch_grows():
    watch = sc.watch(network(), BOX, every=5, statistics=())
    (pane,) = panes_of([watch])
    assert pane.frames.grows
    assert pane.labels == ["now"]
    assert not pane.live
    before = len(pane.partition(0))
    for _ in range(6):
        watch.step()
    assert pane.frames.poll()
    assert pane.labels == ["step 0", "step 5"]
    assert not pane.frames.poll()
    assert len(pane.partition(1)) == before
    with pytest.raises(sc.SplineCamError, match="holds partitions and no networks"):
        pane.computed(0, BOX)


def test_a_folder_grows_and_is_read_lazily(tmp_path):
    watch = sc.watch(network(), BOX, every=1, store=tmp_path / "run", statistics=())
    for _ in range(3):
        watch.step()
    (pane,) = panes_of([tmp_path / "run"])
    assert pane.title == "run"
    assert pane.labels == ["step 0", "step 1", "step 2"]
    watch.step(1)  # training was resumed from a checkpoint
    assert pane.frames.poll()
    assert pane.labels == ["step 0", "step 1"]
    assert pane.frames.grows
    fixed = panes_of([sc.load(tmp_path / "run")])[0]
    watch.step(7)
    assert not fixed.frames.poll()
    assert not fixed.frames.grows
    assert pane.frames.poll()
    assert pane.labels == ["step 0", "step 1", "step 7"]
    assert len(pane.partition(2)) == len(fixed.partition(0))


def test_few_partitions_of_a_run_are_kept(tmp_path):
    watch = sc.watch(network(), BOX, every=1, store=tmp_path, statistics=())
    for _ in range(4):
        watch.step()
    frames = RunFrames(tmp_path, kept=1)
    last = frames.partition(3)
    assert frames.partition(3) is last
    frames.partition(1)
    assert len(frames._kept) == 1
    assert frames.partition(3) is not last
