# SPDX-License-Identifier: Apache-2.0
"""What vLLM itself says about the size of its cache, and that other dtypes are as without kvarn."""

import os
import re

import pytest

PROMPT = [list(range(100, 240)), list(range(100, 231)), list(range(300, 1000))]
OPTIONS = {"dtype": "bfloat16", "max_model_len": 4096}


def tokens(output: str) -> int:
    (found,) = re.findall(r"KV cache size: ([\d,]+) tokens", output)
    return int(found.replace(",", ""))


@pytest.fixture(scope="module")
def stock(engine):
    return engine(OPTIONS, [PROMPT], 8)


# Rings included: five pages of a k4v2 request beside its 32 tiles, and one scheme of vLLM's own
# that rounds to whole requests. Without rings it would be 4.49 and 1.87.
@pytest.mark.parametrize(("preset", "least"), [("k4v2", 3.7), ("k8v8", 1.6)])
def test_tokens_that_fit(engine, stock, preset, least):
    ours = engine({**OPTIONS, "kv_cache_dtype": f"kvarn_{preset}_g128"}, [PROMPT], 8)
    ratio = tokens(ours.output) / tokens(stock.output)
    print(
        f"{preset}: {tokens(ours.output)} tokens, auto: {tokens(stock.output)}, {ratio:.2f} times"
    )
    assert ratio > least


def test_without_the_flag_nothing_changes(engine, stock, monkeypatch):
    """The same cache and backend as with the plug-in left out, and logprobs bit for bit."""
    monkeypatch.setitem(os.environ, "VLLM_PLUGINS", "")
    without = engine(OPTIONS, [PROMPT], 8)
    assert without.text() == stock.text()
    assert all(len(answer["logprobs"]) == 8 for answer in stock.text())
    assert tokens(without.output) == tokens(stock.output)
    assert "kvarn" not in re.sub(r"\S*/\S*", "", stock.output).lower().replace("kvarn_", "")
