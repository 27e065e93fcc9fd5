"""Time the viewer in a browser: first pictures, frames, pointing, and pictures after a drag.

Run ``python benchmarks/viewer.py``, or ``--only files`` for one of its tables. Chromium draws by
software, and figures do not depend on a graphics card; it must be installed.

``files`` writes partitions of 10,000 to a million regions to files. It measures their size in MB,
seconds from the end of loading to the first complete picture, milliseconds of a frame while one
moves (median and slowest; far: all is visible, near: a hundredth of it), and milliseconds of
pointing. ``moves`` has Python compute: it measures milliseconds from the end of a drag to the exact
picture, when the plane moves (``plane``) and when a zoom needs a new window (``window``).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import torch
from chromium import Browser, chromium
from common import Table, Workload, machine, mlp
from networks import spiral_classifier, zoo

import splinecam as sc

REGIONS = {"lines75": 75, "lines240": 240, "lines750": 750, "lines2400": 2400}
FRAMES, PICKS, DRAGS = 40, 400, 7

FILES = Table(
    {
        "workload": "<11",
        "regions": ">10,",
        **dict.fromkeys(("MB", "first"), ">7.2f"),
        **dict.fromkeys(("far", "slowest far", "near", "slowest near"), ">13.1f"),
        **dict.fromkeys(("pick", "slowest pick"), ">13.3f"),
    }
)
MOVES = Table(
    {
        "workload": "<14",
        "move": "<7",
        "regions": ">9,",
        **dict.fromkeys(("best", "median", "slowest"), ">9.0f"),
    }
)

# Milliseconds of frames while the wheel turns to and fro at the middle of the picture.
MOVING = """async (count) => {
    const v = splinecam[0], canvas = document.querySelector("canvas.sc-canvas");
    const box = canvas.getBoundingClientRect(), times = [];
    const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
    for (let k = 0; k < count; k++) {
        const turn = { ...at, deltaY: Math.floor(k / 10) % 2 ? 12 : -12, cancelable: true };
        canvas.dispatchEvent(new WheelEvent("wheel", turn));
        times.push(v.drawn());
        await new Promise((resolve) => setTimeout(resolve));
    }
    await v.idle();
    return times;
}"""
# Milliseconds in which what is at random pixels is found.
PICKING = """(count) => {
    const v = splinecam[0], canvas = document.querySelector("canvas.sc-canvas"), times = [];
    v.pick([10, 10]);
    for (let k = 0; k < count; k++) {
        const xy = [Math.random() * canvas.clientWidth, Math.random() * canvas.clientHeight];
        const start = performance.now();
        v.pick(xy);
        times.push(performance.now() - start);
    }
    return times;
}"""
FIRST = """async () => {
    while (!(Array.isArray(globalThis.splinecam) && splinecam[0]?.firstPicture)) {
        await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const loaded = performance.getEntriesByType("navigation")[0].loadEventStart;
    return Math.max(0, splinecam[0].firstPicture - loaded) / 1000;
}"""
# Milliseconds from the end of a drag, which the function `end` makes, to the complete picture.
SETTLED = """
    const v = splinecam[0];
    const settled = async (end) => {
        const start = performance.now();
        end();
        do await new Promise((resolve) => setTimeout(resolve)); while (!v.exact);
        return performance.now() - start;
    };
    const pause = () => new Promise((resolve) => setTimeout(resolve, 16));
"""
# Moves a slider of the plane to a value by small steps.
SLIDING = f"""async (value) => {{
    {SETTLED}
    const slider = document.querySelector("input[aria-label^='shift along']");
    const from = slider.valueAsNumber, to = value * Number(slider.max);
    const set = (share) => {{
        slider.value = String(from + share * (to - from));
        slider.dispatchEvent(new Event("input", {{ bubbles: true }}));
    }};
    for (let k = 1; k < 8; k++) {{
        set(k / 8);
        await pause();
    }}
    set(1);
    return settled(() => slider.dispatchEvent(new Event("change", {{ bubbles: true }})));
}}"""
# Drags the picture sideways by more than is loaded around it.
PANNING = f"""async (pixels) => {{
    {SETTLED}
    const canvas = document.querySelector("canvas.sc-canvas");
    const box = canvas.getBoundingClientRect();
    const event = (kind, x) => {{
        const at = {{ clientX: box.left + box.width / 2 + x, clientY: box.top + box.height / 2 }};
        const about = {{ ...at, pointerId: 1, isPrimary: true, button: 0, bubbles: true }};
        canvas.dispatchEvent(new PointerEvent(kind, about));
    }};
    event("pointerdown", 0);
    for (let k = 1; k < 8; k++) {{
        event("pointermove", (pixels * k) / 8);
        await pause();
    }}
    event("pointermove", pixels);
    return settled(() => event("pointerup", pixels));
}}"""


def measure_file(started: Browser, name: str, folder: Path) -> dict[str, object]:
    """A partition in a file."""
    work = mlp(REGIONS[name], side=2.0, outputs=3)
    part = sc.partition(work.model(), work.domain(), progress=False)
    path = folder / f"{name}.html"
    part.to_html(path)
    with started.page(path.as_uri()) as page:
        first = page.evaluate(FIRST)
        page.evaluate("splinecam[0].idle()")
        far = page.evaluate(MOVING, FRAMES)
        pick = page.evaluate(PICKING, PICKS)
        page.evaluate("location.hash = '#at=0.1,0.1&width=0.02'")
        time.sleep(0.1)
        page.evaluate("splinecam[0].idle()")
        near = page.evaluate(MOVING, FRAMES)
    size = path.stat().st_size / 1e6
    path.unlink()
    row: dict[str, object] = {"workload": name, "regions": len(part), "MB": size, "first": first}
    for kind, times in (("far", far), ("near", near), ("pick", pick)):
        row |= {kind: statistics.median(times), f"slowest {kind}": max(times)}
    return row


def moved_networks() -> dict[str, Workload]:
    """Computed while one moves: ACAS Xu, or a network of its shape, and the demo's classifier."""
    acas = zoo().get("zoo_acasxu_1_1") or mlp(*[50] * 6, side=2.0, inputs=5, outputs=5)
    return {"acasxu_1_1": acas, "spirals64x3": Workload(spiral_classifier, spiral_plane)}


def spiral_plane() -> sc.Domain:
    """The square of the demo."""
    return sc.Domain.box(-1.0, 1.0)


def measure_move(started: Browser, name: str, move: str) -> dict[str, object]:
    """Drags, and how long the exact picture takes after each of them."""
    work = moved_networks()[name]
    part = sc.partition(work.model(), work.domain(), progress=False)
    with sc.view(part, browser=False, block=False) as viewer:
        assert viewer.url is not None
        with started.page(viewer.url) as page:
            page.evaluate(FIRST)
            page.evaluate("splinecam[0].idle()")
            if move == "window":
                page.evaluate("location.hash = `#at=${splinecam[0].camera().center}&width=1e-8`")
                time.sleep(0.2)
                page.evaluate("splinecam[0].idle()")
            script, ways = (PANNING, (-900, 900)) if move == "window" else (SLIDING, (0.05, -0.05))
            times = [page.evaluate(script, ways[k % 2]) for k in range(DRAGS + 1)]
            regions = page.evaluate("splinecam[0].meshes()[0].regions")
    del times[0]  # the first one warms up
    return {
        "workload": name,
        "move": move,
        "regions": regions,
        "best": min(times),
        "median": statistics.median(times),
        "slowest": max(times),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("files", "moves"), help="one of the tables")
    settings = parser.parse_args()
    bundle = files("splinecam.viewer") / "static"
    sizes = [len((bundle / name).read_bytes()) / 1e3 for name in ("viewer.js", "style.css")]
    print(f"{machine(torch.device('cpu'))}, drawn by software")
    print(f"bundle: {sizes[0]:.0f} kB of code, {sizes[1]:.0f} kB of style\n")
    with chromium() as started:
        if settings.only != "moves":
            print(FILES.heading())
            with tempfile.TemporaryDirectory() as folder:
                for name in REGIONS:
                    print(FILES.line(measure_file(started, name, Path(folder))), flush=True)
            print()
        if settings.only != "files":
            print(MOVES.heading())
            for name in moved_networks():
                # Two inputs have one plane only.
                for move in ("plane", "window") if name == "acasxu_1_1" else ("window",):
                    print(MOVES.line(measure_move(started, name, move)), flush=True)


if __name__ == "__main__":
    main()
