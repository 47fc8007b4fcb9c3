# SPDX-License-Identifier: Apache-2.0
"""ctypes declarations of kvarn_cuda.h; the header says what the fields mean."""

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_size_t, c_void_p

from ._abi import Format

_KINDS = {"i": c_int32, "l": c_int64, "p": c_void_p, "f": c_float}


def _fields(text: str) -> list[tuple[str, type]]:
    """Fields by name; the letter before each is its type."""
    return [(name, _KINDS[kind]) for kind, name in (word.split(":") for word in text.split())]


def _records(record_strides: str, row_strides: str) -> str:
    """Where records and exact rows lie."""
    return (
        "l:key_block_stride l:key_head_stride l:value_block_stride l:value_head_stride"
        f"{record_strides} p:block_table i:block_table_stride p:exact_keys p:exact_values"
        " l:exact_key_row_stride l:exact_key_head_stride l:exact_value_row_stride"
        f" l:exact_value_head_stride{row_strides} i:ring_rows"
    )


_SEQUENCE_STRIDES = (
    " l:key_sequence_stride l:value_sequence_stride",
    " l:exact_key_sequence_stride l:exact_value_sequence_stride",
)


class Decode(ctypes.Structure):
    """kvarn_cuda_decode"""

    _fields_ = [
        ("key_format", Format),
        ("value_format", Format),
        *_fields(
            "i:dtype i:query_dtype i:n_sequences i:n_tokens i:n_heads i:n_kv_heads p:key_records"
            f" p:value_records {_records(*_SEQUENCE_STRIDES)} p:lengths p:sealed_rows p:sink_rows"
            " p:ring_base i:ring_base_stride i:tile_table_stride p:tile_table p:query"
            " l:query_sequence_stride l:query_token_stride l:query_head_stride p:out"
            " l:out_sequence_stride l:out_token_stride l:out_head_stride f:scale f:softcap i:window"
            " f:max_bias p:sinks p:mask l:mask_sequence_stride l:mask_token_stride p:mask_map"
            " i:mask_map_stride"
        ),
    ]


class Prefill(ctypes.Structure):
    """kvarn_cuda_prefill"""

    _fields_ = [
        ("attention", Decode),
        *_fields(
            "i:total_tokens p:query_begin p:chunk_keys p:chunk_values l:chunk_key_row_stride"
            " l:chunk_key_head_stride l:chunk_value_row_stride l:chunk_value_head_stride i:seal_lag"
        ),
    ]


class Append(ctypes.Structure):
    """kvarn_cuda_append"""

    _fields_ = [
        ("key_format", Format),
        ("value_format", Format),
        *_fields(
            "i:dtype i:n_sequences i:n_rows i:n_heads i:n_kv_heads p:row_begin p:lengths p:new_keys"
            " p:new_values l:new_key_row_stride l:new_key_head_stride l:new_value_row_stride"
            " l:new_value_head_stride p:query l:query_row_stride l:query_head_stride p:key_records"
            f" p:value_records {_records('', '')} p:ring_base i:ring_base_stride p:sink_rows"
            " p:query_rms l:query_rms_row_stride i:tail_rows i:balance_tile p:sealed_rows p:counts"
        ),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Sets argument and result types of every function that the package calls."""
    decode, prefill, append = POINTER(Decode), POINTER(Prefill), POINTER(Append)
    for name, result, arguments in (
        ("kvarn_cuda_decode_workspace_bytes", c_size_t, (decode,)),
        ("kvarn_cuda_decode_check", c_int32, (decode,)),
        ("kvarn_cuda_decode_plan", c_int32, (decode, c_void_p, c_void_p)),
        ("kvarn_cuda_decode_run", c_int32, (decode, c_void_p, c_void_p)),
        ("kvarn_cuda_prefill_check", c_int32, (prefill,)),
        ("kvarn_cuda_prefill_run", c_int32, (prefill, c_void_p)),
        ("kvarn_cuda_append_workspace_bytes", c_size_t, (append,)),
        ("kvarn_cuda_append_plan", c_int32, (append, c_void_p, c_void_p)),
        ("kvarn_cuda_append_run", c_int32, (append, c_void_p, c_void_p)),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
