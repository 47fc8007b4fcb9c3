# SPDX-License-Identifier: Apache-2.0
"""--kv-cache-dtype-skip-layers: those layers keep the model's type, the others stay packed."""

import re

import pytest

N_LAYERS = 30
HEADS, HEAD_SIZE, TILE = 3, 64, 128  # SmolLM2's
SKIPPED = ("0", "29")
# format.md, section 3, at D = 64: codes, then scales; K has a[D], z[D], t[G] and e[D], V has C[D],
# a[G] and z[G].
PAIR_BYTES = {
    "k8v8": (8192 + 128 + 128 + 256 + 64) + (8192 + 128 + 256 + 256),
    "k4v2": (4096 + 128 + 128 + 256 + 64) + (2048 + 128 + 256 + 256),
}


def options(preset: str, **more) -> dict:
    skipped = {"kv_cache_dtype_skip_layers": [*SKIPPED]}
    return {"kv_cache_dtype": f"kvarn_{preset}_g128", **skipped, **more}


@pytest.fixture(scope="module")
def beside_float32(engine, prompts):
    """Chunks, shared beginnings and requests of different lengths, twice."""
    lengths = (3, 250, 128, 700, 127, 391, 600)
    wanted = [prompts.cut(length) for length in lengths]
    run = engine(options("k8v8", max_num_batched_tokens=192, max_num_seqs=4), [wanted, wanted])
    return wanted, run


def test_answers_are_those_of_stock(prompts, beside_float32):
    wanted, run = beside_float32
    assert run.metric("prefix_cache_hits") > 0
    for number in (0, 1):
        assert prompts.compare(wanted, run.text(number)) <= 1


def check_pages(caches: dict, preset: str, plain: str, tiles: int) -> None:
    """`tiles`: how many of ours make a page, which is to be as large as one of a skipped layer."""
    record = PAIR_BYTES[preset]
    page = tiles * HEADS * record
    for number in range(N_LAYERS):
        name = f"model.layers.{number}.self_attn.attn"
        found = caches[name]
        if str(number) in SKIPPED:
            assert found["dtype"] == plain
            assert found["block_bytes"] == page
            assert not any(other.startswith(f"{name}.kvarn_tail") for other in caches)
        else:
            assert found["dtype"] == "torch.uint8"
            assert found["shape"][1:] == [HEADS, 1, record]
            assert found["block_bytes"] == HEADS * record
            assert caches[f"{name}.kvarn_tail0"]["block_bytes"] == page


def test_pages_beside_float32(beside_float32):
    plain = 2 * TILE * HEADS * HEAD_SIZE * 4
    tiles = -(-plain // (HEADS * PAIR_BYTES["k8v8"]))
    assert tiles == 4
    check_pages(beside_float32[1].found["caches"], "k8v8", "torch.float32", tiles)


def test_pages_and_capacity_beside_bfloat16(engine):
    """A page has 5 tiles of k4v2, so at 4,096 tokens a request takes 7 for each of 28 layers and
    one of exact rows, 32 for each of 2 skipped ones."""
    common = {"dtype": "bfloat16", "max_model_len": 4096}
    run = engine(options("k4v2", **common), [[[5] * 130]], 2)
    check_pages(run.found["caches"], "k4v2", "torch.bfloat16", 5)
    (tokens,) = re.findall(r"KV cache size: ([\d,]+) tokens", run.output)
    page = 5 * HEADS * PAIR_BYTES["k4v2"]
    request = 28 * (7 + 1) + 2 * 32
    assert int(tokens.replace(",", "")) == pytest.approx(
        (512 << 20) / page / request * 4096, rel=0.02
    )
    stock = (512 << 20) / (N_LAYERS * 2 * TILE * HEADS * HEAD_SIZE * 2) * TILE
    print(f"{tokens} tokens, stock {stock:.0f}")
    assert int(tokens.replace(",", "")) > 2.9 * stock
