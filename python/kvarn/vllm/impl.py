# SPDX-License-Identifier: Apache-2.0
"""Attention of one layer: seal, attend, store (kvarn_paged.h says why in this order)."""

import ctypes

import torch
from vllm.config import get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.v1.attention.backend import AttentionImpl, AttentionType

from .. import _abi
from .._library import check, library
from ..presets import BY_NAME
from . import threads
from .refusal import of_layer, refuse
from .ring import RingLayer, RingShape

# Pairs of a query row and a key below which waking a thread costs more than it saves.
_SMALL = 4096
_DTYPES = {torch.float16: _abi.FP16, torch.bfloat16: _abi.BF16, torch.float32: _abi.FP32}


class KvarnImpl(AttentionImpl):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        refuse(
            kv_cache_dtype,
            of_layer(
                self,
                alibi_slopes,
                sliding_window,
                logits_soft_cap,
                attn_type,
                kv_sharing_target_layer_name,
                sinks,
            ),
        )
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads
        self.preset = BY_NAME[kv_cache_dtype]
        self._config = get_current_vllm_config()
        self._rings: list[RingLayer] = []
        self._ring_names: list[str] = []
        self._ring_pages: ctypes.Array | None = None
        self._step = _abi.PagedStep(
            key_format=self.preset.key_format(head_size),
            value_format=self.preset.value_format(head_size),
            n_heads=num_heads,
            n_kv_heads=num_kv_heads,
            scale=self.scale,
        )

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Adds the ring's pages to the layers for which vLLM allocates memory, once."""
        if self._rings:  # weights are loaded again
            return
        layers = self._config.compilation_config.static_forward_context
        own = next(name for name, layer in layers.items() if getattr(layer, "impl", None) is self)
        tiles = layers[own].get_attn_backend().tiles_a_page
        step = self._step
        step.dtype = _DTYPES[act_dtype]
        drafts = self._config.num_speculative_tokens
        shape = RingShape(
            rows=self.preset.group + drafts,
            history=1 + drafts,
            page_bytes=tiles * self.num_kv_heads * self.preset.pair_bytes(self.head_size),
            row_bytes=library().kvarn_paged_ring_row_bytes(step),
        )
        step.ring_rows = shape.rows
        step.ring_history = shape.history
        step.ring_page_rows = shape.page_rows
        step.n_ring_pages = step.ring_table_stride = shape.n_pages
        self._rings = [RingLayer(shape.page_bytes) for _ in range(shape.n_pages)]
        self._ring_names = [f"{own}.kvarn_tail{i}" for i in range(shape.n_pages)]
        layers.update(zip(self._ring_names, self._rings, strict=True))

    def forward(
        self,
        layer,
        query: torch.Tensor,  # [tokens, heads, head_size], tokens may be padded
        key: torch.Tensor,  # [tokens, kv_heads, head_size]
        value: torch.Tensor,
        kv_cache: torch.Tensor,  # uint8 [blocks, kv_heads, 1, bytes of a pair of records]
        attn_metadata,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if attn_metadata is None:  # warm-up
            return output
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("kvarn: quantised attention output is not supported")
        self._bind(kv_cache)
        step = self._step
        of_all = get_forward_context().attn_metadata
        rings = attn_metadata.ring_table(tuple(of_all[name] for name in self._ring_names))
        step.n_sequences = len(attn_metadata.lengths)
        step.query_start = attn_metadata.query_start.ctypes.data
        step.lengths = attn_metadata.lengths.ctypes.data
        step.block_table = attn_metadata.block_table.ctypes.data
        step.block_table_stride = attn_metadata.block_table.shape[1]
        step.ring_table = rings.ctypes.data
        step.query, step.query_token_stride, step.query_head_stride = _rows(query)
        step.keys, step.key_token_stride, step.key_row_stride = _rows(key)
        step.values, step.value_token_stride, step.value_row_stride = _rows(value)
        step.out, step.out_token_stride, step.out_head_stride = _rows(output)
        large = attn_metadata.pairs * self.num_heads > _SMALL
        self._run(attn_metadata.completes_tiles, threads.count() if large else 1)
        return output

    def _run(self, seals: bool, n: int) -> None:
        """`n` is the number of threads."""
        lib, step = library(), ctypes.byref(self._step)
        bytes_needed = lib.kvarn_paged_attention_workspace_bytes(step, n)
        if bytes_needed == 0:
            check(lib.kvarn_paged_check(step), "kvarn attention")
        if seals:
            for status in threads.run(lambda i: lib.kvarn_paged_seal(step, i, n, None), n):
                check(status, "kvarn: sealing tiles")
        workspace = _workspace(bytes_needed)
        check(lib.kvarn_paged_attention_begin(step, workspace, n), "kvarn attention")
        threads.run(lambda i: lib.kvarn_paged_attention_run(step, workspace, i, n), n)
        lib.kvarn_paged_store(step, 0, 1)

    def _bind(self, kv_cache: torch.Tensor) -> None:
        """Addresses of the cache; they change only when vLLM allocates it anew."""
        step = self._step
        if step.key_records == kv_cache.data_ptr():
            return
        pair = self.preset.pair_bytes(self.head_size)
        key_bytes = self.preset.key_bytes(self.head_size)
        if tuple(kv_cache.shape[1:]) != (self.num_kv_heads, 1, pair) or kv_cache.stride(3) != 1:
            raise ValueError(
                f"kvarn: vLLM gave a cache of shape {tuple(kv_cache.shape)}, strides "
                f"{kv_cache.stride()}; expected [blocks, {self.num_kv_heads}, 1, {pair}]"
            )
        step.key_records = kv_cache.data_ptr()
        step.value_records = kv_cache.data_ptr() + key_bytes
        step.key_block_stride = step.value_block_stride = kv_cache.stride(0)
        step.key_head_stride = step.value_head_stride = kv_cache.stride(1)
        strides = {ring.kv_cache.stride(0) for ring in self._rings}
        if len(strides) != 1:
            raise ValueError(f"kvarn: pages of a ring lie at different strides: {strides}")
        step.ring_page_stride = strides.pop()
        pages = [ring.kv_cache.data_ptr() for ring in self._rings]
        self._ring_pages = (ctypes.c_void_p * len(pages))(*pages)
        step.ring_pages = ctypes.addressof(self._ring_pages)


_SCRATCH = {"memory": torch.empty(0, dtype=torch.uint8)}


def _workspace(n_bytes: int) -> int:
    """Address of at least so many bytes, aligned to 64, shared by all layers."""
    if _SCRATCH["memory"].numel() < n_bytes + 64:
        _SCRATCH["memory"] = torch.empty(n_bytes + n_bytes // 4 + 64, dtype=torch.uint8)
    return (_SCRATCH["memory"].data_ptr() + 63) // 64 * 64


def _rows(rows: torch.Tensor) -> tuple[int, int, int]:
    """Address and strides in bytes between tokens and between heads."""
    if rows.stride(2) != 1:
        raise ValueError(f"kvarn: rows are not contiguous: strides {rows.stride()}")
    size = rows.element_size()
    return rows.data_ptr(), rows.stride(0) * size, rows.stride(1) * size
