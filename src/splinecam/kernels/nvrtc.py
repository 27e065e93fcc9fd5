"""Compile the steps of a CUDA source for a GPU when they are first needed, and launch them.

The compiler is NVRTC, which comes with CUDA builds of torch.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from splinecam.kernels.structures import code_of

__all__ = ["Launch", "launcher"]

_THREADS = 256  # of one block

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
            items, blocks = ctypes.c_int64(count), -(-count // _THREADS)
            arguments = (ctypes.c_void_p * 2)(ctypes.addressof(run), ctypes.addressof(items))
            sizes = (blocks, 1, 1, _THREADS, 1, 1, 0)
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
