# SPDX-License-Identifier: Apache-2.0
"""Perplexity of a model inside stock vLLM with a KV cache; run by a Python that has vLLM and kvarn.

Usage: vllm_perplexity.py MODEL CACHE_DTYPE TEXT

Prompts are read in chunks of one tile, so that every tile but the newest is read packed: a prompt
that fits one step attends to its own exact rows and would show nothing. The first 256 tokens of
each window are not counted.
"""

import math
import sys
from pathlib import Path

from vllm import LLM, SamplingParams

WINDOWS = 2
CHARACTERS = 6000
SKIPPED = 256


def main() -> None:
    model, cache, text = sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text()
    llm = LLM(
        model=model,
        dtype="float32",
        kv_cache_dtype=cache,
        max_model_len=2048,
        enforce_eager=True,
        kv_cache_memory_bytes=512 << 20,
        max_num_batched_tokens=128,
        max_num_seqs=4,
    )
    sampling = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    found = []
    for start in range(0, WINDOWS * CHARACTERS, CHARACTERS):
        (output,) = llm.generate([text[start : start + CHARACTERS]], sampling)
        pairs = list(zip(output.prompt_token_ids, output.prompt_logprobs, strict=True))[1:]
        found += [entry[token].logprob for token, entry in pairs][SKIPPED:]
    print(f"{cache}: perplexity {math.exp(-sum(found) / len(found)):.4f} of {len(found)} tokens")


main()
