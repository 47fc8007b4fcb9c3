# SPDX-License-Identifier: Apache-2.0
"""Every wrong use is answered by one clear line, never by an abort or by silence."""

import pytest

DEVICE = "kvarn_k4v2_g128"
ENGINES = ("cpu", "played gpu")


def complete(run_llama, model, *args, cache=DEVICE, env=None):
    base = ["-m", model, "-p", "Hello", "-n", "2", "-c", "2048", "-no-cnv", "--temp", "0"]
    return run_llama("llama-completion", *base, *args, cache=cache, env=env, check=False)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("KVARN_PRESET", "q4_0", "kvarn_k{2,3,4,8}v{2,3,4,8}_g{64,128}"),
        ("KVARN_MODE", "fast", "balanced, published"),
        ("KVARN_TAIL", "-1", "a number of rows"),
        ("KVARN_TAIL", "many", "a number of rows"),
        ("KVARN_SINK", "100", "0 or a multiple of 128"),
        ("KVARN_SLIDING", "maybe", "auto, on, off"),
        ("KVARN_ISA", "sse", "scalar, avx2, avx512, neon"),
    ],
)
def test_bad_setting(variable, value, allowed, run_llama, smollm2):
    run = complete(run_llama, smollm2, env={variable: value})
    assert run.returncode == 1
    assert f"kvarn: not loaded: {variable}={value} is not allowed; allowed: {allowed}" in run.stderr
    assert f"invalid device: {DEVICE}" in run.stderr


def test_unknown_preset(run_llama, smollm2):
    run = complete(run_llama, smollm2, cache="kvarn_k5v5_g128")
    assert run.returncode == 1
    assert "invalid device: kvarn_k5v5_g128" in run.stderr


def test_other_cache_type(run_llama, smollm2):
    run = complete(run_llama, smollm2, "-fa", "on", "-ctk", "q8_0")
    assert run.returncode == 1
    assert "declared q8_0" in run.stderr and "remove -ctk/-ctv" in run.stderr


def test_without_flash_attention(run_llama, smollm2):
    run = complete(run_llama, smollm2, "-fa", "off")
    assert run.returncode == 1
    assert f"device {DEVICE} needs flash attention: run with -fa on" in run.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_cache_kept_off_the_device(engine, run_llama, plugins, smollm2):
    env = {"GGML_BACKEND_PATH": str(plugins[engine])}
    run = complete(run_llama, smollm2, "-fa", "on", "-nkvo", env=env)
    assert run.returncode == 0
    assert run.stderr.count("do not use -nkvo") == 1


@pytest.mark.parametrize("value", ["0", "1"])
def test_graphs_reordered_by_the_host(value, run_llama, plugins, smollm2):
    """The stock CUDA backend would abort on the pieces of a graph that it has reordered."""
    env = {"GGML_BACKEND_PATH": str(plugins["played gpu"]), "GGML_CUDA_GRAPH_OPT": value}
    run = complete(run_llama, smollm2, "-fa", "on", "-ngl", "99", env=env)
    assert run.returncode == 0
    assert run.stderr.count("GGML_CUDA_GRAPH_OPT has no effect") == int(value)
    assert run.stderr.count("CUDA0 is given graphs to optimize") == 1 - int(value)


def test_context_too_small_to_gain(run_llama, plugin_path, smollm2):
    run = complete(run_llama, smollm2, "-c", "256", "-ngl", "99", "-fa", "on")
    assert run.returncode == 0
    assert run.stderr.count("stays fp16: exact tiles would make up most") == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_not_offloaded(engine, run_llama, plugins, smollm2):
    env = {"GGML_BACKEND_PATH": str(plugins[engine])}
    args = ["--device", DEVICE, "-ngl", "10", "-fa", "on"]
    run = complete(run_llama, smollm2, *args, cache=None, env=env)
    assert run.returncode == 0
    assert "offload all layers" in run.stderr


def test_default_device_is_the_configured_preset(run_llama, plugin_path, smollm2):
    """A host without GPU that loads plug-ins by itself uses the first device of ours."""
    env = {"GGML_BACKEND_PATH": str(plugin_path), "KVARN_PRESET": "kvarn_k3v2_g64"}
    args = ["-m", smollm2, "-p", "16", "-n", "2", "-r", "1", "-fa", "1", "-v"]
    run = run_llama("llama-bench", *args, env=env)
    assert "kvarn: kvarn_k3v2_g64 (balanced" in run.stderr


def test_device_none_is_stock(run_llama, plugin_path, smollm2):
    env = {"GGML_BACKEND_PATH": str(plugin_path)}
    run = complete(run_llama, smollm2, "--device", "none", "-lv", "4", cache=None, env=env)
    assert run.returncode == 0
    assert "closing: rows written" not in run.stderr
