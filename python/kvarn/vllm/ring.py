# SPDX-License-Identifier: Apache-2.0
"""Room for the exact rows of running requests, owned by vLLM's scheduler.

A ring is cut into pages as large as a cache page; each is the state of one pseudo layer, of which
the scheduler gives every running request one block. So it is counted in the capacity, and
preemption, abort and re-use are the scheduler's business.
"""

from dataclasses import dataclass

import torch
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import CircularBufferSpec, KVCacheLayout


@dataclass(frozen=True)
class RingShape:
    """Rows are exact rows and sums over queries (kvarn_paged.h)."""

    rows: int  # exact rows: a tile and the tokens that may be taken back
    history: int
    page_bytes: int
    row_bytes: int

    @property
    def page_rows(self) -> int:
        return self.page_bytes // self.row_bytes

    @property
    def n_pages(self) -> int:
        return -(-(self.rows + self.history) // self.page_rows)


@dataclass
class RingMetadata:
    block_table: torch.Tensor  # int32 [requests, at least 1]


class RingMetadataBuilder(AttentionMetadataBuilder[RingMetadata]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> RingMetadata:
        return RingMetadata(common_attn_metadata.block_table_tensor)


class RingBackend(AttentionBackend):
    """Only holds pages; attention is computed by the layer that the ring belongs to."""

    @staticmethod
    def get_name() -> str:
        return "KVARN_RING"

    @staticmethod
    def get_impl_cls():
        raise NotImplementedError("a ring has no attention of its own")

    @staticmethod
    def get_builder_cls():
        return RingMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int]:
        return [128]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return (KVCacheLayout.LBHNC,)


class RingLayer(torch.nn.Module, AttentionLayerBase):
    """One page of the ring of each request, for one attention layer."""

    def __init__(self, page_bytes: int) -> None:
        super().__init__()
        self.page_bytes = page_bytes
        self.kv_cache = torch.tensor([])  # uint8 [blocks, 1, 1, page_bytes] once bound

    def get_attn_backend(self) -> type[AttentionBackend]:
        return RingBackend

    def get_kv_cache_spec(self, vllm_config) -> CircularBufferSpec:
        return CircularBufferSpec(
            block_size=128,
            num_kv_heads=1,
            head_size=self.page_bytes,
            head_size_v=0,
            dtype=torch.uint8,
            num_head_slots=1,
            tokens_per_state=128,
            state_content_bytes=self.page_bytes,
        )
