# SPDX-License-Identifier: Apache-2.0
"""`kvarn bench model`: a GGUF model of a given shape with random weights.

Speed does not depend on what the weights say, so any shape can be measured without a download. The
model has llama's architecture, no vocabulary of words, and the same bytes for the same arguments.
"""

import argparse
from pathlib import Path

import numpy as np

from .error import BenchError

WEIGHTS = ("f16", "q8_0", "q4_0")
_EXAMPLE = """\
example: 32 query and 8 KV heads of 128 channels, as in an 8B model, in two small layers
  kvarn bench model --out d128.gguf --layers 2 --heads 32 --kv-heads 8 --head-dim 128 --ffn 256
  kvarn bench llama --model d128.gguf --plugin libggml-kvarn.so --depths 0,16384
"""


def add_parser(hosts) -> None:
    parser = hosts.add_parser(
        "model",
        help="write a GGUF model of a given shape with random weights",
        description=__doc__.split("\n\n", 1)[1],
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    for name, value, text in (
        ("layers", 2, "transformer layers"),
        ("heads", 32, "query heads"),
        ("head-dim", 128, "channels of a head, even"),
        ("hidden", 256, "width of the model, a multiple of 32"),
        ("ffn", 256, "width of the feed-forward layers, a multiple of 32"),
        ("vocabulary", 256, "tokens"),
        ("context", 131072, "positions the model claims to know"),
        ("seed", 1, "of the weights"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{text} (default: {value})")
    parser.add_argument(
        "--kv-heads",
        type=_numbers,
        default=[8],
        help="key and value heads; divide the query heads. Several, by commas: layers take turns "
        "(default: 8)",
    )
    parser.add_argument("--weights", choices=WEIGHTS, default="f16", help="type of the matrices")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    _check(options)
    try:
        import gguf
    except ImportError:
        raise BenchError('the package gguf is missing: pip install "kvarn[bench]"') from None
    kind = gguf.GGMLQuantizationType[options.weights.upper()]
    matrices = _Matrices(kind, options.seed)
    # llama's layers are all alike; deci has the same tensors and a number of heads for each layer.
    alike = len(options.kv_heads) == 1
    writer = gguf.GGUFWriter(options.out, "llama" if alike else "deci")
    _describe(writer, options)
    for name, shape in _tensors(options):
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            continue
        writer.add_tensor(name, matrices.make(shape), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()
    return 0


class _Matrices:
    """Cut out of a few random ones, so that a large model takes seconds: no two begin alike."""

    POOL = 1 << 22  # values

    def __init__(self, kind, seed: int) -> None:
        self._kind = kind
        self._random = np.random.default_rng(seed)
        self._pools = {}  # by width: bytes of [rows][width]

    def make(self, shape: tuple[int, int]) -> np.ndarray:
        rows, width = shape
        if width not in self._pools:
            self._pools[width] = self._new_pool(width)
        pool = self._pools[width]
        first = int(self._random.integers(len(pool)))
        turned = np.concatenate((pool[first:], pool[:first]))
        return np.resize(turned, (rows, pool.shape[1]))

    def _new_pool(self, width: int) -> np.ndarray:
        import gguf

        values = self._random.standard_normal((max(1, self.POOL // width), width), np.float32)
        return gguf.quantize(values / np.float32(np.sqrt(width)), self._kind)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _check(options) -> None:
    for name in ("layers", "heads", "head_dim", "hidden", "ffn", "vocabulary"):
        if getattr(options, name) < 1:
            raise BenchError(f"--{name.replace('_', '-')} {getattr(options, name)}: at least 1.")
    for name, step in (("head_dim", 2), ("hidden", 32), ("ffn", 32)):
        if getattr(options, name) % step:
            raise BenchError(
                f"--{name.replace('_', '-')} {getattr(options, name)}: not a multiple of {step}."
            )
    for kv_heads in options.kv_heads:
        if kv_heads < 1 or options.heads % kv_heads:
            raise BenchError(f"--kv-heads {kv_heads}: does not divide {options.heads} heads.")
    if options.heads * options.head_dim % 32:
        raise BenchError("heads times head dim must be a multiple of 32.")
    if not options.out.absolute().parent.is_dir():
        raise BenchError(f"--out {options.out}: its folder does not exist.")


def _describe(writer, options) -> None:
    writer.add_name("random weights")
    writer.add_block_count(options.layers)
    writer.add_context_length(options.context)
    writer.add_embedding_length(options.hidden)
    kv_heads = [_kv_heads(options, layer) for layer in range(options.layers)]
    if len(options.kv_heads) == 1:
        writer.add_feed_forward_length(options.ffn)
        writer.add_head_count(options.heads)
        writer.add_head_count_kv(kv_heads[0])
    else:
        writer.add_feed_forward_length([options.ffn] * options.layers)
        writer.add_head_count([options.heads] * options.layers)
        writer.add_head_count_kv(kv_heads)
    writer.add_key_length(options.head_dim)
    writer.add_value_length(options.head_dim)
    writer.add_rope_dimension_count(options.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(options.vocabulary)
    writer.add_tokenizer_model("no_vocab")


def _kv_heads(options, layer: int) -> int:
    return options.kv_heads[layer % len(options.kv_heads)]


def _tensors(options) -> list[tuple[str, tuple[int, ...]]]:
    hidden, ffn = options.hidden, options.ffn
    query = options.heads * options.head_dim
    tensors = [
        ("token_embd.weight", (options.vocabulary, hidden)),
        ("output_norm.weight", (hidden,)),
        ("output.weight", (options.vocabulary, hidden)),
    ]
    for layer in range(options.layers):
        kv = _kv_heads(options, layer) * options.head_dim
        tensors += [
            (f"blk.{layer}.{name}.weight", shape)
            for name, shape in (
                ("attn_norm", (hidden,)),
                ("attn_q", (query, hidden)),
                ("attn_k", (kv, hidden)),
                ("attn_v", (kv, hidden)),
                ("attn_output", (hidden, query)),
                ("ffn_norm", (hidden,)),
                ("ffn_gate", (ffn, hidden)),
                ("ffn_up", (ffn, hidden)),
                ("ffn_down", (hidden, ffn)),
            )
        ]
    return tensors
