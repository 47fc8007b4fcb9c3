# SPDX-License-Identifier: Apache-2.0
"""Finds and opens libkvarn.so and libkvarn_cuda.so, which the package carries."""

import ctypes
from functools import cache
from pathlib import Path

from . import __version__, _abi, _abi_cuda

LIBRARY = Path(__file__).parent / "libkvarn.so"
CUDA_LIBRARY = LIBRARY.with_name("libkvarn_cuda.so")


class KvarnError(RuntimeError):
    """The library refused a call; the text says which and why."""


def _open(path: Path, install: str) -> ctypes.CDLL:
    if not path.exists():
        raise OSError(
            f"{path} does not exist. The package was not installed but found as a folder, or "
            f"without this part; run: {install}"
        )
    opened = ctypes.CDLL(str(path))
    _abi.declare(opened)
    found = opened.kvarn_version().decode()
    if found != __version__:
        raise OSError(
            f"{path} has version {found}, the Python package {__version__}; install it again."
        )
    return opened


@cache
def library() -> ctypes.CDLL:
    """The library with argument types set. Raises OSError if it is missing or another version."""
    return _open(LIBRARY, "pip install ./python")


@cache
def cuda_library() -> ctypes.CDLL:
    """The kernels for CUDA devices, with the whole of libkvarn; errors as for `library`."""
    opened = _open(CUDA_LIBRARY, "pip install ./python -C cmake.define.KVARN_CUDA=ON")
    _abi_cuda.declare(opened)
    return opened


def check(status: int, what: str) -> None:
    """Raises KvarnError unless `status` is KVARN_OK."""
    if status != 0:
        text = library().kvarn_status_text(status).decode()
        raise KvarnError(f"{what}: {text}")
