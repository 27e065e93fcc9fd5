"""A page of HTML that plays frames; everything is in one file, and works without a network."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Sequence
from io import BytesIO

from splinecam.plot.arrays import Pixels

__all__ = ["page"]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 1rem auto; max-width: {width}px; padding: 0 .5rem; }}
body {{ font: 15px system-ui, sans-serif; }}
figure {{ margin: 0; }}
img {{ display: block; width: 100%; height: auto; background: #fff; }}
.controls {{ display: flex; gap: .75rem; align-items: center; margin-top: .5rem; }}
button {{ min-width: 5.5em; padding: .35em .8em; font: inherit; }}
input {{ flex: 1; min-width: 0; }}
output {{ min-width: 5em; text-align: right; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<figure>
<img id="frame" src="{first}" alt="{alt}" width="{width}" height="{height}">
<figcaption class="controls">
<button id="play" type="button">Play</button>
<input id="place" type="range" min="0" max="{last}" value="0" step="1" aria-label="Frame">
<output id="count" for="place">1 / {count}</output>
</figcaption>
</figure>
<script>
"use strict";
const frames = {frames};
const titles = {titles};
const [image, play, place, count] =
  ["frame", "play", "place", "count"].map(id => document.getElementById(id));
let timer = 0;
function show(k) {{
  place.value = k;
  place.setAttribute("aria-valuetext", titles[k]);
  image.src = frames[k];
  image.alt = titles[k];
  count.textContent = (k + 1) + " / " + frames.length;
}}
function stop() {{
  clearInterval(timer);
  timer = 0;
  play.textContent = "Play";
}}
function advance() {{
  const k = Number(place.value);
  if (k + 1 < frames.length) {{ show(k + 1); }} else {{ stop(); }}
}}
play.addEventListener("click", () => {{
  if (timer) {{ stop(); return; }}
  if (Number(place.value) + 1 >= frames.length) {{ show(0); }}
  play.textContent = "Pause";
  timer = setInterval(advance, {milliseconds});
}});
place.addEventListener("input", () => {{ stop(); show(Number(place.value)); }});
show(0);
</script>
</body>
</html>
"""


def page(frames: Iterable[Pixels], titles: Sequence[str], fps: float) -> str:
    """HTML with the frames (h, w, 3), a button that plays them, and a slider.

    The button and the slider are those of the browser, so that they work with a keyboard and are
    read out: the title of the frame is the text of the slider's value and of the picture.

    >>> import numpy as np
    >>> black = np.zeros((2, 4, 3), np.uint8)
    >>> text = page([black, 255 - black], ["step 0", "step 1"], fps=10)
    >>> text.count("data:image/"), "http" in text
    (3, False)
    """
    pictures = []
    for frame in frames:
        pictures.append(_data_uri(frame))
        high, wide = frame.shape[:2]
    return _PAGE.format(
        title=html.escape(titles[0]),
        alt=html.escape(titles[0]),
        first=pictures[0],
        width=wide,
        height=high,
        last=len(pictures) - 1,
        count=len(pictures),
        frames=_script(pictures),
        titles=_script(titles),
        milliseconds=round(1000 / fps),
    )


def _script(values: Sequence[str]) -> str:
    """Strings as an array of JavaScript, escaped such that they cannot end the script."""
    return json.dumps(list(values)).replace("</", "<\\/").replace("<!--", "<\\!--")


def _data_uri(frame: Pixels) -> str:
    """A picture as a lossless WebP, or as a PNG where that is not supported."""
    from PIL import Image, features

    kind = "webp" if features.check("webp") else "png"
    file = BytesIO()
    options = {"lossless": True} if kind == "webp" else {"optimize": True}
    Image.fromarray(frame).save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
