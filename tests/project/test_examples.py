"""The example scripts run, with settings small enough for a test, and what they print is true."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from PIL import Image

import splinecam as sc

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
GALLERY = EXAMPLES.parent / "docs" / "img" / "gallery"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def _beside_each_other(monkeypatch: pytest.MonkeyPatch):
    """As when they run as scripts: they find each other, and no window opens."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    matplotlib.use("Agg")
    yield
    plt.close("all")
    for name in set(SCRIPTS) & (set(sys.modules) - known):
        del sys.modules[name]


def example(name: str) -> ModuleType:
    return importlib.import_module(name)


def run(name: str, options: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a script prints; the picture that it names must be one, and not blank."""
    example(name).main([*options.split(), "--out", str(folder)])
    text = capsys.readouterr().out
    path = Path(text.strip().splitlines()[-1].split(" is in ")[1].split(", drawn")[0])
    assert path.parent == folder
    assert path.stem == name
    with Image.open(path) as picture:
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    return text


def numbers(pattern: str, text: str) -> list[float]:
    """All numbers that a pattern's group matches in a text."""
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


def test_every_script_has_a_picture_of_reasonable_size():
    for name in SCRIPTS:
        ending, most = ("gif", 3_200_000) if name == "training_movie" else ("png", 330_000)
        picture = GALLERY / f"{name}.{ending}"
        assert picture.exists(), name
        assert picture.stat().st_size < most, name


def test_architectures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = "--images 300 --steps 20 --width 8 --channels 1 1 --margin 0 --device cpu --full"
    text = run("architectures", options, tmp_path, capsys)
    lines = text[: text.index("The picture")].rstrip().splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[-9:]}
    assert lines[-10].split() == ["mlp", "conv"]
    mlp, conv = (int(number.replace(",", "")) for number in rows["NR"])
    assert 1 < mlp < conv
    assert all(3 <= float(number) <= 4.5 for number in rows["ANV"])
    assert "  in input space" in "\n".join(lines)


def test_drawn_shapes_are_images_by_class():
    module = example("architectures")
    x, label = module.drawn_shapes(60, seed=3)
    assert x.shape == (60, 784)
    assert torch.bincount(label).tolist() == [10] * len(module.CLASSES)
    disc, ring = (x[label == k].view(-1, 28, 28) for k in (0, 1))
    assert float(disc.mean()) > float(ring.mean())
    again, _ = module.drawn_shapes(60, seed=3)
    assert torch.equal(x, again)


def test_a_missing_zoo_is_named(tmp_path: Path):
    with pytest.raises((SystemExit, FileNotFoundError), match=r"zoo\.py"):
        example("architectures").main(["--zoo", str(tmp_path)])


def test_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("boundary", "--width 8 --steps 100", tmp_path, capsys)
    assert numbers(r"at 1,000 samples: (\S+)", text)[0] < 1e-12
    areas = text[text.index("area of each class: ") :].splitlines()[0].split(":")[1]
    assert sum(map(float, areas.split(","))) == pytest.approx(2.2**2, abs=2e-4)


def test_definitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("definitions", "--width 12 --steps 30", tmp_path, capsys)
    activation, linear, maps = (
        numbers(rf"{name}.*?([\d,]+)$", line)[0]
        for name, line in zip(
            ("activation regions", "linear regions", "distinct maps"),
            text[text.index("Regions") :].splitlines()[1:4],
            strict=True,
        )
    )
    assert activation > linear >= maps > 1
    assert "components" in text


def test_compression(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("compression", "--width 8 --steps 60", tmp_path, capsys)
    int4, int3, _ = numbers(r"largest difference (\S+),", text)
    assert 0 < int4 < int3


def test_moons_circles(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("moons_circles", "--steps 0 150 --width 8", tmp_path, capsys)
    right = numbers(r"(\d+)% of the points right", text)
    assert len(right) == 4
    assert right[1] > max(80, right[0])
    assert right[3] > max(80, right[2])
    assert all(count > 1 for count in numbers(r"([\d,]+) regions", text))


def test_image_fitting(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("image_fitting", "--frequencies 2 --width 8 --steps 60", tmp_path, capsys)
    plain, encoded = numbers(r"([\d.]+) dB", text)
    assert 10 < plain < encoded + 3
    plain, encoded = numbers(r"([\d,]+) regions", text)
    assert 1 < plain < encoded


def test_siren(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("siren", "--width 4 --steps 20 --side 32 --smooth 0.3", tmp_path, capsys)
    (proved,), (largest,) = (numbers(rf"{what} ([\d.]+)", text) for what in ("bound", "pixels"))
    assert 0 < largest <= proved <= 0.3
    assert numbers(r"([\d,]+) regions", text)[0] > 1


def test_gelu_band(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = "--width 4 --steps 60 --smooth 0.3 0.1 --zooms 10"
    text = run("gelu_band", options, tmp_path, capsys)
    assert numbers(r"([\d.]+)% of the points right", text)[0] > 50
    wide, narrow = numbers(r"within (\S+) of the model", text)
    assert 0 < wide <= 0.3
    assert 0 < narrow <= 0.1
    wide, narrow = numbers(r"([\d.]+) % of the domain", text)
    assert 0 < narrow < wide


def test_wanted_area(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("wanted_area", "--steps 60 --share 0.3", tmp_path, capsys)
    before, after = numbers(r"([\d.]+)% of the square", text)
    assert abs(after - 30) < min(5, abs(before - 30))


def test_wanted_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("wanted_shape", "--steps 60", tmp_path, capsys)
    (first, found), (area, perimeter) = (
        numbers(pattern, text) for pattern in (r"area ([\d.]+)", r"perimeter ([\d.]+)")
    )
    (wanted,) = numbers(r"wanted [\d.]+ and ([\d.]+)", text)
    assert found == pytest.approx(first, rel=0.1)
    assert perimeter < area
    assert abs(perimeter - wanted) < 0.5 * abs(area - wanted)


def test_heated_plate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    module = example("heated_plate")
    x = module.grid()
    u, step = module.solution(x).view(module.SIDE, -1), 2 / (module.SIDE - 1)
    middle = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    assert torch.allclose(around - 4 * middle, torch.tensor(-(step**2)).double(), rtol=0.05)
    slope = (3 * u[:, -1] - 4 * u[:, -2] + u[:, -3]) / (2 * step)
    assert torch.allclose(slope, -module.COOLING * u[:, -1], atol=1e-3)
    text = run("heated_plate", "--steps 100", tmp_path, capsys)
    exact, sampled, most = numbers(r"([\d.]+)% from", text)
    assert exact < 0.5 * min(sampled, most)


def test_linked_rings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("linked_rings", "--width 8 --steps 40", tmp_path, capsys)
    *volumes, whole = numbers(r"(\d\.\d+)", text.partition("volumes")[2].splitlines()[0])
    assert whole == pytest.approx(8)
    assert sum(volumes) == pytest.approx(8, abs=0.002)


def test_bunny(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("splinecam_paper")
    options = f"--data {tmp_path} --stand-in --width 8 --points 500 --steps 60"
    text = run("bunny", options, tmp_path, capsys)
    assert numbers(r"volume ([\d.]+)", text)[0] > 0


def test_signed_distance(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("signed_distance", "--width 12 --steps 300", tmp_path, capsys)
    learnt, truth = numbers(r"area ([\d.]+)", text)
    assert learnt == pytest.approx(truth, rel=0.3)
    assert numbers(r"farther than ([\d.]+)", text)[0] < 0.5


def test_signed_distances_are_those_of_the_star():
    module = example("signed_distance")
    corners = module.star(5, outer=0.8, inner=0.4)
    assert module.area_of(corners) == pytest.approx(5 * 0.8 * 0.4 * 0.587785, rel=1e-5)
    middles = (corners + corners.roll(-1, 0)) / 2
    assert module.signed_distance(middles, corners).abs().max() < 1e-6
    x = torch.tensor([[0.0, 0.0], [0.0, 0.9], [0.0, 2.0], [-3.0, 0.0]])
    found = module.signed_distance(x, corners)
    assert found[0] < 0
    assert found[1:3].tolist() == pytest.approx([0.1, 1.2], abs=1e-5)
    assert found[3] > 2


def test_digits_cnn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("digits_cnn", "--channels 2 --steps 60 --margin 0.1", tmp_path, capsys)
    assert numbers(r"([\d.]+)% of 397 new", text)[0] > 40
    assert numbers(r"1,000 samples: (\S+)", text)[0] < 1e-12
    assert numbers(r"between \d and \d: length ([\d.]+)", text)


def test_generator(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("generator", "--width 6 --steps 40 --classes 0 1", tmp_path, capsys)
    assert "final tanh left out" in text
    assert numbers(r"Partition\(([\d,]+) regions", text)[0] > 10
    assert numbers(r"area of the surface: ([\d.]+)", text)[0] > 0
    assert 50 < numbers(r"hold (\d+)%", text)[0] <= 100


def test_generated_images_lie_on_the_surface():
    module = example("generator")
    model, _ = module.networks(6, seed=0)
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    assert part.validate().ok
    z = module.latent(50)
    assert module.digits([0]).abs().max() <= module.BRIGHT
    region = part.locate(z)
    on_surface = (part.weight[region] @ z.double()[:, :, None])[:, :, 0] + part.bias[region]
    assert torch.allclose(on_surface.tanh(), model(z).detach().double(), atol=1e-5)


def test_pooling(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("pooling", "--channels 1 --steps 40", tmp_path, capsys)
    largest, average = numbers(r"Partition\(([\d,]+) regions", text)
    assert 1 < average < largest
    assert len(numbers(r"MaxPool2d \d: ([\d,]+) edges", text)) == 2
    assert "AvgPool2d" not in text


def test_deep_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("deep_random", "--width 8 --depth 3", tmp_path, capsys)
    rows = re.findall(r"^(\w+): ([\d, ]+) regions$", text, re.MULTILINE)
    assert [init for init, _ in rows] == ["default", "orthogonal", "He"]
    for _, row in rows:
        counts = [int(count.replace(",", "")) for count in row.split(", ")]
        assert 1 < counts[0] <= counts[1] <= counts[2]


def test_local_complexity(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = "--steps 20 --looks 4 --images 5 --width 12"
    text = run("local_complexity", options, tmp_path, capsys)
    found = numbers(r"step +\d+: (\S+) \(", text)
    low = numbers(r"step .*?\((\S+) to ", text)
    high = numbers(r" to (\S+)\) switches", text)
    assert all(a <= b <= c for a, b, c in zip(low, found, high, strict=True))
    assert len(found) == 4


def test_wide_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("wide_layer", "--units 60 --dpi 40", tmp_path, capsys)
    assert 60 < numbers(r"Partition\(([\d,]+) regions", text)[0] < 1 + 60 * 61 / 2


def test_units_of_the_wide_layer_are_chords():
    module = example("wide_layer")
    model = module.string_art(50, 3, seed=1)
    generator = torch.Generator().manual_seed(1)
    t = 2 * torch.pi * (torch.arange(50) + torch.rand(50, generator=generator)) / 50
    for angle in (t, 3 * t):
        assert model[0](module.on_circle(angle)).diagonal().abs().max() < 1e-5


def test_training_movie(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("training_movie", "--frames 4 --steps 20 --width 8", tmp_path, capsys)
    steps = numbers(r"step (\d+):", text)
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 20)
    with Image.open(tmp_path / "training_movie.gif") as movie:
        assert movie.n_frames == len(steps)
    assert (tmp_path / "training_curves.png").stat().st_size > 5_000


def test_seeds_make_the_same_network_again():
    module = example("digits_cnn")
    x, label, *_ = module.digits(5)

    def trained() -> torch.nn.Module:
        model = module.network(torch.nn.MaxPool2d(2), channels=2, seed=5)
        module.train(model, x, label, steps=3)
        return model

    assert torch.equal(trained()(x), trained()(x))


def test_integrated_gradients(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = "--images 12 --channels 2 --steps 60"
    text = run("integrated_gradients", options, tmp_path, capsys)
    assert numbers(r"add up to (\S+)", text)[0] < 1e-12
    assert numbers(r"(\d+) pieces on a segment", text)[0] > 20
    off, better = (
        numbers(rf"{name}: .* off by ([\d.]+)%", text) for name in ("left end", "middle")
    )
    many = numbers(r"with 50 samples by ([\d.]+)%", text)
    assert len(many) == 3
    assert off[0] > 5 > many[2]
    assert many[0] > many[2]
    assert better


def test_encounter(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = run("encounter", "--samples 2000 --width 12 --steps 400", tmp_path, capsys)
    assert numbers(r"([\d.]+)% of 5,000 new", text)[0] > 78
    assert max(numbers(r"called clear on ([\d.]+) %", text)) < 50
    assert len(re.findall(r"PropertyCheck\((?:holds|violated|unresolved)", text)) == 3


def test_the_table_of_encounters_and_its_danger():
    """Mirrored encounters turn the other way; the danger is what flying straight on leads to."""
    module = example("encounter")
    x = module.encounters(3000, seed=2)
    found = module.costs(x)
    assert torch.bincount(found.argmin(1), minlength=5).min() > 10
    mirror = torch.tensor([-1.0, 1, -1, 1])
    assert torch.allclose(module.costs(x * mirror), found[:, [0, 2, 1, 4, 3]])
    velocity = module.ENCOUNTERS["from the right"]
    x[:, 2:] = torch.tensor(velocity)
    C, b = module.danger(velocity)
    dangerous = (x[:, :2] @ C.T <= b).all(1)
    assert int(dangerous.sum()) > 100
    assert bool((module.costs(x[dangerous]).argmin(1) > 0).all())
    relative = x[:, 2:] - torch.tensor([0, module.OWN_SPEED])
    t = -(x[:, :2] * relative).sum(1) / relative.square().sum(1)
    near = (x[:, :2] + t[:, None] * relative).norm(dim=1) <= module.NEAR
    soon = (t >= module.SOON[0]) & (t <= module.SOON[1])
    assert torch.equal(dangerous, near & soon)
    corners = module.danger_corners(velocity)
    assert torch.allclose((corners @ C.T - b).amax(1), torch.zeros(4).double(), atol=1e-12)
    straight, left = module.own_path(torch.tensor([0.0, 90.0]), torch.tensor([0.0, 1.0]))
    assert straight[1].tolist() == pytest.approx([0, module.OWN_SPEED])
    radius = module.OWN_SPEED / (torch.pi / 2)
    assert left[1].tolist() == pytest.approx([-radius, radius], rel=1e-5)


def test_transformer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = "--width 8 --steps 60 --grid 20 --smooth 50%"
    text = run("transformer", options, tmp_path, capsys)
    assert numbers(r"([\d.]+)% of \d+ letters right", text)[0] > 25
    assert len(re.findall(r": (?:denominator|attention pattern) \(", text)) == 7
    assert numbers(r"within (\S+) of the model", text)[0] > 0
    assert "measured at 4,096 points, not bounded" in text
