# SPDX-License-Identifier: Apache-2.0
"""Gives attention layers of our dtypes pages of records.

Why: this vLLM asks the layer, not the backend, for the size of its pages.
How: Attention.get_kv_cache_spec is wrapped; layers of other dtypes go through to it.
Gone when: vLLM has AttentionBackend.customize_spec, which replaces this file.
"""

import torch

from ...presets import BY_NAME
from .specs import PageShape, RecordSpec


def install() -> None:
    from vllm.model_executor.layers.attention import Attention

    original = Attention.get_kv_cache_spec
    if getattr(original, "kvarn", False):
        return

    def get_kv_cache_spec(self, vllm_config):
        preset = BY_NAME.get(self.kv_cache_dtype)
        if preset is None:
            return original(self, vllm_config)
        shape = PageShape(preset, self.num_kv_heads, self.head_size)
        return RecordSpec(
            block_size=preset.group,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            dtype=torch.uint8,
            record_page_bytes=shape.record_page_bytes,
            group=preset.group,
        )

    get_kv_cache_spec.kvarn = True
    Attention.get_kv_cache_spec = get_kv_cache_spec
