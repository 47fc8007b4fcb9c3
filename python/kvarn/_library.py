# SPDX-License-Identifier: Apache-2.0
"""Finds and opens libkvarn.so, which the package carries."""

import ctypes
from functools import cache
from pathlib import Path

from . import __version__, _abi

LIBRARY = Path(__file__).parent / "libkvarn.so"


class KvarnError(RuntimeError):
    """The library refused a call; the text says which and why."""


@cache
def library() -> ctypes.CDLL:
    """The library with argument types set. Raises OSError if it is missing or another version."""
    if not LIBRARY.exists():
        raise OSError(
            f"{LIBRARY} does not exist. The package was not installed but found as a folder; "
            "run: pip install ./python"
        )
    opened = ctypes.CDLL(str(LIBRARY))
    _abi.declare(opened)
    found = opened.kvarn_version().decode()
    if found != __version__:
        raise OSError(
            f"{LIBRARY} has version {found}, the Python package {__version__}; install it again."
        )
    return opened


def check(status: int, what: str) -> None:
    """Raises KvarnError unless `status` is KVARN_OK."""
    if status != 0:
        text = library().kvarn_status_text(status).decode()
        raise KvarnError(f"{what}: {text}")
