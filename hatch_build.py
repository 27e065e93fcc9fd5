"""Compile the kernel when the package is built, with the C compiler of the ziglang package.

No compiler has to be on the machine, and one machine builds for all systems: the environment
variable SPLINECAM_TARGET names another one (``make wheels`` goes through them). Where nothing can
be compiled the package is built without the kernel; it then works by tensor operations.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/splinecam/kernels")
SOURCES = (
    "refine.c",
    "edges.c",
    "chords.c",
    "faces.c",
    "rows.c",
    "row_order.c",
    "segments.c",
    "overlay.c",
    "pack.c",
    "locate.c",
    "trace.c",
    "overlay_values.c",
    "integrals.c",
    "walk.c",
    "tables.c",
    "boxes.c",
    "reduced.c",
    "squares.c",
    "solid.c",
    "loops.c",
    "pool.c",
)
# Of the processor only what all of its kind have: loops.c chooses among instructions at run time.
FLAGS = [
    "-std=c11",
    "-O3",
    "-mcpu=baseline",
    "-fno-math-errno",
    "-shared",
    "-fvisibility=hidden",
    "-g0",
    "-s",
]

# Systems to build for: what the compiler calls them, and the platform of the wheel.
TARGETS = {
    "x86_64-linux-gnu.2.17": "manylinux_2_17_x86_64",
    "aarch64-linux-gnu.2.17": "manylinux_2_17_aarch64",
    "x86_64-macos.11.0": "macosx_11_0_x86_64",
    "aarch64-macos.11.0": "macosx_11_0_arm64",
    "x86_64-windows-gnu": "win_amd64",
}
ENDINGS = {"windows": "dll", "macos": "dylib"}


class KernelBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the compiled library to wheels and to editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the package are collected."""
        if self.target_name != "wheel":
            return
        target = os.environ.get("SPLINECAM_TARGET")
        library = Path(self.root, FOLDER, f"_kernel.{_ending(target)}")
        for old in library.parent.glob("_kernel.*"):
            old.unlink()
        try:
            _compile(Path(self.root, FOLDER), library, target)
        except (OSError, subprocess.CalledProcessError) as reason:
            self.app.display_warning(f"The kernel was not compiled, which costs speed: {reason}")
            return
        platform = TARGETS[target] if target else sysconfig.get_platform()
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + platform.replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(f"/{FOLDER.as_posix()}/{library.name}")


def _ending(target: str | None) -> str:
    """What the name of a shared library ends with on a system."""
    here = {"win32": "windows", "darwin": "macos"}.get(sys.platform, "")
    return next((e for name, e in ENDINGS.items() if name in (target or here)), "so")


def _compile(folder: Path, library: Path, target: str | None) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS]
    if target:
        command += ["-target", target]
    if library.suffix != ".dll":
        command.append("-fPIC")
    subprocess.run([*command, *SOURCES, "-o", str(library)], cwd=folder, check=True)
    for beside in folder.glob("*.lib"):  # which Windows links other programs with
        beside.unlink()
