"""Compile the kernel for the page with the C compiler of the ziglang package, as the package does.

``python build.py`` writes kernel.wasm and, beside it, the fingerprint of what it was compiled from.
The same version of ziglang gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "src" / "splinecam" / "kernels"
NAMES = "refine edges chords faces rows row_order loops segments pool"
SOURCES = tuple(f"{name}.c" for name in NAMES.split())
HEADERS = ("kernel.h", "refine.h", "loops.h", "vector_loops.h", "pool.h")
FLAGS = [
    *("-target", "wasm32-wasi", "-mexec-model=reactor"),
    *("-std=c11", "-O2", "-msimd128", "-fno-math-errno", "-fvisibility=hidden", "-g0", "-s"),
]


def fingerprint() -> str:
    """Return what tells whether the compiled kernel is up to date."""
    found = hashlib.sha256(" ".join(FLAGS).encode())
    for path in [HERE / "page.c", *(KERNELS / name for name in (*SOURCES, *HEADERS))]:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def compile_to(target: Path) -> None:
    """Compile the kernel into a file."""
    sources = ["page.c", *(str(KERNELS / name) for name in SOURCES)]
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, f"-I{KERNELS}", *sources]
    subprocess.run([*command, "-o", str(target)], cwd=HERE, check=True)


if __name__ == "__main__":
    compile_to(HERE / "kernel.wasm")
    (HERE / "SOURCES").write_text(fingerprint() + "\n")
