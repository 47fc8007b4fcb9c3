# SPDX-License-Identifier: Apache-2.0
"""Divergence of the next-token distribution inside stock vLLM from that with its own cache.

Usage: vllm_divergence.py MODEL TEXT BASE CACHE_DTYPE; run by a Python that has vLLM and kvarn, with
VLLM_ENABLE_V1_MULTIPROCESSING=0. With CACHE_DTYPE auto the distributions go to the file BASE
(600 MB), else they are compared with it.

As llama-perplexity measures: windows of 2,048 tokens, of which the second half is scored. Prompts
are read in steps of one tile, so that a token reads its own tile exactly and all earlier ones
packed, as llama.cpp's device with KVARN_SINK=0 KVARN_TAIL=0 does. The distributions are those of
which vLLM picks its prompt logprobs.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt

WINDOWS = 3
WINDOW = 2048
TILE = 128


def keep_distributions(worker) -> list[torch.Tensor]:
    """Collects the logprobs [tokens, vocabulary] of every step whose prompt logprobs are wanted."""
    sampler, kept = worker.model_runner.sampler, []
    compute = sampler.compute_logprobs

    def computing(logits: torch.Tensor) -> torch.Tensor:
        kept.append(compute(logits))
        return kept[-1]

    sampler.compute_logprobs = computing
    return kept


def distributions(model: str, cache: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Logprobs [scored tokens, vocabulary], and the tokens that followed."""
    llm = LLM(
        model=model,
        dtype="float32",
        kv_cache_dtype=cache,
        max_model_len=WINDOW + TILE,
        enforce_eager=True,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=512 << 20,
        max_num_batched_tokens=TILE,
        max_num_seqs=1,
    )
    (kept,) = llm.collective_rpc(keep_distributions)
    ids = llm.get_tokenizer().encode(text)
    sampling = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    rows, followers = [], []
    for start in range(0, WINDOWS * WINDOW, WINDOW):
        window = ids[start : start + WINDOW]
        kept.clear()
        llm.generate([TokensPrompt(prompt_token_ids=window)], sampling, use_tqdm=False)
        found = torch.cat(kept)
        assert len(found) == WINDOW - 1, f"{len(found)} distributions of {WINDOW} tokens"
        rows.append(found[WINDOW // 2 :].numpy())
        followers.append(window[WINDOW // 2 + 1 :])
    return np.concatenate(rows), np.concatenate(followers)


def main() -> None:
    model, text, base, cache = sys.argv[1], Path(sys.argv[2]).read_text(), *sys.argv[3:]
    found, followers = distributions(model, cache, text)
    if cache == "auto":
        np.save(base, found)
        return
    exact = np.load(base)
    divergence = np.array(
        [np.dot(np.exp(p), p - q) for p, q in zip(exact.astype(np.float64), found, strict=True)]
    )
    at = np.arange(len(followers)), followers
    ratio = np.exp((exact[at] - found[at]).mean(dtype=np.float64))
    same = (exact.argmax(1) == found.argmax(1)).mean()
    print(
        f"{cache}: mean KLD {divergence.mean():.5f} +- "
        f"{divergence.std() / len(divergence) ** 0.5:.5f}, median {np.median(divergence):.5f}, "
        f"99.9 % {np.quantile(divergence, 0.999):.4f}, same top {100 * same:.1f} %, "
        f"perplexity ratio {ratio:.4f}, {len(divergence)} tokens"
    )


main()
