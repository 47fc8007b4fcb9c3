# SPDX-License-Identifier: Apache-2.0
"""`kvarn bench model`: what it writes, read back by another reader."""

import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

PACKAGE = Path(__file__).parents[2] / "python"


def write(place: Path, name: str, *more: str):
    argv = [sys.executable, "-m", "kvarn.cli", "bench", "model", "--out", name, *more]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        argv, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("weights", ["f16", "q8_0", "q4_0"])
def test_shapes_types_and_numbers(tmp_path: Path, weights: str) -> None:
    shape = ("--layers", "3", "--heads", "6", "--kv-heads", "2", "--head-dim", "64")
    more = ("--hidden", "96", "--ffn", "160", "--weights", weights)
    done = write(tmp_path, "a.gguf", *shape, *more)
    assert done.returncode == 0, done.stderr
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    value = {name: field.contents() for name, field in reader.fields.items()}
    assert value["llama.block_count"] == 3
    assert value["llama.attention.head_count"] == 6
    assert value["llama.attention.head_count_kv"] == 2
    assert value["llama.attention.key_length"] == value["llama.attention.value_length"] == 64
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert len(tensors) == 3 + 3 * 9
    assert list(tensors["blk.2.attn_k.weight"].shape) == [96, 2 * 64]
    assert list(tensors["blk.0.attn_output.weight"].shape) == [6 * 64, 96]
    assert list(tensors["blk.1.ffn_down.weight"].shape) == [160, 96]
    matrix = tensors["blk.0.attn_q.weight"]
    assert matrix.tensor_type.name == weights.upper()
    values = gguf.dequantize(matrix.data, matrix.tensor_type)
    assert np.std(values) == pytest.approx(96**-0.5, rel=0.05)  # 36,864 normal values


def test_same_arguments_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert write(tmp_path, f"{name}.gguf", "--layers", "1", "--seed", seed).returncode == 0
    first, again, other = ((tmp_path / f"{name}.gguf").read_bytes() for name in "abc")
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--kv-heads", "5"), "--kv-heads 5: does not divide 32 heads"),
        (("--head-dim", "7"), "--head-dim 7: not a multiple of 2"),
        (("--hidden", "40"), "--hidden 40: not a multiple of 32"),
        (("--layers", "0"), "--layers 0: at least 1"),
        (("--out", "no/such/a.gguf"), "its folder does not exist"),
    ],
)
def test_wrong_uses_say_what_to_do(tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    done = write(tmp_path, "a.gguf", *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a.gguf").exists()
