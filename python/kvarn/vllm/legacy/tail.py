# SPDX-License-Identifier: Apache-2.0
"""Pseudo layers that hold exact rows, so that vLLM's scheduler owns their memory.

One beside each attention layer: the blocks of its cache group are counted in the capacity, and
preemption, abort and re-use are the scheduler's business.
"""

from dataclasses import dataclass

import torch
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionMetadataBuilder,
)

from .specs import PageShape, TailSpec
from .step import StepKernels


@dataclass
class TailMetadata:
    block_table: torch.Tensor  # int32 [requests][tiles]; null where a tile has no exact rows


class TailMetadataBuilder(AttentionMetadataBuilder[TailMetadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> TailMetadata:
        return TailMetadata(common_attn_metadata.block_table_tensor)


class TailBackend(AttentionBackend):
    """Only holds pages; attention is computed by the layer that they belong to."""

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        raise NotImplementedError("a tail has no attention of its own")

    @staticmethod
    def get_builder_cls():
        return TailMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return [128]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        return (num_blocks, head_size)  # bytes of a page


class TailLayer(torch.nn.Module, AttentionLayerBase):
    """Exact rows of one attention layer, and the kernels it shares with layers of its shape."""

    def __init__(self, shape: PageShape, lookback: int, kernels: StepKernels) -> None:
        super().__init__()
        self.shape = shape
        self.lookback = lookback
        self.kernels = kernels
        self.kv_cache = torch.tensor([])  # uint8 [blocks][bytes of a page] once bound

    def get_attn_backend(self) -> type[AttentionBackend]:
        return TailBackend

    def get_kv_cache_spec(self, vllm_config) -> TailSpec:
        return TailSpec(
            block_size=self.shape.preset.group,
            num_kv_heads=1,
            head_size=self.shape.tail_page_bytes,
            dtype=torch.uint8,
            attention_chunk_size=self.shape.preset.group,
            page_bytes=self.shape.tail_page_bytes,
            lookback=self.lookback,
        )
