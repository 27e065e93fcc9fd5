"""Writing frames to a file: GIF or MP4."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from splinecam._util.optional import how_to_install
from splinecam.errors import FileError, SplineCamError
from splinecam.plot.arrays import Ints, Pixels

__all__ = ["FORMATS", "FrameSequence", "encode"]

_COLORS = 256  # of a GIF
_STRIDE = 16  # of the rows of frames from which the colours of a GIF are chosen


@dataclass(frozen=True)
class FrameSequence:
    """Frames (h, w, 3), which may be drawn while they are encoded.

    fps: frames per second; hold: for how many frames the last one stays.
    """

    frames: Iterator[Pixels]
    fps: float
    hold: int


def encode(movie: FrameSequence, path: Path) -> None:
    """Write a movie in the format of the file's suffix; the file appears when it is complete."""
    with _temporary(path) as file:
        FORMATS[path.suffix.lower()](movie, file)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A file in the same folder, which is renamed to the path at the end."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {path.parent}; make it first.")
    file = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        yield file
        file.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        file.unlink(missing_ok=True)


def _gif(movie: FrameSequence, path: Path) -> None:
    """Write a GIF with one table of colours, so that a colour is the same in all frames."""
    from PIL import Image

    pixels = list(movie.frames)
    table = _color_table(np.concatenate([_sampled(pixels), pixels[-1]]))
    nearest = _NearestColors(table)
    frames = [Image.fromarray(nearest(each)) for each in pixels]
    for image in frames:
        image.putpalette(table.astype(np.uint8).tobytes())
    duration = 1000 / movie.fps
    durations = [duration] * (len(frames) - 1) + [duration * movie.hold]
    options: Any = {"save_all": True, "append_images": frames[1:], "loop": 0, "optimize": False}
    frames[0].save(path, "GIF", duration=durations, **options)


def _sampled(frames: Sequence[Pixels]) -> Pixels:
    """A sheet (h, w, 3) with some of the rows of all frames."""
    return np.concatenate([frame[k % _STRIDE :: _STRIDE] for k, frame in enumerate(frames)])


def _color_table(sheet: Pixels) -> Ints:
    """Up to 256 colours for a picture, (n, 3); the lightest one is replaced by white."""
    from PIL import Image

    chosen = Image.fromarray(sheet).quantize(_COLORS, method=Image.Quantize.MEDIANCUT)
    table = np.array(chosen.getpalette()).reshape(-1, 3)
    table[table.sum(1).argmax()] = 255
    return table


class _NearestColors:
    """Finds the nearest colour of a table (n, 3) for each pixel; remembers what it has found."""

    def __init__(self, table: Ints) -> None:
        self._table = table
        self._found = np.full(1 << 24, -1, np.int16)  # by colour, one byte a channel

    def __call__(self, frame: Pixels) -> Pixels:
        """The indices (h, w) for a frame (h, w, 3)."""
        padded = np.zeros((*frame.shape[:2], 4), np.uint8)
        padded[:, :, :3] = frame
        packed = padded.view("<u4")[:, :, 0]
        found = np.take(self._found, packed)
        new = np.unique(packed[found < 0])
        if len(new):
            colors = new.view(np.uint8).reshape(-1, 4)[:, :3].astype(np.float64)
            table = self._table.astype(np.float64)  # products of matrices are fast in this type
            self._found[new] = ((table**2).sum(1) - 2 * colors @ table.T).argmin(1)
            found = np.take(self._found, packed)
        return found.astype(np.uint8)


def _mp4(movie: FrameSequence, path: Path) -> None:
    """Write an MP4 by passing raw frames to ffmpeg."""
    program = _ffmpeg()
    first = next(movie.frames)
    high, wide = first.shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{high}", "-r", str(movie.fps)]
    video = ["-c:v", "libx264", "-crf", "16", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [program, "-y", "-loglevel", "error", *raw, "-i", "-", *video, str(path)]
    with TemporaryFile() as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=messages)
        try:
            assert process.stdin is not None
            with process.stdin as pipe:
                for last in chain([first], movie.frames):
                    pipe.write(last.tobytes())
                for frame in repeat(last, movie.hold - 1):
                    pipe.write(frame.tobytes())
        except BrokenPipeError:
            pass  # ffmpeg has ended with a message
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            messages.seek(0)
            reason = messages.read().decode(errors="replace").strip()
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
            "An MP4 needs ffmpeg, which is not installed. Install ffmpeg itself, choose a .gif or "
            f".html file, or run: {how_to_install('movie')}"
        ) from None


FORMATS: dict[str, Callable[[FrameSequence, Path], Any]] = {
    ".gif": _gif,
    ".mp4": _mp4,
}
