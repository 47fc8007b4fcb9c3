# SPDX-License-Identifier: Apache-2.0
"""What the lane for vLLM 0.25.1 does to vLLM without a GPU, in that version's own code.

Its Python files are looked for in the cache folder (see `TREE`); what they import comes from the
environment of the other vLLM tests. docs/vllm.md says how to put them there.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from kvarn_dev import vllm
from kvarn_dev.paths import CACHE

HERE = Path(__file__).parent
TREE = CACHE / "vllm-0.25.1-tree"


@cache
def missing() -> str | None:
    if not (TREE / "vllm" / "__init__.py").exists():
        return f"no files of vLLM 0.25.1 in {TREE}"
    if not vllm.PYTHON.exists():
        return "no environment of vLLM: scripts/test --vllm makes one"
    return None


def run(script: str) -> str:
    if missing():
        pytest.skip(missing())
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(TREE)]
    process = subprocess.run(
        [str(vllm.PYTHON), HERE / script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"},
        timeout=600,
        check=False,
    )
    output = process.stdout.decode(errors="replace")
    assert process.returncode == 0, output[-5000:]
    return output


def test_rows_and_records_are_where_attention_reads_them():
    print(run("block_life.py"))


def test_names_specs_and_capacity():
    print(run("pages.py"))
