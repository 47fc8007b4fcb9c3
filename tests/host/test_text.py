# SPDX-License-Identifier: Apache-2.0
"""Text, quality and memory of the plug-in in stock llama.cpp, beyond 1,500 tokens of context."""

import functools
import re
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"


def counters(log: str) -> dict[str, int]:
    """What the plug-in last said about its work. llama.cpp may lose lines written at exit."""
    pattern = r"rows written (\d+), tiles sealed (\d+) .*attention calls (\d+), generic nodes (\d+)"
    lines = re.findall(pattern, log)
    assert lines, "the plug-in has run no graph"
    names = ("written", "sealed", "attention", "generic")
    return dict(zip(names, map(int, lines[-1]), strict=True))


def kv_mib(log: str) -> float:
    return sum(float(size) for size in re.findall(r"KV buffer size = +([\d.]+) MiB", log))


@pytest.fixture(scope="module")
def answer(run_llama, request):
    """answer(model, cache) greedily continues the long prompt; asked once for fp16."""

    @functools.cache
    def ask(model: str, cache: str, sliding: str = "auto"):
        path = request.getfixturevalue(model)
        args = ["-m", path, "-f", DATA / "prompt.txt", "-n", "24", "-c", "4096", "-fa", "on"]
        args += ["--temp", "0", "-no-cnv", "--no-display-prompt", "-v"]
        return run_llama("llama-completion", *args, cache=cache, env={"KVARN_SLIDING": sliding})

    return ask


@pytest.fixture(scope="module")
def perplexity(run_llama, request):
    """perplexity(model, cache) of 2048 tokens; asked once for fp16."""

    @functools.cache
    def ask(model: str, cache: str) -> float:
        path = request.getfixturevalue(model)
        args = ["-m", path, "-f", DATA / "perplexity.txt", "-c", "2048", "--chunks", "1"]
        run = run_llama("llama-perplexity", *args, "-fa", "on", cache=cache)
        text = run.stdout + run.stderr
        return float(re.search(r"Final estimate: PPL = ([\d.]+)", text).group(1))

    return ask


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_text_behind_a_long_prompt(model, answer):
    expected = answer(model, "f16").stdout
    run = answer(model, "kvarn_k8v8_g128")
    done = counters(run.stderr)
    assert done["written"] > 2000 and done["sealed"] > 0 and done["attention"] > 0
    assert done["generic"] == 0
    print(f"fp16: {expected!r}\nk8v8: {run.stdout!r}")
    assert run.stdout[:16] == expected[:16]
    assert "splits = 1," in run.stderr


@pytest.mark.parametrize(
    ("model", "cache", "limit"),
    [
        ("smollm2", "kvarn_k4v2_g128", 1.15),
        ("smollm2", "kvarn_k8v8_g128", 1.005),
        ("gemma3", "kvarn_k4v2_g128", 1.05),
    ],
)
def test_perplexity_of_2048_tokens(model, cache, limit, perplexity):
    ratio = perplexity(model, cache) / perplexity(model, "f16")
    print(f"{model} {cache}: PPL ratio {ratio:.4f}")
    assert 0.98 < ratio < limit


def test_batches_do_not_matter(run_llama, smollm2_f32):
    """Perplexity at 2 bits with batches of half a tile and of eight tiles. In F32, where the host's
    own sums add 1e-4 at most; reading the tiles of a batch as records would add 10 % and more."""
    args = ["-m", smollm2_f32, "-f", DATA / "perplexity.txt", "-c", "1024", "-b", "1024"]
    args += ["--chunks", "1", "-fa", "on"]
    seen = []
    for batch in (64, 1024):
        env = {"KVARN_SLIDING": "on"}
        run = run_llama(
            "llama-perplexity", *args, "-ub", str(batch), cache="kvarn_k2v2_g128", env=env
        )
        seen.append(float(re.search(r"PPL = ([\d.]+)", run.stdout + run.stderr).group(1)))
    print(f"perplexity with -ub 64 and 1024: {seen}")
    assert abs(seen[0] / seen[1] - 1) < 1e-3


def test_text_from_a_gpu(run_llama, plugins, smollm2):
    """Graphs in pieces, planes in memory that the host does not see, plans shared by layers."""
    text = (DATA / "prompt.txt").read_text()[:2500]
    args = ["-m", smollm2, "-p", text, "-n", "16", "-c", "2048", "-b", "128", "-fa", "on"]
    args += ["--temp", "0", "-no-cnv", "--no-display-prompt", "-v"]
    env = {"KVARN_SLIDING": "on", "GGML_BACKEND_PATH": str(plugins["played gpu"])}
    stock = run_llama("llama-completion", *args, "--device", "CUDA0", env=env)
    run = run_llama("llama-completion", *args, cache="kvarn_k8v8_g128", env=env)
    assert run.stdout[:32] == stock.stdout[:32] and len(run.stdout) > 32
    done = counters(run.stderr)
    assert done["written"] > 500 and done["sealed"] > 0
    assert done["attention"] > 0 and done["generic"] == 0
    assert "(balanced, CUDA) on CUDA0" in run.stderr


def test_layers_on_two_devices(run_llama, plugins, smollm2):
    """What goes from one to the other is copied: neither can be given the other's memory."""
    args = ["-m", smollm2, "-p", "Once upon a time", "-n", "4", "-c", "512", "-fa", "on"]
    args += ["--temp", "0", "-no-cnv", "--no-warmup", "-v", "-ngl", "99"]
    run = run_llama(
        "llama-completion",
        *(*args, "--device", "kvarn_k8v8_g128,kvarn_k8v8_g128:cpu"),
        env={
            "KVARN_SLIDING": "on",
            "GGML_BACKEND_PATH": str(plugins["played gpu"]),
            "GGML_SCHED_DEBUG": "2",
        },
    )
    assert re.search(r"## SPLIT #\d+: kvarn_k8v8_g128:cpu # [1-9].*\[l_out-\d+ ", run.stderr)


@pytest.mark.parametrize(("context", "limit"), [(8192, 0.30), (32768, 0.25)])
def test_memory(context, limit, run_llama, smollm2):
    args = ["-m", smollm2, "-p", "Hello", "-n", "1", "-c", str(context), "-fa", "on"]
    args += ["-no-cnv", "--no-warmup", "-v"]
    run = run_llama("llama-completion", *args, cache="kvarn_k4v2_g128")
    fp16 = context * 30 * 2 * 3 * 64 * 2 / 2**20  # rows, layers, K and V, heads, head dim, bytes
    assert 0 < kv_mib(run.stderr) <= limit * fp16
    assert "splits = 1," in run.stderr


def test_sliding_windows_stay_fp16_unless_asked(run_llama, gemma3):
    args = ["-m", gemma3, "-p", "Hello", "-n", "1", "-c", "8192", "-fa", "on", "-no-cnv"]
    args += ["--no-warmup", "-v"]
    cache = "kvarn_k4v2_g128"
    seen = {}
    for sliding in ("auto", "on", "off"):
        run = run_llama("llama-completion", *args, cache=cache, env={"KVARN_SLIDING": sliding})
        seen[sliding] = re.findall(r"(\d+) of (\d+) tensors quantised", run.stderr)
    assert seen["auto"] == [("6", "6"), ("0", "30")]
    assert seen["on"] == [("6", "6"), ("30", "30")]
    assert seen["off"] == [("6", "6"), ("0", "30")]


def test_ring_of_a_sliding_window(answer):
    """Rows of the ring are re-used: tiles mix old and new positions and are re-opened."""
    run = answer("gemma3", "kvarn_k8v8_g128", "on")
    assert re.search(r"30 of 30 tensors quantised", run.stderr)
    assert counters(run.stderr)["sealed"] > 0
    assert run.stdout[:16] == answer("gemma3", "f16").stdout[:16]


@pytest.mark.parametrize("engine", ["cpu", "played gpu"])
def test_context_shift(engine, run_llama, plugins, smollm2):
    """The oldest tokens are dropped several times; K rows of all layers are rotated in place."""
    args = ["-m", smollm2, "-p", "Once upon a time", "-n", "700", "-c", "512", "-fa", "on"]
    args += ["--temp", "0", "-no-cnv", "--no-display-prompt", "-v", "--context-shift"]
    args += ["--ignore-eos"]
    env = {"KVARN_SLIDING": "on", "GGML_BACKEND_PATH": str(plugins[engine])}
    run = run_llama("llama-completion", *args, cache="kvarn_k8v8_g128", env=env)
    assert counters(run.stderr)["generic"] >= 30
    assert len(run.stdout) > 1000 and "\ufffd" not in run.stdout
