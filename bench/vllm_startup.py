# SPDX-License-Identifier: Apache-2.0
"""What the plug-in costs when vLLM starts; run by a Python that has vLLM and kvarn.

Usage: vllm_startup.py MODEL [ROUNDS], with VLLM_ENABLE_V1_MULTIPROCESSING=0

Starts an offline engine in three ways that take turns: with plug-ins off (VLLM_PLUGINS empty), with
kvarn installed but not asked for, and with a kvarn cache of the same memory. Prints, for each, the
least and the median of: seconds to import vLLM, seconds and MiB that kvarn's entry point takes,
seconds to make the engine, and MiB that the process holds then and held at most.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

WAYS = {
    "no plug-in": ("auto", {"VLLM_PLUGINS": ""}),
    "installed": ("auto", {}),
    "k4v2": ("kvarn_k4v2_g128", {}),
}


def resident() -> float:
    """MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def one(model: str, cache: str) -> dict[str, float]:
    begin = time.perf_counter()
    from vllm import LLM

    imported = time.perf_counter()
    spent, taken = 0.0, 0.0
    if os.environ.get("VLLM_PLUGINS") != "":
        import kvarn.vllm

        register = kvarn.vllm.register

        def timed() -> None:
            nonlocal spent, taken
            start, before = time.perf_counter(), resident()
            register()
            spent += time.perf_counter() - start
            taken += resident() - before

        kvarn.vllm.register = timed  # the entry point names it
    start = time.perf_counter()
    LLM(
        model=model,
        dtype="bfloat16",
        kv_cache_dtype=cache,
        max_model_len=2048,
        enforce_eager=True,
        kv_cache_memory_bytes=256 << 20,
    )
    ready = time.perf_counter()
    return {
        "import s": imported - begin,
        "entry point s": spent,
        "engine s": ready - start,
        "entry point MiB": taken,
        "resident MiB": resident(),
        "most resident MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def main() -> None:
    if sys.argv[1] == "--one":
        print("\n" + json.dumps(one(*sys.argv[2:])))
        return
    model, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    found: dict[str, list[dict]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, (cache, environment) in WAYS.items():
            process = subprocess.run(
                [sys.executable, __file__, "--one", model, cache],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            found[name].append(json.loads(process.stdout.splitlines()[-1]))
    for name, runs in found.items():
        said = []
        for what in runs[0]:
            values = [run[what] for run in runs]
            said.append(f"{what} {min(values):.3f} ({statistics.median(values):.3f})")
        print(f"{name}: {', '.join(said)}")


if __name__ == "__main__":
    main()
