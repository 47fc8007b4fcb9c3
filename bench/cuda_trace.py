#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program and says what its GPU did: time by kernel, idle gaps, synchronisations.

What it is made of, a line each, stays in ./cuda_trace.tsv.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

LONGEST_NAME = 90
EXAMPLE = """\
example: the last 100 ms of a decoding llama.cpp
  bench/cuda_trace.py --library build/cuda/tests/cuda/libkvarn_cuda_trace.so --last-ms 100 -- \\
    llama-bench -m model.gguf -ngl 99 -fa 1 -p 0 -n 64 -d 8192
"""


def read(path: Path) -> list[tuple]:
    """(kind, begin ns, end ns, name) by begin."""
    lines = [line.split("\t", 5) for line in path.read_text().splitlines()]
    names = readable({line[5] for line in lines})
    rows = []
    for kind, begin, end, _stream, graph, name in lines:
        in_graph = " [graph]" if graph != "0" else ""
        rows.append((kind, int(begin), int(end), names[name] + in_graph))
    return sorted(rows, key=lambda row: row[1])


def readable(names: set[str]) -> dict[str, str]:
    """Kernels without arguments, demangled where there is a c++filt."""
    given = sorted(names)
    shown = given
    if tool := shutil.which("c++filt") or shutil.which("cu++filt"):
        text = "\n".join(given)
        done = subprocess.run([tool], input=text, capture_output=True, text=True, check=True)
        shown = done.stdout.splitlines()
    plain = [
        re.sub(r"\([a-z_ ]+\)(?=[-\d])", "", name).removeprefix("void ").split("(")[0]
        for name in shown
    ]
    return {old: new[:LONGEST_NAME] for old, new in zip(given, plain, strict=True)}


def report(rows: list[tuple], last_ms: float, top: int) -> None:
    work = [row for row in rows if row[0] != "sync"]
    if not work:
        sys.exit("The program gave the GPU no work, or CUDA did not load the library.")
    end = max(row[2] for row in work)
    since = end - last_ms * 1e6 if last_ms else 0
    work = [row for row in work if row[1] >= since]
    found = defaultdict(lambda: [0, 0, 0])  # count, ns, ns idle before
    busy_until = work[0][1]
    idle = 0
    for _kind, begin, finish, name in work:
        entry = found[name]
        gap = max(begin - busy_until, 0)
        idle += gap
        entry[0] += 1
        entry[1] += finish - begin
        entry[2] += gap
        busy_until = max(busy_until, finish)
    span = (busy_until - work[0][1]) / 1e6
    print(f"{span:.2f} ms, of which idle {idle / 1e6:.2f} ms; {len(work)} kernels and copies")
    print(f"{'count':>7} {'ms':>9} {'us each':>8} {'us idle before':>14}  name")
    for name, (count, ns, gap) in sorted(found.items(), key=lambda i: -i[1][1])[:top]:
        print(
            f"{count:7d} {ns / 1e6:9.3f} {ns / count / 1e3:8.2f} {gap / count / 1e3:14.2f}  {name}"
        )
    syncs = defaultdict(int)
    for kind, begin, _finish, name in rows:
        if kind == "sync" and begin >= work[0][1]:
            syncs[name] += 1
    for name, count in sorted(syncs.items()):
        print(f"{count:7d} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, required=True, help="libkvarn_cuda_trace.so")
    parser.add_argument("--last-ms", type=float, default=0, help="look at the end only")
    parser.add_argument("--top", type=int, default=25, help="so many lines of kernels")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --")
    opts = parser.parse_args()
    command = opts.command[1:] if opts.command[:1] == ["--"] else opts.command
    if not command:
        parser.error("which program? Give its command after --")
    if not opts.library.exists():
        parser.error(f"--library {opts.library}: no such file")
    trace = Path("cuda_trace.tsv")
    trace.unlink(missing_ok=True)
    env = {**os.environ, "CUDA_INJECTION64_PATH": str(opts.library.resolve())}
    program = subprocess.run(command, env=env, check=False)
    if not trace.exists():
        sys.exit("No trace: does the program use CUDA, and is libcupti found?")
    report(read(trace), opts.last_ms, opts.top)
    sys.exit(program.returncode)


if __name__ == "__main__":
    main()
