# SPDX-License-Identifier: Apache-2.0
"""Keeps two scripts from building the same thing at the same time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from .paths import CACHE
from .ui import console


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Holds a lock in the cache folder; it goes away with the process, however that ends."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"  waiting for another kvarn script that uses {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
