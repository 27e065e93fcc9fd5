"""The shared library: where it lies, its structures and its functions."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "STATUS",
    "DenseStruct",
    "LayerStruct",
    "LinesStruct",
    "MeshStruct",
    "RefinedStruct",
    "SettingsStruct",
    "SightStruct",
    "file_name",
    "library",
    "structure",
]

VERSION = 2  # of the interface, as sc_version() tells

STATUS = {
    0: "done",
    1: "unchanged",
    2: "delicate",
    3: "too many",
    -1: "no memory",
    -2: "malformed",
}

_log = logging.getLogger("splinecam")


def file_name() -> str:
    """The name of the library on this system."""
    endings = {"win32": "dll", "darwin": "dylib"}
    return f"_kernel.{endings.get(sys.platform, 'so')}"


def structure(name: str, **fields: Any) -> type[ctypes.Structure]:
    """A structure of the library with fields in the given order."""
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


def _named(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


MeshStruct = structure(
    "Mesh",
    **_named(c_int64, "vertices edges faces corners width"),
    **_named(c_void_p, "uv edge offset corner edge_layer edge_unit vertex_layer"),
)
LayerStruct = structure("Layer", units=c_int64, **_named(c_void_p, "z positive error jump"))
SettingsStruct = structure(
    "Settings",
    **_named(c_double, "uv_error safety"),
    **_named(c_int64, "op most_faces most_chords least_bends"),
)
RefinedStruct = structure(
    "Refined",
    **_named(c_void_p, "block history"),
    **_named(c_int64, "vertices edges faces corners points chords crossings bends"),
    **_named(c_int64, "edge_terms inside_terms"),
    **_named(c_void_p, "uv edge offset corner edge_layer edge_unit vertex_layer"),
    **_named(c_void_p, "point_first point_edge point_start point_end point_unit point_index"),
    **_named(c_void_p, "point_t point_bend"),
    **_named(c_void_p, "cross_start cross_end cross_chord cross_slot cross_t"),
    **_named(c_void_p, "slot_first slot_unit slot_t slot_bend"),
)
SightStruct = structure(
    "Sight",
    units=c_int64,
    **_named(c_void_p, "least low high positive negative"),
    zeros=c_int64,
)
LinesStruct = structure(
    "Lines",
    **_named(c_int64, "first count lines entries"),
    **_named(c_void_p, "p q t line at offset place unit bend column"),
    units=c_int64,
)
DenseStruct = structure(
    "Dense",
    **_named(c_int64, "rows known units width rectified"),
    **_named(c_void_p, "z uv"),
    uv_width=c_int64,
    **_named(c_void_p, "column bias magnitude error"),
    **_named(c_double, "eps safety"),
    **_named(POINTER(LinesStruct), "edges inside"),
    **_named(c_int64, "edge_way inside_way"),
    bounds=c_void_p,
)


@cache
def library() -> Any:
    """The loaded library; None, with one line in the log, where there is none that works.

    The environment variable SPLINECAM_KERNEL names another library, or says ``off``.
    """
    chosen = os.environ.get("SPLINECAM_KERNEL")
    if chosen == "off":
        return None
    path = Path(chosen) if chosen else Path(__file__).parent / file_name()
    try:
        lib = ctypes.CDLL(str(path))
        lib.sc_version.restype = c_int64
        if lib.sc_version() != VERSION:
            raise OSError(f"{path.name} has version {lib.sc_version()}, not {VERSION}")
    except (OSError, AttributeError) as reason:
        _log.warning(
            "The compiled kernel is not there, so everything takes several times as long (%s). "
            "Installing splinecam again builds it.",
            reason,
        )
        return None
    _declare(lib)
    return lib


def _declare(lib: Any) -> None:
    lib.sc_pool_new.restype, lib.sc_pool_new.argtypes = c_void_p, [c_int64]
    lib.sc_pool_free.restype, lib.sc_pool_free.argtypes = None, [c_void_p]
    lib.sc_free.restype, lib.sc_free.argtypes = None, [c_void_p]
    functions: dict[str, list[Any]] = {
        "sc_refine": [MeshStruct, LayerStruct, SettingsStruct, RefinedStruct],
        "sc_see": [c_void_p, c_int64, c_int64, c_int64, SightStruct],
        "sc_fill": [c_void_p, c_int64, c_int64, LinesStruct, c_int64, SightStruct],
        "sc_dense_layer": [DenseStruct, c_void_p, SightStruct],
    }
    for name, arguments in functions.items():
        function = getattr(lib, name)
        function.restype = c_int
        function.argtypes = [c_void_p, *(_by_reference(kind) for kind in arguments)]


def _by_reference(kind: Any) -> Any:
    return POINTER(kind) if issubclass(kind, ctypes.Structure) else kind
