# SPDX-License-Identifier: Apache-2.0
"""Runs one offline engine of vLLM; runs in vLLM's environment.

Reads a job from standard input, {"engine": arguments of LLM, "rounds": [[prompt, ...], ...],
"tokens": n, "caches": bool}, each prompt a list of token ids, and writes what came out to the file
that is named as its argument. A round is given to the engine as a whole.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt


def metrics(llm: LLM) -> dict[str, float]:
    return {m.name: m.value for m in llm.get_metrics() if hasattr(m, "value")}


def main() -> None:
    job = json.load(sys.stdin)
    llm = LLM(**job["engine"], disable_log_stats=False)
    config = llm.llm_engine.vllm_config
    sampling = SamplingParams(
        temperature=0, max_tokens=job["tokens"], ignore_eos=True, logprobs=2, detokenize=False
    )
    rounds = []
    for prompts in job["rounds"]:
        outputs = llm.generate([TokensPrompt(prompt_token_ids=p) for p in prompts], sampling)
        rounds.append([_result(output.outputs[0]) for output in outputs])
    found = {
        "rounds": rounds,
        "metrics": metrics(llm),
        "blocks": config.cache_config.num_gpu_blocks,
    }
    if job.get("caches"):
        found["caches"] = caches(config.compilation_config.static_forward_context)
    Path(sys.argv[1]).write_text(json.dumps(found))


def caches(layers: dict) -> dict[str, dict]:
    """Memory of each layer: type and shape, and bytes from one block to the next."""
    found = {}
    for name, layer in layers.items():
        cache = layer.kv_cache
        block_bytes = cache.stride(0) * cache.element_size()
        found[name] = {
            "dtype": str(cache.dtype),
            "shape": list(cache.shape),
            "block_bytes": block_bytes,
        }
    return found


def _result(completion) -> dict:
    """Tokens, at each the logprobs of the two best, and how far apart these are."""
    gaps, logprobs = [], []
    for entry in completion.logprobs or []:
        best = sorted((value.logprob for value in entry.values()), reverse=True)
        logprobs.append(best[:2])
        gaps.append(best[0] - best[1])
    return {"tokens": list(completion.token_ids), "gaps": gaps, "logprobs": logprobs}


if __name__ == "__main__":  # vLLM's engine process reads this file again
    main()
