# SPDX-License-Identifier: Apache-2.0
"""Greedy answers behind long prompts: 4-bit keys and values against the fp16 cache."""

from pathlib import Path

from kvarn_dev.server import Server, first_gap, serve

DATA = Path(__file__).resolve().parents[2] / "data"
N_PREDICT = 20
# Difference of fp16's two best logits where an answer may part. A mean divergence of .006
# (docs/quality.md) is half the variance of the logits' errors: 0.11 each, 0.15 for the difference
# of two of them, and twice that for the largest of the few partings.
NEAR_TIE = 0.3


def long_prompts() -> list[str]:
    """Five different texts of prose and code, more than 1,500 tokens each."""
    text = (DATA / "perplexity.txt").read_text()
    return [text[at : at + 7800] for at in range(0, 60000, 12500)]


def answers(server: Server) -> list[dict]:
    found = [server.complete(prompt, n_predict=N_PREDICT) for prompt in long_prompts()]
    for answer in found:
        assert answer["timings"]["prompt_n"] > 1500
    return found


def test_k4v4_answers_as_fp16(llama_bin, plugin_path, smollm2, tmp_path):
    binary = llama_bin("llama-server")
    args = ["-c", 4096, "-np", 1]
    with serve(binary, smollm2, tmp_path / "f16.log", [*args, "--device", "none"], {}) as server:
        exact = answers(server)
    device = [*args, "--device", "kvarn_k4v4_g128"]
    env = {"GGML_BACKEND_PATH": str(plugin_path)}
    with serve(binary, smollm2, tmp_path / "kvarn.log", device, env) as server:
        packed = answers(server)
    gaps = [first_gap(*pair) for pair in zip(exact, packed, strict=True)]
    print("gaps where answers part (None: equal):", gaps)
    assert all(gap is None or gap < NEAR_TIE for gap in gaps)
