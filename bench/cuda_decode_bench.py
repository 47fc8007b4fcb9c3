# SPDX-License-Identifier: Apache-2.0
"""Decode attention on records against PyTorch's attention on bf16 rows, in one run.

Needs a GPU, PyTorch with CUDA and the shared library of the kernels. Every call starts with a cold
L2 cache: a buffer larger than it is written in between (--flush write, the usual way; some of the
write-back is then counted with the call) or read (--flush read: kernel code is gone from the cache
too). Times are medians of CUDA events.

Example: cuda_decode_bench.py --library libkvarn_cuda.so --presets k4v2 k2v2
"""

import argparse
import ctypes
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))  # its structures; not installed
from kvarn._abi import Format
from kvarn._abi_cuda import Decode

GROUP = 128
RING = 256


class Tile(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_uint64),
        ("row_stride", ctypes.c_int64),
        ("balance", ctypes.c_uint64),
        ("record", ctypes.c_uint64),
        ("written", ctypes.c_uint64 * 2),
        ("later_rows", ctypes.c_uint64),
        ("later_row_stride", ctypes.c_int64),
        ("later_from", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


def load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.kvarn_record_bytes.restype = ctypes.c_size_t
    library.kvarn_cuda_decode_workspace_bytes.restype = ctypes.c_size_t
    library.kvarn_status_text.restype = ctypes.c_char_p
    return library


class Cold:
    """Median microseconds of a call whose inputs are not in the L2 cache."""

    def __init__(self, write: bool) -> None:
        self.write = write
        self.flush = torch.zeros(128 << 20, dtype=torch.int32, device="cuda")

    def time(self, call, runs: int = 15) -> float:
        times = []
        for run in range(runs + 3):
            self.flush.fill_(run) if self.write else self.flush.amax()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(20000)  # the launches are queued before the first starts
            start.record()
            call()
            stop.record()
            torch.cuda.synchronize()
            if run >= 3:
                times.append(start.elapsed_time(stop) * 1000)
        return statistics.median(times)


def encode(library, key, value, records, count, pair, key_bytes, bf16) -> None:
    """Fills `count` record pairs of `pair` bytes, K first, from random rows."""
    chunk = 512
    dim = key.head_dim
    source = torch.randn(chunk, GROUP, dim, device="cuda").to(
        torch.bfloat16 if bf16 else torch.float16
    )
    for fmt, offset in ((key, 0), (value, key_bytes)):
        for first in range(0, count, chunk * 16):
            many = min(chunk * 16, count - first)
            tiles = (Tile * many)()
            for i in range(many):
                tiles[i].rows = source.data_ptr() + (i % chunk) * GROUP * dim * 2
                tiles[i].row_stride = dim * 2
                tiles[i].record = records.data_ptr() + (first + i) * pair + offset
                tiles[i].written[0] = tiles[i].written[1] = 2**64 - 1
            data = torch.frombuffer(bytearray(tiles), dtype=torch.uint8).cuda()
            status = library.kvarn_cuda_encode(
                ctypes.byref(fmt), int(bf16), ctypes.c_void_p(data.data_ptr()), many, None, None
            )
            torch.cuda.synchronize()
            if status:
                raise ValueError(library.kvarn_status_text(status).decode())


class Cache:
    """Records of n sequences of one length, and a call that reads them."""

    def __init__(self, library, preset: str, n: int, length: int, opts) -> None:
        self.library = library
        dim, kv, heads, width = opts.dim, opts.kv_heads, opts.kv_heads * opts.gqa, opts.width
        key_bits, value_bits = int(preset[1]), int(preset[3])
        self.key = Format(0, 0, 2, key_bits, GROUP, dim)
        self.value = Format(1, 0, 2, value_bits, GROUP, dim)
        key_bytes = library.kvarn_record_bytes(ctypes.byref(self.key))
        pair = key_bytes + library.kvarn_record_bytes(ctypes.byref(self.value))
        tiles = (length + GROUP - 1) // GROUP
        self.packed_bytes = 0
        self.keep = keep = []
        dtype = torch.bfloat16 if opts.bf16 else torch.float16

        def device(array, kind=torch.int32):
            keep.append(torch.tensor(array, dtype=kind, device="cuda"))
            return keep[-1].data_ptr()

        def rows(*shape):
            keep.append(torch.randn(*shape, device="cuda").to(dtype))
            return keep[-1]

        blocks = n * tiles
        records = torch.zeros(blocks * kv * pair, dtype=torch.uint8, device="cuda")
        keep.append(records)
        encode(library, self.key, self.value, records, blocks * kv, pair, key_bytes, opts.bf16)
        sealed = (length - width - 1) // GROUP * GROUP
        exact_rows = n * (RING + GROUP)
        exact_keys, exact_values = rows(exact_rows, kv, dim), rows(exact_rows, kv, dim)
        query, out = rows(n, width, heads, dim), rows(n, width, heads, dim)
        call = Decode()
        call.key_format, call.value_format = self.key, self.value
        call.dtype = call.query_dtype = 1 if opts.bf16 else 0
        call.n_sequences, call.n_tokens, call.n_heads, call.n_kv_heads = n, width, heads, kv
        call.key_records, call.value_records = records.data_ptr(), records.data_ptr() + key_bytes
        call.key_head_stride = call.value_head_stride = pair
        call.key_block_stride = call.value_block_stride = pair * kv
        order = torch.randperm(blocks, device="cuda").to(torch.int32)
        keep.append(order)
        call.block_table, call.block_table_stride = order.data_ptr(), tiles
        call.exact_keys, call.exact_values = exact_keys.data_ptr(), exact_values.data_ptr()
        call.exact_key_head_stride = call.exact_value_head_stride = 2 * dim
        call.exact_key_row_stride = call.exact_value_row_stride = 2 * dim * kv
        call.ring_rows = RING
        call.lengths, call.sealed_rows = device([length] * n), device([sealed] * n)
        call.ring_base_stride = RING // GROUP
        call.ring_base = device(
            [i * (RING + GROUP) + c for i in range(n) for c in range(0, RING, GROUP)]
        )
        call.sink_rows = device([i * (RING + GROUP) + RING for i in range(n)])
        call.query, call.out = query.data_ptr(), out.data_ptr()
        call.query_head_stride = call.out_head_stride = 2 * dim
        call.query_token_stride = call.out_token_stride = 2 * dim * heads
        call.query_sequence_stride = call.out_sequence_stride = 2 * dim * heads * width
        call.scale = dim**-0.5
        self.call = call
        size = library.kvarn_cuda_decode_workspace_bytes(ctypes.byref(call))
        status = library.kvarn_cuda_decode_check(ctypes.byref(call))
        if status:
            raise ValueError(library.kvarn_status_text(status).decode())
        keep.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        self.workspace = keep[-1].data_ptr()
        exact = length - sealed + GROUP
        self.packed_bytes = n * kv * ((sealed // GROUP - 1) * pair + exact * 4 * dim)

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def plan(self) -> None:
        self.library.kvarn_cuda_decode_plan(
            ctypes.byref(self.call), ctypes.c_void_p(self.workspace), self.stream()
        )

    def run(self) -> None:
        self.library.kvarn_cuda_decode_run(
            ctypes.byref(self.call), ctypes.c_void_p(self.workspace), self.stream()
        )


def anchors(cold: Cold, n: int, length: int, opts) -> dict[str, float]:
    kv, heads, dim = opts.kv_heads, opts.kv_heads * opts.gqa, opts.dim
    q = torch.randn(n, heads, opts.width, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(n, length, kv, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        for _ in range(2)
    )
    found = {}
    for name, backend in (
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ("flash", SDPBackend.FLASH_ATTENTION),
    ):
        if name == "flash" and n * length > 1 << 17 and not opts.all_anchors:
            continue
        try:
            with sdpa_kernel(backend):
                found[name] = cold.time(
                    lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, enable_gqa=True
                    )
                )
        except RuntimeError:
            found[name] = float("nan")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog=__doc__.split("\n\n")[-1]
    )
    parser.add_argument("--library", required=True)
    parser.add_argument("--presets", nargs="+", default=["k4v2"])
    parser.add_argument(
        "--cases",
        nargs="+",
        help="sequences x tokens",
        default=["32x16384", "8x32768", "1x131072", "64x2048", "4x4096", "1x8192", "1x1024"],
    )
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--gqa", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--flush", choices=["write", "read"], default="write")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--all-anchors", action="store_true")
    parser.add_argument("--no-anchors", action="store_true")
    opts = parser.parse_args()
    library = load(opts.library)
    cold = Cold(opts.flush == "write")
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, head dim {opts.dim},"
        f" {opts.kv_heads} KV heads, GQA {opts.gqa}, width {opts.width}, cold L2"
        f" ({opts.flush}), medians of 15;"
        " us of one layer, combine included; plan once a step"
    )
    for case in opts.cases:
        n, length = map(int, case.split("x"))
        base = {} if opts.no_anchors else anchors(cold, n, length, opts)
        line = f"{case:>10} " + " ".join(f"{name} {us:7.1f}" for name, us in base.items())
        for preset in opts.presets:
            try:
                cache = Cache(library, preset, n, length, opts)
            except ValueError as error:
                line += f" | {preset} {error}"
                continue
            cache.plan()
            torch.cuda.synchronize()
            us = cold.time(cache.run)
            line += f" | {preset} {us:7.1f} us {cache.packed_bytes / us / 1e3:5.0f} GB/s"
            if base:
                line += f" {base['cudnn'] / us:5.2f}x"
            line += f" (plan {cold.time(cache.plan):4.1f})"
            del cache
        print(line, flush=True)


if __name__ == "__main__":
    main()
