# SPDX-License-Identifier: Apache-2.0
"""Runs mixes of requests in one engine of vLLM, step by step; runs in vLLM's environment.

Reads a job from standard input (mixes.job) and writes to the file named as its argument, for each
mix, the tokens of every request, with "logprobs" also the best tokens and their logprobs at each,
and by how much vLLM's counters rose.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt

COUNTERS = (
    "num_preemptions",
    "prefix_cache_hits",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)


def counters(llm: LLM) -> dict[str, float]:
    found = {
        m.name.removeprefix("vllm:"): m.value for m in llm.get_metrics() if hasattr(m, "value")
    }
    return {name: found.get(name, 0) for name in COUNTERS}


def play(llm: LLM, mix: dict, logprobs: int | None) -> dict:
    engine = llm.llm_engine
    requests = mix["requests"]
    if mix["forgets"]:
        assert llm.reset_prefix_cache()
    before = counters(llm)
    coming = sorted(range(len(requests)), key=lambda i: requests[i]["arrives"])
    leaving: dict[str, int] = {}  # step at which a request is aborted
    answers = [{"tokens": [], "best": [], "aborted": False} for _ in requests]
    now = 0
    while coming or engine.has_unfinished_requests():
        while coming and requests[coming[0]]["arrives"] <= now:
            i = coming.pop(0)
            _add(engine, f"{mix['number']}:{i}", requests[i], logprobs)
            if requests[i]["leaves"] is not None:
                leaving[f"{mix['number']}:{i}"] = now + requests[i]["leaves"]
        for output in engine.step() if engine.has_unfinished_requests() else []:
            answer = answers[int(output.request_id.split(":")[1])]
            answer["tokens"] = list(output.outputs[0].token_ids)
            answer["best"] = [
                sorted(((v.logprob, t) for t, v in entry.items()), reverse=True)
                for entry in output.outputs[0].logprobs or []
            ]
            if output.finished:
                leaving.pop(output.request_id, None)
        now += 1
        gone = [name for name, at in leaving.items() if at <= now]
        for name in gone:
            del leaving[name]
            answers[int(name.split(":")[1])]["aborted"] = True
        engine.abort_request(gone)
    rise = {name: value - before[name] for name, value in counters(llm).items()}
    return {"answers": answers, "counters": rise}


def _add(engine, name: str, request: dict, logprobs: int | None) -> None:
    sampling = SamplingParams(
        temperature=0,
        max_tokens=request["tokens"],
        ignore_eos=True,
        logprobs=logprobs,
        detokenize=False,
    )
    engine.add_request(name, TokensPrompt(prompt_token_ids=request["prompt"]), sampling)


def main() -> None:
    job = json.load(sys.stdin)
    llm = LLM(**job["engine"], disable_log_stats=False)
    found = [play(llm, mix, job["logprobs"]) for mix in job["mixes"]]
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":  # vLLM's engine process reads this file again
    main()
