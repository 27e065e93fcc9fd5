"""Frames on their way into a file: GIF, MP4, or a page of HTML with a slider."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from splinecam.errors import FileError, SplineCamError
from splinecam.training.player import page

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

__all__ = ["FORMATS", "Reel", "encode"]

_COLORS = 256  # of a GIF
_SAMPLED = 24  # frames from which the colours of a GIF are chosen


@dataclass(frozen=True)
class Reel:
    """What is encoded: frames (h, w, 3), which may be made on the way, and their titles.

    fps: frames per second; hold: for how many frames the last one stays.
    """

    frames: Iterator[Pixels]
    titles: Sequence[str]
    fps: float
    hold: int


def encode(reel: Reel, path: Path) -> None:
    """Write a movie in the format of the file's ending; the file appears when it is complete."""
    with _draft(path) as draft:
        FORMATS[path.suffix.lower()](reel, draft)


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """A file beside the given one, which takes its place at the end."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {path.parent}; make it first.")
    draft = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _gif(reel: Reel, path: Path) -> None:
    """One table of colours for all frames, so that a colour is the same in each of them."""
    from PIL import Image

    pixels = list(reel.frames)
    some = pixels[:: 1 + (len(pixels) - 1) // _SAMPLED] + pixels[-1:]
    table = _table(np.concatenate(some))
    frames = []
    for each in pixels:
        image = Image.fromarray(_nearest(each, table))
        image.putpalette(table.astype(np.uint8).tobytes())
        frames.append(image)
    once = 1000 / reel.fps
    durations = [once] * (len(frames) - 1) + [once * reel.hold]
    first, *rest = frames
    first.save(
        path, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False
    )


def _table(sheet: Pixels) -> NDArray[np.int64]:
    """Up to 256 colours for a picture, (n, 3); the lightest one is white, as paper is."""
    from PIL import Image

    chosen = Image.fromarray(sheet).quantize(_COLORS, method=Image.Quantize.MEDIANCUT)
    table = np.array(chosen.getpalette()).reshape(-1, 3)
    table[table.sum(1).argmax()] = 255
    return table


def _nearest(frame: Pixels, table: NDArray[np.int64]) -> Pixels:
    """For each pixel of a frame (h, w, 3), the place of the nearest colour in a table, (h, w)."""
    packed = frame.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    found, place = np.unique(packed, return_inverse=True)
    colors = np.stack([found >> 16, (found >> 8) & 255, found & 255], 1)
    distance = (table**2).sum(1) - 2 * colors @ table.T
    nearest: Pixels = distance.argmin(1).astype(np.uint8)
    return nearest[place].reshape(frame.shape[:2])


def _mp4(reel: Reel, path: Path) -> None:
    """Raw frames through a pipe to ffmpeg."""
    program = _ffmpeg()
    first = next(reel.frames)
    high, wide = first.shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{high}", "-r", str(reel.fps)]
    video = ["-c:v", "libx264", "-crf", "16", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [program, "-y", "-loglevel", "error", *raw, "-i", "-", *video, str(path)]
    with TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)
        try:
            assert process.stdin is not None
            with process.stdin as pipe:
                last = first
                pipe.write(first.tobytes())
                for last in reel.frames:
                    pipe.write(last.tobytes())
                for _ in range(reel.hold - 1):
                    pipe.write(last.tobytes())
        except BrokenPipeError:
            pass  # it says why
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            said.seek(0)
            reason = said.read().decode(errors="replace").strip()
            raise SplineCamError(f"ffmpeg could not write the movie: {reason}")


def _ffmpeg() -> str:
    """The path of ffmpeg: that of the system, or of the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise SplineCamError(
            "An MP4 needs ffmpeg, which is not installed. Run: pip install 'splinecam[movie]', "
            "install ffmpeg itself, or choose a .gif or .html file."
        ) from None


def _html(reel: Reel, path: Path) -> None:
    path.write_text(page(reel.frames, reel.titles, reel.fps), encoding="utf-8")


FORMATS: dict[str, Callable[[Reel, Path], Any]] = {".gif": _gif, ".mp4": _mp4, ".html": _html}
