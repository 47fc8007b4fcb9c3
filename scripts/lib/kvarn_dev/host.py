# SPDX-License-Identifier: Apache-2.0
"""Runs a stock llama.cpp tool for a test and keeps all that it said."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import caches


@dataclass(frozen=True)
class HostRun:
    argv: list[str]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


def run_llama(
    program: Path,
    *args: str | Path,
    cache: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
    check: bool = True,
) -> HostRun:
    """Runs `program` to its end.

    `cache` adds the arguments and environment of a KV cache: a stock type such as "q8_0" or a
    device such as "kvarn_k4v2_g128". With `check` a failure is an AssertionError that shows the
    command and the end of its output.
    """
    chosen = caches.by_name(cache) if cache else caches.Cache("", ())
    argv = [str(word) for word in (program, *args, *chosen.args)]
    start = time.monotonic()
    process = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **chosen.env, **(env or {})},
        timeout=timeout,
        check=False,
    )
    run = HostRun(
        argv=argv,
        returncode=process.returncode,
        stdout=process.stdout.decode(errors="replace"),
        stderr=process.stderr.decode(errors="replace"),
        seconds=time.monotonic() - start,
    )
    if check and run.returncode != 0:
        raise AssertionError(f"status {run.returncode}: {' '.join(argv)}\n{run.stderr[-3000:]}")
    return run
