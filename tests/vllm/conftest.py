# SPDX-License-Identifier: Apache-2.0
"""Runs stock vLLM for the tests: each engine in a process of its own, the reference only once.

scripts/test --vllm prepares everything beforehand.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvarn_dev import vllm
from kvarn_dev.paths import DATA

HERE = Path(__file__).parent
N_TOKENS = 24
# Where stock vLLM's own two best tokens are no further apart than this, 8-bit records may prefer
# the other one: the logits of SmolLM2 move by up to 0.05 each.
NEAR_TIE = 0.1


@dataclass(frozen=True)
class Run:
    """What an engine did, or the end of its output if it failed."""

    returncode: int
    output: str
    found: dict | list

    def text(self, round_number: int = 0) -> list[dict]:
        return self.found["rounds"][round_number]

    def metric(self, name: str) -> float:
        return self.found["metrics"][f"vllm:{name}"]


def pytest_addoption(parser) -> None:
    group = parser.getgroup("vllm")
    group.addoption(
        "--all-mixes", action="store_true", help="test_mixes.py: all mixes, not the small slice"
    )
    group.addoption(
        "--mix", type=int, help="test_mixes.py: only this mix and those that it may follow from"
    )


def run_engine(folder: Path, engine: dict, rounds: list, tokens: int = N_TOKENS) -> Run:
    job = {"engine": engine, "rounds": rounds, "tokens": tokens, "caches": True}
    return run_program(folder, "engine.py", job, 600)


def run_program(folder: Path, program: str, job: dict, timeout: int) -> Run:
    """Gives a job to a program of this folder in vLLM's environment. job["engine"] has arguments of
    LLM, to which defaults are added."""
    defaults = {
        "model": str(vllm.MODEL),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 2048,
        "kv_cache_memory_bytes": 512 << 20,
    }
    job = {**job, "engine": {**defaults, **job["engine"]}}
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    process = subprocess.run(
        [str(vllm.PYTHON), str(HERE / program), str(result)],
        input=json.dumps(job).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **vllm.environment()},
        timeout=timeout,
        check=False,
    )
    output = process.stdout.decode(errors="replace")
    found = json.loads(result.read_text()) if result.exists() else {}
    return Run(process.returncode, output, found)


@pytest.fixture(scope="session")
def engine(tmp_path_factory) -> Callable[..., Run]:
    """engine({"kv_cache_dtype": ...}, [[prompt, ...], ...]) runs one that must not fail."""
    folder = tmp_path_factory.mktemp("vllm")

    def run(options: dict, rounds: list, tokens: int = N_TOKENS) -> Run:
        run = run_engine(folder, options, rounds, tokens)
        assert run.returncode == 0, run.output[-6000:]
        return run

    return run


@pytest.fixture(scope="session")
def stepping_engine(tmp_path_factory) -> Callable[[dict], list[dict]]:
    """What stepping_engine.py makes of a job (mixes.job)."""
    folder = tmp_path_factory.mktemp("vllm")

    def run(job: dict) -> list[dict]:
        run = run_program(folder, "stepping_engine.py", job, 1800)
        assert run.returncode == 0, run.output[-6000:]
        return run.found

    return run


@pytest.fixture(scope="session")
def failing_engine(tmp_path_factory) -> Callable[[dict], str]:
    """The output of an engine that must not start."""
    folder = tmp_path_factory.mktemp("vllm")

    def run(options: dict) -> str:
        run = run_engine(folder, options, [[[1, 2, 3]]], 1)
        assert run.returncode != 0, f"started with {options}"
        return run.output

    return run


class Prompts:
    """Token lists of real text, and stock vLLM's greedy answers to them."""

    def __init__(self, stock: Callable[[list], list[dict]], ids: list[int]) -> None:
        self._stock = stock
        self.ids = ids
        self._known: dict[tuple, dict] = {}

    def cut(self, length: int, start: int = 0) -> list[int]:
        """`length` tokens of the text from `start` on."""
        assert start + length <= len(self.ids)
        return self.ids[start : start + length]

    def random(self, seed: int, count: int) -> list[list[int]]:
        """Some from the same few places, so that they share beginnings."""
        draw = random.Random(seed)
        return [
            self.cut(draw.randint(1, 700), draw.choice((0, 0, 500, draw.randint(0, 1500))))
            for _ in range(count)
        ]

    def prepare(self, prompts: list[list[int]]) -> None:
        missing = [p for p in prompts if tuple(p) not in self._known]
        for prompt, answer in zip(missing, self._stock(missing) if missing else [], strict=True):
            self._known[tuple(prompt)] = answer

    def compare(self, prompts: list[list[int]], answers: list[dict]) -> int:
        """Answers are those of stock vLLM, or part at a near-tie. Returns how many part."""
        self.prepare(prompts)
        parted = 0
        for prompt, answer in zip(prompts, answers, strict=True):
            wanted = self._known[tuple(prompt)]
            at = first_difference(wanted["tokens"], answer["tokens"])
            if at is None:
                continue
            gap = wanted["gaps"][at]
            assert gap <= NEAR_TIE, (
                f"a prompt of {len(prompt)} tokens: token {at} of the answer differs, where stock "
                f"vLLM's best is {gap:.3f} ahead"
            )
            parted += 1
        return parted


def first_difference(one: list[int], other: list[int]) -> int | None:
    assert len(one) == len(other)
    return next(
        (i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None
    )


@pytest.fixture(scope="session")
def prompts(engine) -> Prompts:
    tokenize = "import sys, json; from tokenizers import Tokenizer; " + (
        f"print(json.dumps(Tokenizer.from_file({str(vllm.MODEL / 'tokenizer.json')!r})"
        ".encode(sys.stdin.read()).ids))"
    )
    text = (DATA / "perplexity.txt").read_text()[:16000]
    process = subprocess.run(
        [str(vllm.PYTHON), "-c", tokenize], input=text.encode(), capture_output=True, check=True
    )

    def stock(wanted: list) -> list[dict]:
        options = {"enable_prefix_caching": False, "max_num_batched_tokens": 2048}
        return engine(options, [wanted]).text()

    return Prompts(stock, json.loads(process.stdout))
