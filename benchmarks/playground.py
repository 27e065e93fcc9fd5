"""Time frames of the playground while it trains, and say who takes the time.

``python benchmarks/playground.py`` opens the playground in Chromium without a window, where
SwiftShader draws on the processor, and trains networks of growing size. Of each it prints the
milliseconds of processor time that a frame takes: of the page's main thread, of the other threads
of the page (its worker, above all), and of the process that draws; the frames that came a second;
and when the first picture was painted, by the clock of the page. The first row is the first page
that the browser shows. Processor times are up to twice as large on a busy machine; the others mean
nothing there.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from chromium import Page, chromium

from splinecam.viewer.playground import write_playground

# The end of an address, and steps of training before the clock starts.
EXPERIMENTS = (
    ("layers=16,16", 300),
    ("layers=24,24,24", 300),
    ("layers=32,32,32", 300),
    ("layers=64,64,64", 150),
    ("layers=96,96,96,96", 75),
    ("layers=80,80,80,80,80", 75),
)
SECONDS = 6.0

_UNTIL = """async (wanted) => {
    while (!(globalThis.playground?.answer && playground.answer.step >= wanted)) {
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}"""
_FIRST = """async () => {
    while (!globalThis.playground?.picture.firstPicture) {
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return playground.picture.firstPicture;
}"""
_FRAMES = """async (seconds) => {
    const end = performance.now() + 1000 * seconds;
    let [frames, shown] = [0, null];
    while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        if (playground.answer === shown) continue;
        shown = playground.answer;
        frames += 1;
    }
    return [frames, shown.snapshot.regions];
}"""


def main_thread(page: Page) -> float:
    """Processor seconds of the page's main thread so far."""
    metrics = page.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def processes(page: Page) -> dict[str, float]:
    """Processor seconds of each kind of process so far."""
    found: dict[str, float] = {}
    for each in page.send("SystemInfo.getProcessInfo", browser=True)["processInfo"]:
        found[each["type"]] = found.get(each["type"], 0.0) + each["cpuTime"]
    return found


def run() -> None:
    """Print a row for each experiment."""
    print("| experiment | regions | main | worker | drawing | frames/s | first picture |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "playground.html"
        write_playground(path)
        for address, warm in EXPERIMENTS:
            with browser.page() as page:
                print(row(page, f"{path.as_uri()}#{address}", warm), flush=True)


def row(page: Page, address: str, warm: int) -> str:
    """The row of an experiment that begins after so many steps."""
    page.send("Performance.enable", timeDomain="threadTicks")
    page.goto(address)
    first = page.evaluate(_FIRST)
    page.evaluate("() => playground.toggle()")
    page.evaluate(_UNTIL, warm)
    began, before, main = time.perf_counter(), processes(page), main_thread(page)
    frames, regions = page.evaluate(_FRAMES, SECONDS)
    rate = frames / (time.perf_counter() - began)
    main = (main_thread(page) - main) / frames
    now = processes(page)
    spent = {kind: (now[kind] - before.get(kind, 0)) / frames for kind in now}
    times = (main, spent["renderer"] - main, spent["GPU"])
    cells = [address.split("layers=")[1], str(regions), *(f"{1000 * t:.1f}" for t in times)]
    return f"| {' | '.join(cells)} | {rate:.1f} | {first:.0f} ms |"


if __name__ == "__main__":
    run()
