# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of a float32 model with almost lossless records are those of stock vLLM.

A wrong row, a block read too early, a ring that was overwritten or a draft that stayed would change
them at once; 8 bits do not, except at near-ties, of which few are allowed.
"""

import pytest

K8V8 = {"kv_cache_dtype": "kvarn_k8v8_g128"}
LENGTHS = (1, 5, 40, 110, 127, 128, 129, 256, 257, 383, 900)
RANDOM_SEEDS = (1, 2, 3)


@pytest.fixture(scope="module", autouse=True)
def reference(prompts):
    """All answers of stock vLLM by one engine."""
    wanted = [prompts.cut(length) for length in LENGTHS]
    wanted += shared(prompts) + ragged(prompts)
    for seed in RANDOM_SEEDS:
        wanted += prompts.random(seed, 6)
    wanted += [*growing(prompts), repeating(prompts)]
    prompts.prepare([list(p) for p in dict.fromkeys(map(tuple, wanted))])


def shared(prompts) -> list[list[int]]:
    return [prompts.cut(300) + prompts.cut(length, 1000) for length in (1, 20, 90, 200)]


def ragged(prompts) -> list[list[int]]:
    lengths = (3, 250, 128, 517, 64, 700, 127, 391)
    return [prompts.cut(length, 100 * i) for i, length in enumerate(lengths)]


def growing(prompts) -> list[list[int]]:
    return [prompts.cut(127 - i, 50 * i) for i in range(8)]


def repeating(prompts) -> list[int]:
    return prompts.cut(60) * 5


def few(parted: int, of: int) -> bool:
    return parted <= max(1, of // 8)


def test_lengths_around_tiles_one_by_one(engine, prompts):
    wanted = [prompts.cut(length) for length in LENGTHS]
    run = engine({**K8V8, "enable_prefix_caching": False}, [[p] for p in wanted])
    parted = prompts.compare(wanted, [run.text(i)[0] for i in range(len(wanted))])
    assert few(parted, len(wanted))


def test_ragged_requests_and_shared_beginnings(engine, prompts):
    rounds = [ragged(prompts), shared(prompts)[:1], shared(prompts), shared(prompts)]
    run = engine(K8V8, rounds)
    assert run.metric("prefix_cache_hits") >= 256 * 7
    answers = [answer for number in range(len(rounds)) for answer in run.text(number)]
    wanted = [prompt for round_ in rounds for prompt in round_]
    assert few(prompts.compare(wanted, answers), len(wanted))


@pytest.mark.parametrize("chunk", [192, 200, 512])
def test_chunked_prefill(engine, prompts, chunk):
    options = {**K8V8, "max_num_batched_tokens": chunk, "max_num_seqs": 8}
    wanted = ragged(prompts)
    run = engine(options, [wanted])
    assert few(prompts.compare(wanted, run.text()), len(wanted))


def test_preemption(engine, prompts):
    """Each request begins with a tile and four pages of ring and grows by a tile; 23 blocks."""
    options = {**K8V8, "num_gpu_blocks_override": 24, "max_model_len": 1024}
    wanted = growing(prompts)
    run = engine(options, [wanted])
    assert run.metric("num_preemptions") > 0
    assert few(prompts.compare(wanted, run.text()), len(wanted))


def test_ngram_speculation(engine, prompts):
    speculation = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}
    wanted = [*ragged(prompts), repeating(prompts), prompts.cut(300), prompts.cut(127)]
    run = engine({**K8V8, "speculative_config": speculation}, [wanted, wanted])
    drafted, accepted = (
        run.metric(f"spec_decode_num_{what}_tokens") for what in ("draft", "accepted")
    )
    assert 0 < accepted < drafted  # some are taken back
    for number in (0, 1):
        assert few(prompts.compare(wanted, run.text(number)), len(wanted))


@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random_mixes(engine, prompts, seed):
    """Everything at once: small chunks, drafts, shared beginnings, few blocks."""
    speculation = {"method": "ngram", "num_speculative_tokens": 1 + seed, "prompt_lookup_max": 2}
    options = {
        **K8V8,
        "speculative_config": speculation,
        "max_num_batched_tokens": (192, 256, 333)[seed % 3],
        "max_num_seqs": 5,
        "num_gpu_blocks_override": 40,
        "max_model_len": 1024,
    }
    wanted = prompts.random(seed, 6)
    run = engine(options, [wanted, wanted[::-1]])
    for number, order in enumerate((wanted, wanted[::-1])):
        assert few(prompts.compare(order, run.text(number)), len(wanted))
