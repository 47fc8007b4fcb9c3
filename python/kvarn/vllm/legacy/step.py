# SPDX-License-Identifier: Apache-2.0
"""The kernel calls of a step, for all layers of one shape.

A layer takes its new rows into the cache (append), then attends: by the decode kernel where all
requests have the same few tokens, else by the prefill kernel. What is the same in all layers is
planned once, by the layer that runs first. Memory is allocated once and stays where it is, so that
a step can be captured in a graph.
"""

import ctypes
from dataclasses import dataclass

import torch

from ... import _abi, _abi_cuda
from ..._library import check, cuda_library
from .metadata import StepMetadata
from .specs import PageShape

_DTYPES = {torch.float16: _abi.FP16, torch.bfloat16: _abi.BF16}
# A step's own rows are read as they are, never as records.
_CHUNK_IS_EXACT = -1


@dataclass(frozen=True)
class Limits:
    """What a step may be at most, and its longest request."""

    n_requests: int
    n_tokens: int
    n_tiles: int  # of a request
    widths: tuple[int, ...]  # query tokens a request of uniform steps


@dataclass(frozen=True)
class LayerMemory:
    """Pages of one layer."""

    records: torch.Tensor  # uint8 [blocks][n_kv_heads][bytes of a pair]
    tail: torch.Tensor  # uint8 [blocks][bytes of a page]


class StepKernels:
    """`first_layer` is the name of the layer that plans."""

    def __init__(
        self,
        first_layer: str,
        shape: PageShape,
        n_heads: int,
        dtype: torch.dtype,
        scale: float,
        limits: Limits,
        device: torch.device,
    ) -> None:
        self.first_layer = first_layer
        self.shape = shape
        self._limits = limits
        self._lib = cuda_library()
        self._decode = _abi_cuda.Decode(scale=scale, n_heads=n_heads)
        self._append = _abi_cuda.Append(n_heads=n_heads)
        self._prefill = _abi_cuda.Prefill(seal_lag=_CHUNK_IS_EXACT)
        for call in (self._decode, self._append):
            call.key_format = shape.preset.key_format(shape.head_dim, _abi.ORDER_CUDA)
            call.value_format = shape.preset.value_format(shape.head_dim, _abi.ORDER_CUDA)
            call.dtype = _DTYPES[dtype]
            call.n_kv_heads = shape.n_kv_heads
            call.ring_rows = limits.n_tiles * shape.preset.group
        self._decode.query_dtype = self._decode.dtype
        with torch.cuda.device(device):
            self._widths = self._compiled_widths()
            self._ring_base = torch.zeros(
                (limits.n_requests, limits.n_tiles), dtype=torch.int32, device=device
            )
            self._sealed = torch.zeros(limits.n_requests, dtype=torch.int32, device=device)
            self._append_memory = self._append_workspace(device)
            self._decode_memory = self._decode_workspace(device)
        self._append.sealed_rows = self._decode.sealed_rows = self._sealed.data_ptr()

    def serves(self, n_heads: int, scale: float) -> bool:
        return self._decode.n_heads == n_heads and self._decode.scale == ctypes.c_float(scale).value

    def _compiled_widths(self) -> tuple[int, ...]:
        """Widths that the decode kernel serves. Raises ValueError if the shape has no kernels."""
        self._decode.n_sequences = 1
        status = {}
        for width in self._limits.widths:
            self._decode.n_tokens = width
            status[width] = self._lib.kvarn_cuda_decode_check(ctypes.byref(self._decode))
        self._prefill.attention = self._decode
        self._prefill.attention.n_tokens = self._prefill.total_tokens = 1
        prefill = self._lib.kvarn_cuda_prefill_check(ctypes.byref(self._prefill))
        for kernel, code in (("decode", status[1]), ("prefill", prefill)):
            if code != 0:
                text = self._lib.kvarn_status_text(code).decode()
                shape = self.shape
                raise ValueError(
                    f"--kv-cache-dtype {shape.preset.name}: no {kernel} kernel for head size "
                    f"{shape.head_dim} and {self._decode.n_heads // shape.n_kv_heads} query heads "
                    f"a KV head on {torch.cuda.get_device_name()} ({text}). Kernels need compute "
                    "capability 9.0; -C cmake.define.KVARN_CUDA_INSTANCES=all compiles those of "
                    "all shapes (docs/vllm.md)."
                )
        return tuple(width for width, code in status.items() if code == 0)

    def _append_workspace(self, device: torch.device) -> torch.Tensor:
        self._append.n_sequences = self._limits.n_requests
        self._append.n_rows = self._limits.n_tokens
        n_bytes = self._lib.kvarn_cuda_append_workspace_bytes(ctypes.byref(self._append))
        if n_bytes == 0:
            raise ValueError(f"kvarn: no append kernels for {self.shape}")
        return torch.empty(n_bytes, dtype=torch.uint8, device=device)

    def _decode_workspace(self, device: torch.device) -> torch.Tensor:
        self._decode.n_sequences = self._limits.n_requests
        n_bytes = 0
        for width in self._widths:
            self._decode.n_tokens = width
            needed = self._lib.kvarn_cuda_decode_workspace_bytes(ctypes.byref(self._decode))
            n_bytes = max(n_bytes, needed)
        return torch.empty(n_bytes, dtype=torch.uint8, device=device)

    def run(
        self,
        layer: str,
        step: StepMetadata,
        tail_table: torch.Tensor,
        memory: LayerMemory,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Appends and attends. query, key, value, out: [tokens][heads][head_dim]."""
        stream = torch.cuda.current_stream().cuda_stream
        decodes = step.width in self._widths
        first = layer == self.first_layer
        if first:
            self._find_rows(step, tail_table)
        self._aim(step, tail_table, memory, query, key, value, out)
        lib = self._lib
        append, decode = ctypes.byref(self._append), ctypes.byref(self._decode)
        append_memory = self._append_memory.data_ptr()
        if first:
            check(lib.kvarn_cuda_append_plan(append, append_memory, stream), "kvarn append plan")
        check(lib.kvarn_cuda_append_run(append, append_memory, stream), "kvarn append")
        if not decodes:
            self._prefill.attention = self._decode
            status = lib.kvarn_cuda_prefill_run(ctypes.byref(self._prefill), stream)
            check(status, "kvarn prefill attention")
            return
        decode_memory = self._decode_memory.data_ptr()
        if first:
            check(lib.kvarn_cuda_decode_plan(decode, decode_memory, stream), "kvarn decode plan")
        check(lib.kvarn_cuda_decode_run(decode, decode_memory, stream), "kvarn decode attention")

    def _find_rows(self, step: StepMetadata, tail_table: torch.Tensor) -> None:
        """Exact row where each tile begins."""
        n, limit = step.n_requests, self._limits
        if n > limit.n_requests or step.n_tokens > limit.n_tokens:
            raise ValueError(
                f"kvarn: a step of {n} requests and {step.n_tokens} tokens; vLLM's configuration "
                f"allows {limit.n_requests} and {limit.n_tokens}"
            )
        n_tiles = min(tail_table.shape[1], limit.n_tiles)
        rows = self.shape.rows_per_tail_page
        torch.mul(tail_table[:n, :n_tiles], rows, out=self._ring_base[:n, :n_tiles])

    def _aim(self, step, tail_table, memory, query, key, value, out) -> None:
        """Points the calls at this step and layer."""
        shape = self.shape
        records, tail = memory.records.data_ptr(), memory.tail.data_ptr()
        n_tiles = min(tail_table.shape[1], self._limits.n_tiles)
        head_stride = shape.preset.group * shape.row_stride
        for call in (self._decode, self._append):
            call.n_sequences = step.n_requests
            call.lengths = step.lengths.data_ptr()
            call.key_records = records
            call.value_records = records + shape.key_bytes
            call.key_block_stride = call.value_block_stride = memory.records.stride(0)
            call.key_head_stride = call.value_head_stride = memory.records.stride(1)
            call.block_table = step.block_table.data_ptr()
            call.block_table_stride = step.block_table.stride(0)
            call.exact_keys = tail
            call.exact_values = tail + shape.n_kv_heads * head_stride
            call.exact_key_row_stride = call.exact_value_row_stride = shape.row_stride
            call.exact_key_head_stride = call.exact_value_head_stride = head_stride
            call.ring_base = self._ring_base.data_ptr()
            call.ring_base_stride = self._ring_base.stride(0)
            call.ring_rows = n_tiles * shape.preset.group
        append = self._append
        append.n_rows = step.n_tokens
        append.row_begin = step.query_begin.data_ptr()
        append.new_keys, append.new_key_row_stride, append.new_key_head_stride = _rows(key)
        append.new_values, append.new_value_row_stride, append.new_value_head_stride = _rows(value)
        decode = self._decode
        decode.n_tokens = step.max_query_len
        decode.query, decode.query_token_stride, decode.query_head_stride = _rows(query)
        decode.query_sequence_stride = decode.query_token_stride * step.max_query_len
        decode.out, decode.out_token_stride, decode.out_head_stride = _rows(out)
        decode.out_sequence_stride = decode.out_token_stride * step.max_query_len
        prefill = self._prefill
        prefill.total_tokens = step.n_tokens
        prefill.query_begin = step.query_begin.data_ptr()
        prefill.chunk_keys = append.new_keys
        prefill.chunk_values = append.new_values
        prefill.chunk_key_row_stride = append.new_key_row_stride
        prefill.chunk_key_head_stride = append.new_key_head_stride
        prefill.chunk_value_row_stride = append.new_value_row_stride
        prefill.chunk_value_head_stride = append.new_value_head_stride


def _rows(rows: torch.Tensor) -> tuple[int, int, int]:
    """Address and strides in bytes between tokens and between heads."""
    if rows.stride(2) != 1:
        raise ValueError(f"kvarn: rows are not contiguous: strides {rows.stride()}")
    size = rows.element_size()
    return rows.data_ptr(), rows.stride(0) * size, rows.stride(1) * size
