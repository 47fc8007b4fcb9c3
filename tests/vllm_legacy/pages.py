# SPDX-License-Identifier: Apache-2.0
"""Names, specs, groups of layers and capacity as vLLM 0.25.1 makes them of this lane's classes."""

from types import SimpleNamespace

import torch
import vllm.platforms
from kvarn.presets import BY_NAME, PRESETS
from kvarn.vllm import register, versions
from kvarn.vllm.legacy.specs import PageShape, RecordSpec, TailSpec
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs

NAME = "kvarn_k4v2_g128"


def check_names() -> None:
    from vllm.config import CacheConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    assert CacheConfig(cache_dtype=NAME).cache_dtype == NAME
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    assert parser.parse_args(["--kv-cache-dtype", NAME]).kv_cache_dtype == NAME
    assert parser.parse_args([]).kv_cache_dtype == "auto"


def check_refusal() -> None:
    from vllm.v1.attention.selector import AttentionSelectorConfig

    config = AttentionSelectorConfig(128, torch.bfloat16, NAME, None)
    try:
        vllm.platforms.current_platform.get_attn_backend_cls(None, config)
    except ValueError as error:
        assert "runs on CUDA only" in str(error), error
    else:
        raise AssertionError("a CPU was accepted")


def check_pages() -> None:
    for preset in PRESETS:
        for heads, dim in ((8, 128), (1, 128), (4, 256), (8, 80), (2, 64)):
            shape = PageShape(preset, heads, dim)
            page, stride = shape.tail_page_bytes, shape.row_stride
            assert page % stride == 0 and page % shape.record_page_bytes == 0, shape
            assert stride % 16 == 0 and stride >= 2 * dim, shape
            assert 2 * heads * 128 * stride <= page, shape


def check_capacity() -> None:
    """8B-like in bfloat16, 100 GiB: 17,408 tokens a request, everything counted."""
    shape = PageShape(BY_NAME[NAME], 8, 128)
    records = RecordSpec(
        block_size=128,
        num_kv_heads=8,
        head_size=128,
        dtype=torch.uint8,
        record_page_bytes=shape.record_page_bytes,
    )
    tail = TailSpec(
        block_size=128,
        num_kv_heads=1,
        head_size=shape.tail_page_bytes,
        dtype=torch.uint8,
        attention_chunk_size=128,
        page_bytes=shape.tail_page_bytes,
        lookback=0,
    )
    layers = [f"model.layers.{i}.self_attn.attn" for i in range(32)]
    specs = dict.fromkeys(layers, records)
    specs.update({f"{name}.kvarn_tail": tail for name in layers})
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=17408, original_max_model_len=17408),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=8192
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        cache_config=SimpleNamespace(num_gpu_blocks_override=None),
        kv_transfer_config=None,
    )
    memory = 100 << 30
    made = get_kv_cache_configs(config, [specs], [memory])[0]
    sizes = [group.kv_cache_spec.block_size for group in made.kv_cache_groups]
    assert sizes == [640, 128], sizes
    tokens, _ = get_kv_cache_capacity(config, made)
    plain = memory // (32 * 2 * 8 * 128 * 2)
    print(f"{tokens:,} tokens instead of {plain:,}: {tokens / plain:.2f} times as many")
    assert tokens > 4.2 * plain


if __name__ == "__main__":
    vllm.platforms._current_platform = CpuPlatform()
    assert versions.lane() is versions.Lane.LEGACY, versions.problem()
    register()
    register()  # vLLM calls it in every process, and may call it again
    check_names()
    check_refusal()
    check_pages()
    check_capacity()
