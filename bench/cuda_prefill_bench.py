# SPDX-License-Identifier: Apache-2.0
"""Prefill attention over records and a chunk of new tokens against PyTorch's on bf16 rows.

Needs a GPU, PyTorch with CUDA and the shared library of the kernels. One layer and one sequence: a
chunk of query tokens behind a context whose full tiles are records. The anchors compute the same
products, causal, on bf16 rows; where a chunk has a context they get it as a mask aligned to the
last row. Times are medians of CUDA events; L2 is left as the call before left it, since the inputs
of a chunk are small beside its work. With --planes the same rows lie as tiles that a table finds:
the context as records, all others exact, queries and outputs in fp32 and visibility in a mask whose
map is made outside the times.

Example: cuda_prefill_bench.py --library libkvarn_cuda.so --presets k4v2 k8v8
"""

import argparse
import ctypes
import statistics

import torch
from cuda_decode_bench import GROUP, RING, Format, encode, load
from kvarn._abi_cuda import Prefill
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right


def median_us(call, runs: int) -> float:
    times = []
    for run in range(runs + 2):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(20000)  # the launch is queued before it starts
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        if run >= 2:
            times.append(start.elapsed_time(stop) * 1000)
    return statistics.median(times)


class Call:
    """A chunk behind a context of records."""

    def __init__(self, library, preset: str, context: int, chunk: int, gqa: int, opts) -> None:
        self.library = library
        dim, kv, heads = opts.dim, opts.kv_heads, opts.kv_heads * gqa
        key = Format(0, 0, 2, int(preset[1]), GROUP, dim)
        value = Format(1, 0, 2, int(preset[3]), GROUP, dim)
        key_bytes = library.kvarn_record_bytes(ctypes.byref(key))
        pair = key_bytes + library.kvarn_record_bytes(ctypes.byref(value))
        dtype = torch.bfloat16 if opts.bf16 else torch.float16
        self.keep = []

        def device(array):
            self.keep.append(torch.tensor(array, dtype=torch.int32, device="cuda"))
            return self.keep[-1].data_ptr()

        def rows(*shape):
            self.keep.append(torch.randn(*shape, device="cuda").to(dtype))
            return self.keep[-1].data_ptr()

        tiles = max(context // GROUP, 1)
        records = torch.zeros(tiles * kv * pair, dtype=torch.uint8, device="cuda")
        self.keep.append(records)
        encode(library, key, value, records, tiles * kv, pair, key_bytes, opts.bf16)
        order = torch.randperm(tiles, device="cuda").to(torch.int32)
        self.keep.append(order)
        self.call = Prefill()
        call = self.call.attention
        call.key_format, call.value_format = key, value
        call.dtype = call.query_dtype = int(opts.bf16)
        call.n_sequences, call.n_tokens, call.n_heads, call.n_kv_heads = 1, chunk, heads, kv
        call.key_records, call.value_records = records.data_ptr(), records.data_ptr() + key_bytes
        call.key_head_stride = call.value_head_stride = pair
        call.key_block_stride = call.value_block_stride = pair * kv
        call.block_table, call.block_table_stride = order.data_ptr(), tiles
        call.exact_keys, call.exact_values = (rows(RING + GROUP, kv, dim) for _ in range(2))
        call.exact_key_head_stride = call.exact_value_head_stride = 2 * dim
        call.exact_key_row_stride = call.exact_value_row_stride = 2 * dim * kv
        call.ring_rows = RING
        call.lengths, call.sealed_rows = device([context + chunk]), device([context])
        call.ring_base, call.ring_base_stride = device(range(0, RING, GROUP)), RING // GROUP
        call.sink_rows = device([RING])
        call.query, call.out = (rows(chunk, heads, dim) for _ in range(2))
        call.query_head_stride = call.out_head_stride = 2 * dim
        call.query_token_stride = call.out_token_stride = 2 * dim * heads
        call.scale = dim**-0.5
        self.call.total_tokens, self.call.query_begin = chunk, device([0, chunk])
        self.call.chunk_keys, self.call.chunk_values = (rows(chunk, kv, dim) for _ in range(2))
        self.call.chunk_key_head_stride = self.call.chunk_value_head_stride = 2 * dim
        self.call.chunk_key_row_stride = self.call.chunk_value_row_stride = 2 * dim * kv
        self.call.seal_lag = -1
        self.run()

    def use_planes(self, context: int, chunk: int, opts) -> None:
        """Tile 0 of a context stays exact, as a sink does."""
        call, length = self.call.attention, context + chunk
        exact = [0] * (context > 0) + [-1] * (context // GROUP - 1)
        tiles = exact + [GROUP * (1 + i) for i in range((chunk + GROUP - 1) // GROUP)]

        def rows(*shape, dtype):
            self.keep.append(torch.randn(*shape, device="cuda").to(dtype))
            return self.keep[-1].data_ptr()

        slots = GROUP * (2 + (chunk + GROUP - 1) // GROUP)
        call.exact_keys, call.exact_values = (
            rows(slots, opts.kv_heads, opts.dim, dtype=torch.float16) for _ in range(2)
        )
        table = torch.tensor(tiles, dtype=torch.int32, device="cuda")
        call.tile_table, call.tile_table_stride = table.data_ptr(), len(tiles)
        last = torch.arange(context, length, device="cuda")[:, None]
        hidden = torch.arange(length, device="cuda")[None, :] > last
        mask = torch.zeros(chunk, length, dtype=torch.float16, device="cuda")
        mask.masked_fill_(hidden, float("-inf"))
        seen = torch.empty((chunk + 15) // 16, len(tiles), dtype=torch.uint8, device="cuda")
        self.keep += [table, mask, seen]
        call.mask, call.mask_token_stride = mask.data_ptr(), 2 * length
        if opts.planes == "map":
            call.mask_map, call.mask_map_stride = seen.data_ptr(), len(tiles)
        call.query, call.out = (
            rows(chunk, call.n_heads, opts.dim, dtype=torch.float32) for _ in range(2)
        )
        call.query_dtype = 2
        call.query_head_stride = call.out_head_stride = 4 * opts.dim
        call.query_token_stride = call.out_token_stride = 4 * opts.dim * call.n_heads
        step = ctypes.c_int64(2 * length)
        self.library.kvarn_cuda_mask_map(
            ctypes.c_void_p(call.mask), step, step, 1, chunk, length, GROUP,
            ctypes.c_void_p(seen.data_ptr()), None,
        )  # fmt: skip
        self.run()

    def run(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status = self.library.kvarn_cuda_prefill_run(ctypes.byref(self.call), stream)
        if status:
            raise ValueError(self.library.kvarn_status_text(status).decode())


def anchors(context: int, chunk: int, gqa: int, opts) -> dict[str, float]:
    kv, heads, dim = opts.kv_heads, opts.kv_heads * gqa, opts.dim
    q = torch.randn(1, heads, chunk, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(1, context + chunk, kv, dim, device="cuda", dtype=torch.bfloat16).transpose(
            1, 2
        )
        for _ in range(2)
    )
    found = {}
    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION),
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ):
        options = {"is_causal": True} if context == 0 else {}
        if context > 0 and name == "flash":
            options = {"attn_mask": causal_lower_right(chunk, context + chunk)}
        # cuDNN takes no such mask: it computes the whole rectangle, a little more than asked for.
        try:
            with sdpa_kernel(backend):
                found[name] = median_us(
                    lambda options=options: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, enable_gqa=True, **options
                    ),
                    opts.runs,
                )
        except (RuntimeError, ValueError):
            found[name] = float("nan")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog=__doc__.split("\n\n")[-1]
    )
    parser.add_argument("--library", required=True)
    parser.add_argument("--presets", nargs="+", default=["k4v2"])
    parser.add_argument("--gqas", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--chunks", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--contexts", nargs="+", type=int, default=[0, 8192, 32768])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--no-anchors", action="store_true")
    parser.add_argument("--planes", choices=["map", "mask"], help="also by a table of tiles")
    opts = parser.parse_args()
    if opts.planes and opts.bf16:
        parser.error("--planes has fp16 rows: leave out --bf16")
    library = load(opts.library)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, head dim {opts.dim},"
        f" {opts.kv_heads} KV heads, one sequence, medians of {opts.runs}; TFLOP/s count visible"
        " products only"
    )
    for gqa in opts.gqas:
        for chunk in opts.chunks:
            for context in opts.contexts:
                visible = chunk * context + chunk * (chunk + 1) // 2
                flop = 4 * opts.kv_heads * gqa * opts.dim * visible
                base = {} if opts.no_anchors else anchors(context, chunk, gqa, opts)
                line = f"gqa {gqa} chunk {chunk:4} context {context:5}"
                for name, us in base.items():
                    line += f" | {name} {us:7.1f} us {flop / us / 1e6:5.0f} TF"
                for preset in opts.presets:
                    call = Call(library, preset, context, chunk, gqa, opts)
                    us = median_us(call.run, opts.runs)
                    line += f" | {preset} {us:7.1f} us {flop / us / 1e6:5.0f} TF"
                    if opts.planes:
                        call.use_planes(context, chunk, opts)
                        line += f" planes {median_us(call.run, opts.runs):7.1f} us"
                    line += "".join(f" {b / us:.2f}x {name}" for name, b in base.items())
                print(line, flush=True)


if __name__ == "__main__":
    main()
