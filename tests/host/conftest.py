# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that run the plug-in inside stock llama.cpp.

scripts/test prepares everything beforehand. Run by hand, a fixture fetches or builds what is
missing, which takes minutes the first time.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from kvarn_dev import host, llama, models, paths


@pytest.fixture(scope="session")
def llama_bin() -> Callable[[str], Path]:
    """llama_bin("llama-completion") is the path of that stock program."""
    folder = llama.get() / "bin"

    def find(name: str) -> Path:
        program = folder / name
        assert program.exists(), f"no {program}"
        return program

    return find


@pytest.fixture(scope="session")
def plugin_path() -> Path:
    """The release build of the plug-in, as a full path."""
    path = paths.plugin_path()
    assert path.exists(), f"no {path}: build the release preset first"
    return path


@pytest.fixture(scope="session")
def plugins(plugin_path: Path) -> dict[str, Path]:
    """The plug-in, and the same with a GPU that is played by the host (fake_gpu)."""
    played = paths.fake_gpu_plugin_path()
    assert played.exists(), f"no {played}: build the release preset first"
    return {"cpu": plugin_path, "played gpu": played}


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    """llama-cpp-python with the stock libraries, a folder for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("python")
    llama.unpack_python(folder / "llama_cpp")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M: 30 layers, 3 KV heads of 64 dimensions."""
    return models.get(models.SMOLLM2)


@pytest.fixture(scope="session")
def smollm2_f32(llama_bin: Callable[[str], Path]) -> Path:
    """The same in F32, for tests that compare answers from differently grouped calls."""
    return models.get_f32(models.SMOLLM2, llama_bin("llama-quantize"))


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M: sliding-window layers, one KV head of 256 dimensions."""
    return models.get(models.GEMMA3)


@pytest.fixture(scope="session")
def run_llama(llama_bin: Callable[[str], Path]) -> Callable[..., host.HostRun]:
    """run_llama("llama-bench", "-m", model, cache="kvarn_k4v2_g128"); see kvarn_dev.host."""

    def run(tool: str, *args: str | Path, **options) -> host.HostRun:
        return host.run_llama(llama_bin(tool), *args, **options)

    return run
