"""A page with a viewer, driven by a test: pointer, keys, and what the viewer says about itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

PATIENCE = 300_000  # milliseconds; tests fail after it, and never depend on it
_LOADED = "Array.isArray(globalThis.splinecam) && splinecam.length > 0"
# Chromium says so of every program that reads pixels; nothing is wrong.
_HARMLESS = ("GPU stall due to ReadPixels",)


class Driver:
    """A page, with everything that its console has said.

    size: width and height in CSS pixels; more: options of the browser's context.
    """

    def __init__(self, browser: Browser, size: tuple[int, int], **more: Any) -> None:
        width, height = size
        self.context = browser.new_context(viewport={"width": width, "height": height}, **more)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(
            words in message.text for words in _HARMLESS
        ):
            self.said.append(f"{message.type}: {message.text}")

    def close(self) -> None:
        """Close the page."""
        self.context.close()

    def open(self, address: str | Path) -> Driver:
        """Load a page and wait until its viewer shows something."""
        self.page.goto(address.as_uri() if isinstance(address, Path) else address)
        return self.wait()

    def wait(self) -> Driver:
        """Wait until a viewer shows something."""
        self.until(_LOADED)
        self.idle()
        return self

    def until(self, condition: str) -> None:
        """Wait until an expression is true; the page forbids what playwright has for this."""
        script = f"""async () => {{
            for (const end = Date.now() + {PATIENCE}; Date.now() < end; ) {{
                if ({condition}) return true;
                await new Promise((resolve) => setTimeout(resolve, 10));
            }}
            return false;
        }}"""
        assert self.page.evaluate(script), f"{condition} did not become true"

    def until_python(self, condition: Callable[[], bool]) -> None:
        """Wait until the page has told Python something."""
        for _ in range(PATIENCE // 20):
            if condition():
                break
            self.page.wait_for_timeout(20)
        assert condition()

    # -- what the viewer says ---------------------------------------------------------------------

    def ask(self, expression: str, argument: Any = None) -> Any:
        """The value of an expression, in which ``v`` is the viewer and ``x`` the argument."""
        return self.page.evaluate(
            f"x => {{ const v = splinecam[0]; return {expression}; }}", argument
        )

    def idle(self) -> None:
        """Wait until nothing is asked, computed or drawn any more."""
        self.ask("v.idle()")

    @property
    def state(self) -> dict[str, Any]:
        """The state of the view."""
        found: dict[str, Any] = self.ask("({...v.state})")
        return found

    def canvas(self, pane: int = 0) -> dict[str, float]:
        """Where the canvas of a pane is on the page."""
        found = self.page.locator("canvas.sc-canvas").nth(pane).bounding_box()
        assert found is not None
        return {**found}

    def hover_all(self, pixels: list[tuple[float, float]], pane: int = 0) -> list[Any]:
        """What the viewer finds where the cursor is moved to, pixel after pixel of the canvas."""
        script = """async ([pixels, pane]) => {
            const canvas = document.querySelectorAll("canvas.sc-canvas")[pane];
            const box = canvas.getBoundingClientRect();
            const found = [];
            for (const [x, y] of pixels) {
                const at = { clientX: box.left + x, clientY: box.top + y };
                canvas.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true }));
                await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
                found.push(splinecam[0].hovered());
            }
            return found;
        }"""
        found: list[Any] = self.page.evaluate(script, [pixels, pane])
        return found

    # -- gestures ---------------------------------------------------------------------------------

    def at(self, x: float, y: float, pane: int = 0) -> tuple[float, float]:
        """The place on the page of a pixel of the canvas."""
        box = self.canvas(pane)
        return box["x"] + x, box["y"] + y

    def place(self, u: float, v: float, pane: int = 0) -> tuple[float, float]:
        """The pixel of the canvas at which a place of the plane is seen."""
        x, y = self.ask("v.camera(x[2]).toScreen([x[0], x[1]])", [u, v, pane])
        return x, y

    def drag(self, start: tuple[float, float], to: tuple[float, float], steps: int = 8) -> None:
        """Drag on the page from one place to another."""
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*to, steps=steps)
        self.page.mouse.up()

    def double_click(self, x: float, y: float) -> None:
        """Click twice at a place on the page, 50 ms apart however busy the machine is."""
        client = self.context.new_cdp_session(self.page)
        now = self.page.evaluate("Date.now() / 1000")
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": count}
                client.send("Input.dispatchMouseEvent", {**event, "timestamp": now + 0.05 * count})
        client.detach()

    def zoom(self, u: float, v: float, width: float) -> None:
        """Turn the wheel at a place of the plane until the view is so wide, or wider if it was."""
        script = """async ([place, width]) => {
            const canvas = document.querySelector("canvas.sc-canvas");
            const box = canvas.getBoundingClientRect();
            for (let turns = 0; splinecam[0].camera().width > width && turns < 400; turns++) {
                const [x, y] = splinecam[0].camera().toScreen(place);
                const at = { clientX: box.left + x, clientY: box.top + y };
                const turn = { ...at, deltaY: -200, bubbles: true, cancelable: true };
                canvas.dispatchEvent(new WheelEvent("wheel", turn));
                if (turns % 2) await new Promise(requestAnimationFrame);
            }
        }"""
        self.page.evaluate(script, [[u, v], width])
        self.idle()

    def pixels(self) -> bytes:
        """The canvas as a PNG."""
        return self.page.locator("canvas.sc-canvas").first.screenshot()
