# SPDX-License-Identifier: Apache-2.0
"""bench/cuda_trace.py on the trace of a program that has no GPU."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "bench" / "cuda_trace.py"
TRACE = """\
kernel\t1000000\t1004000\t7\t0\t_ZN5kvarn4cuda13CombineKernelILi1EEEvi
sync\t1000500\t1000600\t7\t0\tstream synchronize
copy\t1007000\t1008000\t7\t0\tdevice to host
kernel\t1006000\t1010000\t7\t3\tplain_name
sync\t1009000\t1009500\t7\t0\tstream synchronize
"""


def trace(folder: Path, *words: str) -> subprocess.CompletedProcess:
    (folder / "library.so").write_bytes(b"")
    (folder / "program.py").write_text(
        "import os, sys\n"
        "assert os.environ['CUDA_INJECTION64_PATH'].endswith('library.so')\n"
        f"if len(sys.argv) > 1: open('cuda_trace.tsv', 'w').write({TRACE!r})\n"
        "sys.exit(3)\n"
    )
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_report(tmp_path: Path) -> None:
    words = ("--library", "library.so", "--", sys.executable, "program.py")
    done = trace(tmp_path, *words, "write")
    assert done.returncode == 3, done.stderr  # the program's
    assert "0.01 ms, of which idle 0.00 ms; 3 kernels and copies" in done.stdout
    lines = {line.split(maxsplit=4)[-1]: line.split()[:4] for line in done.stdout.splitlines()}
    assert lines["plain_name [graph]"] == ["1", "0.004", "4.00", "2.00"]
    assert lines["device to host"] == ["1", "0.001", "1.00", "0.00"]
    assert any("CombineKernel" in name for name in lines)
    assert "2 stream synchronize" in done.stdout
    last = trace(tmp_path, "--last-ms", "0.005", *words, "write")
    assert "2 kernels and copies" in last.stdout
    assert "1 stream synchronize" in last.stdout


def test_wrong_uses_say_what_to_do(tmp_path: Path) -> None:
    words = ("--library", "library.so", "--", sys.executable, "program.py")
    assert "is libcupti found?" in trace(tmp_path, *words).stderr
    assert "no such file" in trace(tmp_path, "--library", "none.so", "--", "true").stderr
    assert "Give its command" in trace(tmp_path, "--library", "library.so").stderr
