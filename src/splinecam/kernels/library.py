"""The shared library and the CUDA sources: their places, structures, functions and compilation.

The environment variable SPLINECAM_KERNEL names another library, or switches the kernel off with the
value ``off``. Without the library everything works by tensor operations, several times slower.

The compiler is NVRTC, which comes with CUDA builds of torch.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

_TYPES: dict[str, Any] = {
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "i64": ctypes.c_int64,
    "void": None,
}


def source_of(name: str) -> Path:
    """The path of a file of this package."""
    return Path(__file__).with_name(name)


@cache
def structures(source: str) -> dict[str, Any]:
    """The structures that a source defines, by name; ``real`` names their arrays of float64.

    >>> list(structures("kernel.h"))[0], structures("kernel.h")["sc_mesh"].width.size
    ('sc_mesh', 8)
    """
    found = re.findall(r"typedef struct \{([^}]*)\} (\w+);", code_of(source))
    return {name: _structure(name, body) for body, name in found}


def declare(library: Any, header: str) -> None:
    """Declare the types of the functions that a header exports."""
    exported = re.findall(r"SC_EXPORT ([\w ]+?[ *])(\w+)\(([^)]*)\);", code_of(header))
    for result, name, arguments in exported:
        function = getattr(library, name)
        function.restype = _type_of(result)
        function.argtypes = [_type_of(x) for x in arguments.split(",") if x != "void"]


def code_of(source: str) -> str:
    """The text of a source without comments, with the headers of this package in their places."""
    text = re.sub(r"/\*.*?\*/", "", source_of(source).read_text(), flags=re.DOTALL)
    return re.sub(r'#include "(\w+\.h)"', lambda header: code_of(header[1]), text)


def _structure(name: str, body: str) -> type[ctypes.Structure]:
    fields: dict[str, Any] = {}
    real = set()
    for line in filter(None, map(str.strip, body.split(";"))):
        first, *others = line.split(",")
        kind = first.replace("*", " ").rsplit(maxsplit=1)[0]
        for declared in (first, *(f"{kind} {other}" for other in others)):
            field = re.split(r"[\s*]+", declared)[-1]
            fields[field] = _type_of(declared)
            if kind.endswith("double") and "*" in declared:
                real.add(field)
    members = {"_fields_": list(fields.items()), "real": frozenset(real)}
    return type(name, (ctypes.Structure,), members)


def _type_of(declaration: str) -> Any:
    """The type of a declaration such as ``const double *uv``: pointers are addresses."""
    words = declaration.replace("const ", "").split()
    return ctypes.c_void_p if "*" in declaration else _TYPES[words[0]]


VERSION = 9  # of the interface, as sc_version() returns it

# What functions return; the last two are -2 and -1.
STATUS = ("done", "unchanged", "degenerate", "too many faces", "malformed", "no memory")

structs: Any = SimpleNamespace(**structures("walk.h"))  # by their names in C

_log = logging.getLogger("splinecam")
_ENDINGS = {"win32": "dll", "darwin": "dylib"}


@cache
def library() -> Any:
    """The loaded library, or None, with one line in the log, if there is no working one."""
    chosen = os.environ.get("SPLINECAM_KERNEL")
    if chosen == "off":
        return None
    name = f"_kernel.{_ENDINGS.get(sys.platform, 'so')}"
    path = Path(chosen) if chosen else source_of(name)
    try:
        lib = ctypes.CDLL(str(path))
        declare(lib, "walk.h")
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


_THREADS, _FEW_THREADS = 256, 32  # of one block; and where there is too little for all processors
_MANY = 1 << 22

Launch = Callable[[str, str, Any, int], None]
"""Runs a step of a source, both by name, with the source's structure for so many items."""


def launcher(device: torch.device) -> Launch:
    """A function that runs steps on torch's current stream of a GPU."""
    driver = torch.cuda._utils._get_gpu_runtime_library()

    @cache
    def functions(source: str) -> dict[str, ctypes.c_void_p]:
        code, module = _compile(source, device), ctypes.c_void_p()
        _check(driver.cuModuleLoadData(ctypes.byref(module), code))
        found: dict[str, ctypes.c_void_p] = {}
        for name in re.findall(r"^STEP\((\w+),", code_of(source), re.MULTILINE):
            found[name] = ctypes.c_void_p()
            called = f"all_{name}".encode()
            _check(driver.cuModuleGetFunction(ctypes.byref(found[name]), module, called))
        return found

    def launch(source: str, step: str, run: Any, count: int) -> None:
        with torch.cuda.device(device):
            function = functions(source)[step]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            threads = _THREADS if count > _MANY else _FEW_THREADS
            items, blocks = ctypes.c_int64(count), -(-count // threads)
            arguments = (ctypes.c_void_p * 2)(ctypes.addressof(run), ctypes.addressof(items))
            sizes = (blocks, 1, 1, threads, 1, 1, 0)
            _check(driver.cuLaunchKernel(function, *sizes, stream, arguments, None))

    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # so that torch has made a context
        functions("refine.cu")
    return launch


def _compile(source: str, device: torch.device) -> bytes:
    """The machine code of a source for a GPU."""
    nvrtc, program = torch.cuda._utils._get_gpu_rtc_library(), ctypes.c_void_p()
    major, minor = torch.cuda.get_device_capability(device)
    options = [f"--gpu-architecture=sm_{major}{minor}".encode(), b"--fmad=false"]
    code = ctypes.c_char_p(code_of(source).encode())
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, source.encode(), 0, None, None))
    arguments = (ctypes.c_char_p * len(options))(*options)
    _check(nvrtc.nvrtcCompileProgram(program, len(options), arguments))
    size = ctypes.c_size_t()
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    made = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, made))
    _check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
    return made.raw


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA reports error {status}")
