# SPDX-License-Identifier: Apache-2.0
"""Stock vLLM on a GPU: greedy answers with records of 8 bits against those of its own cache.

Run on a machine with a GPU, where vLLM 0.25.1 and kvarn (with libkvarn_cuda.so) are installed:
    python3 -m pytest -s tests/vllm_gpu
All engines run at the same time, each in a process of its own; they need a few GB.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINE = HERE.parent / "vllm" / "engine.py"
N_TOKENS = 200
SECONDS = 150  # for all engines
# Where stock vLLM's own two best tokens are no further apart, 8-bit records and other groupings of
# fp16 sums may prefer the other one.
NEAR_TIE = 0.1
K8V8 = "kvarn_k8v8_g128"
GRAPHS = {
    "compilation_config": {
        "mode": 0,
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": list(range(1, 9)),  # no padding: sums as in eager steps
    },
    "enforce_eager": False,
}
CHUNKS = {"kv_cache_dtype": K8V8, "max_num_batched_tokens": 512}
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
# All requests are there before the first step, so that steps are the same in every run.
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
NGRAM = {
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
}
# Arguments of the engine and environment.
JOBS: dict[str, tuple[dict, dict]] = {
    "stock": ({"enable_prefix_caching": False, "max_num_batched_tokens": 8192}, {}),
    "eager": (CHUNKS, ONE_PROCESS),
    "graphs": ({**CHUNKS, **GRAPHS}, ONE_PROCESS),
    "preempted": ({**CHUNKS, "kv_cache_memory_bytes": 11 << 20}, {}),
    "async": ({**CHUNKS, **GRAPHS}, {}),
    "V1 runner": ({**CHUNKS, **GRAPHS}, V1),
    "drafts": ({**CHUNKS, **GRAPHS, **NGRAM}, V1),
    "k4v2": ({**CHUNKS, **GRAPHS, "kv_cache_dtype": "kvarn_k4v2_g128"}, {}),
}


def rounds() -> list[list[list[int]]]:
    draw = random.Random(3)
    text = [draw.randrange(2, 512) for _ in range(2400)]
    ragged = [text[i : i + n] for i, n in enumerate((1, 5, 127, 128, 129, 300, 1000, 1900))]
    shared = [text[:1300] + text[50 * i : 50 * i + 7 * i + 1] for i in range(6)]
    return [ragged, shared, shared, ragged]


def no_gpu() -> str | None:
    """Why the tests cannot run here."""
    try:
        import torch
        import vllm  # noqa: F401
    except ImportError as error:
        return f"not installed: {error}"
    if not torch.cuda.is_available():
        return "no GPU"
    return None


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict]:
    """What each engine did; prints the end of the output of those that failed."""
    reason = no_gpu()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("vllm_gpu")
    subprocess.run([sys.executable, HERE / "random_model.py", folder / "model"], check=True)
    defaults = {
        "model": str(folder / "model"),
        "dtype": "float16",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "kv_cache_memory_bytes": 256 << 20,
        "gpu_memory_utilization": 0.05,
    }
    processes = {}
    for name, (options, environment) in JOBS.items():
        job = {"engine": {**defaults, **options}, "rounds": rounds(), "tokens": N_TOKENS}
        (folder / f"{name}.job").write_text(json.dumps(job))
        with (folder / f"{name}.job").open() as given, (folder / f"{name}.log").open("w") as log:
            processes[name] = subprocess.Popen(
                [sys.executable, ENGINE, folder / f"{name}.json"],
                stdin=given,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
    results = {}
    deadline = time.monotonic() + SECONDS
    for name, process in processes.items():
        try:
            process.wait(timeout=max(deadline - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        result = folder / f"{name}.json"
        if result.exists():
            results[name] = json.loads(result.read_text())
        else:
            print(f"\n===== {name}\n" + (folder / f"{name}.log").read_text()[-5000:])
    return results


def compare(found: dict, name: str, to: str = "stock") -> dict[str, int]:
    """How many answers are the same, part at a near-tie, or are wrong."""
    count = {"same": 0, "near tie": 0, "wrong": 0}
    assert name in found, f"the engine '{name}' failed; its output is above"
    for number, (wanted, got) in enumerate(
        zip(found[to]["rounds"], found[name]["rounds"], strict=True)
    ):
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            pairs = zip(one["tokens"], other["tokens"], strict=True)
            at = next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), None)
            if at is None:
                count["same"] += 1
            elif one["gaps"][at] <= NEAR_TIE:
                count["near tie"] += 1
            else:
                count["wrong"] += 1
                print(f"{name}: round {number}, answer {index}: token {at}, {one['gaps'][at]:.3f}")
    print(f"\n{name} against {to}: {count}")
    return count


@pytest.mark.parametrize("name", ["eager", "graphs", "preempted", "async", "V1 runner", "drafts"])
def test_records_of_8_bits_answer_as_stock(found, name):
    assert compare(found, name)["wrong"] == 0


def test_graphs_answer_as_eager(found):
    count = compare(found, "graphs", "eager")
    assert count["same"] == sum(count.values())


def test_beginnings_were_found_in_the_cache(found):
    assert found["eager"]["metrics"]["vllm:prefix_cache_hits"] > 1000


def test_requests_were_preempted(found):
    assert found["preempted"]["metrics"]["vllm:num_preemptions"] > 0


def test_drafts_were_accepted_and_rejected(found):
    metrics = found["drafts"]["metrics"]
    accepted = metrics["vllm:spec_decode_num_accepted_tokens"]
    assert 0 < accepted < metrics["vllm:spec_decode_num_draft_tokens"]


def test_small_records_begin_as_stock(found):
    """A smoke test: with 4 and 2 bits most answers begin with the same token."""
    assert "k4v2" in found
    answers = [
        (one["tokens"][0], other["tokens"][0])
        for wanted, got in zip(found["stock"]["rounds"], found["k4v2"]["rounds"], strict=True)
        for one, other in zip(wanted, got, strict=True)
    ]
    same = sum(a == b for a, b in answers)
    print(f"\nk4v2: {same} of {len(answers)} first tokens are those of stock")
    assert same >= len(answers) / 2
