# SPDX-License-Identifier: Apache-2.0
"""Runs every test, or the C++ tests under a sanitizer or for Arm, or those inside vLLM."""

import argparse
import os
import subprocess
import sys

from . import llama, models, project, vllm
from .command import StepError
from .main import guarded
from .paths import CACHE, ROOT
from .ui import console


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/test", add_help=False, allow_abbrev=False)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--sanitize", dest="preset", action="store_const", const="asan-ubsan")
    kind.add_argument("--tsan", dest="preset", action="store_const", const="tsan")
    kind.add_argument("--vllm", action="store_true")
    kind.add_argument("--arm", action="store_true")
    parser.add_argument("--no-host", action="store_true")
    return parser.parse_args(argv)


def pytest(folder: str, env: dict[str, str] | None = None) -> None:
    """Runs pytest in the foreground: its own output is the progress."""
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", folder]
    console.print(f"  pytest {folder}")
    everywhere = {"HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis")}
    process = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **everywhere, **(env or {})}, check=False
    )
    if process.returncode == 2:  # pytest's own answer to an interruption
        raise KeyboardInterrupt
    if process.returncode != 0:
        raise StepError(
            f"Tests failed in {folder}.\nCommand: {' '.join(argv)}\n"
            "What to do: read the failures above."
        )


def host_tests() -> None:
    """Tests that run the plug-in inside stock llama.cpp. The models are fetched beforehand."""
    stock = llama.get()
    for model in (models.SMOLLM2, models.GEMMA3):
        models.get(model)
    pytest("tests/host", {"LLAMA_CPP_DIR": str(stock)})


def vllm_tests() -> None:
    """Tests that run the Python package inside stock vLLM."""
    vllm.get()
    vllm.get_model()
    for folder in ("tests/vllm", "tests/vllm_legacy", "tests/vllm_gpu"):
        pytest(folder)


def main() -> int:
    options = parse_args()
    if options.vllm:
        vllm_tests()
        return 0
    if options.arm:
        project.build("neon")
        project.ctest("neon", "--tests-regex", "^emulated_")
        return 0
    preset = options.preset or "release"
    project.build(preset)
    project.ctest(preset)
    if not options.preset:
        pytest("tests/scripts")
        if not options.no_host:
            host_tests()
    console.print("[green]All tests passed.[/green]")
    return 0


if __name__ == "__main__":
    guarded(main)
