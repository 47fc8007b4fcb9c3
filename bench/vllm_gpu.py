#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves random prompts from stock vLLM on a GPU, once with each cache dtype.

The model has the shape of an 8B Llama and weights of no meaning. Each cache gets the same memory
and an engine of its own, one after the other, all with CUDA graphs of the decode steps. Figures:
tokens that fit; time of a step in which a batch of long requests decodes and nothing else happens;
a burst of long prompts; many short prompts.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = """\
example (about 5 minutes on an H200; the memory holds two thirds of the burst in bfloat16):
  bench/vllm_gpu.py --caches auto,fp8,kvarn_k4v2_g128 --memory-gib 36 --burst 26 --json speed.json
"""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--caches", default="auto,fp8,kvarn_k4v2_g128", help="by commas")
    parser.add_argument("--layers", type=int, default=32, help="of the model (default: 32)")
    parser.add_argument("--memory-gib", type=float, default=36, help="of the cache")
    parser.add_argument("--prompt", type=int, default=16000, help="tokens of a long prompt")
    parser.add_argument("--output", type=int, default=1024, help="tokens a long prompt is answered")
    parser.add_argument("--burst", type=int, default=26, help="long prompts that come at once")
    parser.add_argument("--batch", type=int, default=16, help="long requests that decode together")
    parser.add_argument("--short", type=int, default=256, help="prompts of 512 tokens, answers 128")
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def model(folder: Path, layers: int) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))


class Engine:
    """An engine and the times at which tokens came."""

    def __init__(self, folder: str, cache: str, opts: argparse.Namespace) -> None:
        from vllm import LLM

        self.made = 0
        self.opts = opts
        self.engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            kv_cache_dtype=cache,
            kv_cache_memory_bytes=int(opts.memory_gib * 2**30),
            max_model_len=-(-(opts.prompt + opts.output) // 128) * 128,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            enable_prefix_caching=False,
            compilation_config={
                "mode": 0,
                "cudagraph_mode": "FULL_DECODE_ONLY",
                "cudagraph_capture_sizes": sorted({1, 8, opts.batch, opts.burst, 32, 64, 128, 256}),
            },
        ).llm_engine

    def run(self, n_requests: int, prompt: int, output: int) -> dict:
        """Random prompts at once. Times in seconds."""
        import random

        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        draw = random.Random(self.made)
        self.made += 1
        parameters = SamplingParams(
            temperature=0, max_tokens=output, ignore_eos=True, detokenize=False
        )
        begin = time.perf_counter()
        for i in range(n_requests):
            tokens = [draw.randrange(2, 32000) for _ in range(prompt)]
            name = f"{self.made}-{i}"
            self.engine.add_request(name, TokensPrompt(prompt_token_ids=tokens), parameters)
        first: dict[str, float] = {}
        count: dict[str, int] = {}
        whole_steps: list[float] = []  # between steps in which all requests got a token
        last = None
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            now = time.perf_counter()
            grown = 0
            for out in outputs:
                n = len(out.outputs[0].token_ids)
                grown += n == count.get(out.request_id, 0) + 1
                count[out.request_id] = n
                first.setdefault(out.request_id, now - begin)
            whole = grown == n_requests
            if whole and last is not None:
                whole_steps.append(now - last)
            last = now if whole else None
        seconds = time.perf_counter() - begin
        return {
            "seconds": seconds,
            "output_tok_s": n_requests * output / seconds,
            "ttft_mean_s": statistics.mean(first.values()),
            "step_ms": 1000 * statistics.median(whole_steps) if len(whole_steps) > 8 else None,
            "whole_steps": len(whole_steps),
        }


def child(opts: argparse.Namespace) -> None:
    folder, cache, result = opts.child.split(":")
    engine = Engine(folder, cache, opts)
    engine.run(2, 600, 8)  # what is compiled when first used
    found = {}
    for name, shape in (
        ("decode", (opts.batch, opts.prompt, 100)),
        ("burst", (opts.burst, opts.prompt, opts.output)),
        ("short", (opts.short, 512, 128)),
    ):
        found[name] = engine.run(*shape)
        print("FIGURES", cache, name, found[name], flush=True)
        Path(result).write_text(json.dumps(found))


def measure(cache: str, folder: Path, opts: argparse.Namespace) -> dict:
    result = folder / f"{cache}.json"
    process = subprocess.run(
        [sys.executable, *sys.argv, "--child", f"{folder}:{cache}:{result}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "INFO"},
        check=False,
    )
    output = process.stdout.decode(errors="replace")
    if not result.exists():
        sys.exit(
            f"{output[-5000:]}\nThe engine with the cache {cache} failed; its output is above."
        )
    if process.returncode != 0:
        print(f"{output[-3000:]}\nThe engine with the cache {cache} ended early.", flush=True)
    found = json.loads(result.read_text())
    tokens = re.search(r"GPU KV cache size: ([\d,]+) tokens", output)
    found["capacity_tokens"] = int(tokens[1].replace(",", "")) if tokens else None
    return found


def show(rows: dict[str, dict]) -> None:
    head = ("cache", "tokens", "step ms", "burst tok/s", "TTFT s", "short tok/s")
    print("".join(f"{title:>18}" for title in head))
    for cache, found in rows.items():
        decode, burst, short = (found.get(name, {}) for name in ("decode", "burst", "short"))
        cells = (
            f"{found['capacity_tokens'] or 0:,}",
            *(
                f"{x:.2f}" if x else "-"
                for x in (
                    decode.get("step_ms"),
                    burst.get("output_tok_s"),
                    burst.get("ttft_mean_s"),
                    short.get("output_tok_s"),
                )
            ),
        )
        print(f"{cache:>18}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    opts = options()
    if opts.child:
        child(opts)
        return
    import torch
    import vllm

    if not torch.cuda.is_available():
        sys.exit("There is no GPU here. Run this where torch.cuda.is_available() is true.")
    machine = {
        "gpu": torch.cuda.get_device_name(),
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "command": " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(machine, flush=True)
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        model(Path(name), opts.layers)
        for cache in opts.caches.split(","):
            rows[cache] = measure(cache, Path(name), opts)
            show(rows)
            if opts.json:
                opts.json.write_text(json.dumps({"machine": machine, "caches": rows}, indent=1))


if __name__ == "__main__":  # vLLM's engine process reads this file again
    main()
