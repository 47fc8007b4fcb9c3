# SPDX-License-Identifier: Apache-2.0
"""ctypes declarations of the part of kvarn.h and kvarn_paged.h that Python uses."""

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p

KEY, VALUE = 0, 1
BALANCED = 0
ORDER_CPU, ORDER_CUDA = 1, 2
FP16, BF16, FP32 = 0, 1, 2


class Format(ctypes.Structure):
    """kvarn_format"""

    _fields_ = [(name, c_int32) for name in ("role", "mode", "order", "bits", "group", "head_dim")]


class Counts(ctypes.Structure):
    """kvarn_counts"""

    _fields_ = [("rows_zeroed", c_uint64), ("values_saturated", c_uint64)]


class PagedStep(ctypes.Structure):
    """kvarn_paged_step; see the header for what the fields mean."""

    _fields_ = [
        ("key_format", Format),
        ("value_format", Format),
        ("dtype", c_int32),
        ("n_sequences", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("query_start", c_void_p),
        ("lengths", c_void_p),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("key_records", c_void_p),
        ("value_records", c_void_p),
        ("key_block_stride", c_int64),
        ("key_head_stride", c_int64),
        ("value_block_stride", c_int64),
        ("value_head_stride", c_int64),
        ("ring_pages", c_void_p),
        ("ring_table", c_void_p),
        ("ring_table_stride", c_int64),
        ("ring_page_stride", c_int64),
        ("n_ring_pages", c_int32),
        ("ring_page_rows", c_int32),
        ("ring_rows", c_int32),
        ("ring_history", c_int32),
        ("query", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("out", c_void_p),
        ("query_token_stride", c_int64),
        ("query_head_stride", c_int64),
        ("key_token_stride", c_int64),
        ("key_row_stride", c_int64),
        ("value_token_stride", c_int64),
        ("value_row_stride", c_int64),
        ("out_token_stride", c_int64),
        ("out_head_stride", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Sets argument and result types of every function that the package calls."""
    step = POINTER(PagedStep)
    for name, result, arguments in (
        ("kvarn_version", c_char_p, ()),
        ("kvarn_status_text", c_char_p, (c_int32,)),
        ("kvarn_isa_name", c_char_p, ()),
        ("kvarn_record_bytes", c_size_t, (POINTER(Format),)),
        ("kvarn_paged_ring_row_bytes", c_size_t, (step,)),
        ("kvarn_paged_check", c_int32, (step,)),
        ("kvarn_paged_seal", c_int32, (step, c_int32, c_int32, POINTER(Counts))),
        ("kvarn_paged_attention_workspace_bytes", c_size_t, (step, c_int32)),
        ("kvarn_paged_attention_begin", c_int32, (step, c_void_p, c_int32)),
        ("kvarn_paged_attention_run", None, (step, c_void_p, c_int32, c_int32)),
        ("kvarn_paged_store", None, (step, c_int32, c_int32)),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
