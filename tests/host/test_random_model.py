# SPDX-License-Identifier: Apache-2.0
"""The host runs a model that `kvarn bench model` has written, on a preset too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python"


def write_model(path: Path, *more: str) -> Path:
    argv = [sys.executable, "-m", "kvarn.cli", "bench", "model", "--out", str(path), *more]
    subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=True)
    return path


@pytest.mark.parametrize("cache", [None, "kvarn_k4v2_g128"])
def test_runs(cache, run_llama, tmp_path):
    model = write_model(tmp_path / "model.gguf")
    run = run_llama(
        "llama-bench",
        *("-m", model, "-p", "0", "-n", "4", "-d", "600", "-r", "1", "-fa", "1", "-o", "json"),
        cache=cache,
    )
    (test,) = json.loads(run.stdout)
    assert test["n_depth"] == 600 and test["avg_ts"] > 0


@pytest.mark.parametrize("hidden", ["256", "1024"])
def test_rows_that_are_read_beside_attention(hidden, plugins, run_llama, tmp_path):
    """The host puts an output where K and V rows were; the played GPU fails if they are still
    read."""
    model = write_model(
        *(tmp_path / "model.gguf", "--layers", "3", "--heads", "8", "--kv-heads", "8"),
        *("--head-dim", "64", "--hidden", hidden),
    )
    run = run_llama(
        "llama-bench",
        *("-m", model, "-p", "700", "-n", "4", "-r", "1", "-fa", "1", "-o", "json"),
        *("--device", "kvarn_k4v2_g128", "-ngl", "99"),
        env={"KVARN_SLIDING": "on", "GGML_BACKEND_PATH": str(plugins["played gpu"])},
    )
    assert [test["n_prompt"] for test in json.loads(run.stdout)] == [700, 0]


@pytest.mark.parametrize("engine", ["cpu", "played gpu"])
def test_layers_of_different_heads(engine, plugins, run_llama, tmp_path):
    """What layers share on a GPU must fit the largest of them; the played GPU aborts otherwise."""
    model = write_model(
        *(tmp_path / "model.gguf", "--layers", "3", "--heads", "8", "--kv-heads", "1,8,2"),
        *("--head-dim", "64"),
    )
    run = run_llama(
        "llama-bench",
        *("-m", model, "-p", "700", "-n", "4", "-r", "1", "-fa", "1", "-o", "json"),
        *("--device", "kvarn_k4v2_g128", "-ngl", "99"),
        env={"KVARN_SLIDING": "on", "GGML_BACKEND_PATH": str(plugins[engine])},
    )
    assert [test["n_prompt"] for test in json.loads(run.stdout)] == [700, 0]
