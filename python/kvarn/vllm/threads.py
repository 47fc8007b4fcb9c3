# SPDX-License-Identifier: Apache-2.0
"""Runs shares of a call on as many threads as vLLM gives to torch."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch


def _free_thread() -> None:
    """A new thread inherits the one core that vLLM bound this process' main thread to."""
    cores: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            cores |= os.sched_getaffinity(int(task.name))
        except ProcessLookupError:
            continue
    os.sched_setaffinity(0, cores)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="kvarn", initializer=_free_thread)


def count() -> int:
    return torch.get_num_threads()


def run(work: Callable[[int], object], n_threads: int) -> list:
    """work(0) ... work(n_threads - 1) at the same time; the results in order."""
    if n_threads == 1:
        return [work(0)]
    others = [_pool(n_threads - 1).submit(work, i) for i in range(1, n_threads)]
    return [work(0), *(other.result() for other in others)]
