"""The shared library: where it lies, and its structures and functions.

The environment variable SPLINECAM_KERNEL names another library, or switches the kernel off with the
value ``off``. Without the library everything works by tensor operations, several times slower.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from splinecam.kernels.structures import declare, structures

__all__ = [
    "STATUS",
    "AffinePairStruct",
    "CrossingsStruct",
    "DenseStruct",
    "LayerStruct",
    "LinesStruct",
    "MeshStruct",
    "OverlaidStruct",
    "RefinedStruct",
    "SettingsStruct",
    "SignRangeStruct",
    "TablesStruct",
    "library",
]

VERSION = 6  # of the interface, as sc_version() returns it

STATUS = {
    0: "done",
    1: "unchanged",
    2: "degenerate",
    3: "too many faces",
    -1: "no memory",
    -2: "malformed",
}

_STRUCTURES = structures("kernel.h")
MeshStruct, LayerStruct = _STRUCTURES["sc_mesh"], _STRUCTURES["sc_layer"]
SettingsStruct, RefinedStruct = _STRUCTURES["sc_settings"], _STRUCTURES["sc_refined"]
SignRangeStruct, LinesStruct = _STRUCTURES["sc_sign_range"], _STRUCTURES["sc_lines"]
DenseStruct, CrossingsStruct = _STRUCTURES["sc_dense"], _STRUCTURES["sc_crossings"]
OverlaidStruct, AffinePairStruct = _STRUCTURES["sc_overlaid"], _STRUCTURES["sc_affine_pair"]
TablesStruct = _STRUCTURES["sc_tables"]

_log = logging.getLogger("splinecam")
_ENDINGS = {"win32": "dll", "darwin": "dylib"}


@cache
def library() -> Any:
    """The loaded library; None, with one line in the log, where there is none that works."""
    chosen = os.environ.get("SPLINECAM_KERNEL")
    if chosen == "off":
        return None
    name = f"_kernel.{_ENDINGS.get(sys.platform, 'so')}"
    path = Path(chosen) if chosen else Path(__file__).with_name(name)
    try:
        lib = ctypes.CDLL(str(path))
        declare(lib, "kernel.h")
        if lib.sc_version() != VERSION:
            raise OSError(f"{path.name} has version {lib.sc_version()}, not {VERSION}")
    except (OSError, AttributeError) as reason:
        _log.warning(
            "The compiled kernel is not there, so everything takes several times as long (%s). "
            "Installing splinecam again builds it.",
            reason,
        )
        return None
    return lib
