# SPDX-License-Identifier: Apache-2.0
"""The host runs a model that `kvarn bench model` has written, on a preset too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python"


@pytest.mark.parametrize("cache", [None, "kvarn_k4v2_g128"])
def test_runs(cache, run_llama, tmp_path):
    model = tmp_path / "model.gguf"
    argv = [sys.executable, "-m", "kvarn.cli", "bench", "model", "--out", str(model)]
    subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=True)
    run = run_llama(
        "llama-bench",
        *("-m", model, "-p", "0", "-n", "4", "-d", "600", "-r", "1", "-fa", "1", "-o", "json"),
        cache=cache,
    )
    (test,) = json.loads(run.stdout)
    assert test["n_depth"] == 600 and test["avg_ts"] > 0
