# SPDX-License-Identifier: Apache-2.0
"""The parsers against output that the pinned llama.cpp really printed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvarn_dev import measure, parse
from kvarn_dev.command import CTEST, NINJA, Counter

CAPTURES = Path(__file__).parent / "captures"


def capture(name: str) -> str:
    return (CAPTURES / name).read_text()


def test_kv_size_is_the_buffer_not_the_declared_type():
    assert parse.kv_mib(capture("completion_kv.txt")) == 95.62


def test_kv_size_adds_the_caches_of_a_sliding_window_model():
    assert parse.kv_mib(capture("completion_kv_swa.txt")) == 24.0 + 15.0


def test_speed():
    assert parse.tokens_per_second(capture("bench.json")) == pytest.approx(36.089214)


def test_divergence():
    found = parse.divergence(capture("perplexity_kld.txt"))
    assert found == parse.Divergence(
        kld_mean=0.049731,
        kld_median=0.024448,
        kld_p999=1.493375,
        same_top=89.394,
        ppl_ratio=1.042654,
    )


def test_divergence_that_is_not_a_number_is_kept():
    text = capture("perplexity_kld.txt").replace("Median  KLD:   0.024448", "Median  KLD:   nan")
    assert parse.divergence(text).kld_median != parse.divergence(text).kld_median


@pytest.mark.parametrize("reader", [parse.kv_mib, parse.tokens_per_second, parse.divergence])
@given(text=st.text(max_size=200))
def test_other_text_is_an_error_of_its_own(reader, text):
    with pytest.raises(parse.ParseError):
        reader(text)


@pytest.mark.parametrize("label", ["Mean    KLD", "99.9%   KLD", "Same top p", "Mean PPL(Q)/PPL"])
def test_each_missing_line_is_noticed(label):
    lines = capture("perplexity_kld.txt").splitlines()
    text = "\n".join(line for line in lines if not line.startswith(label))
    with pytest.raises(parse.ParseError):
        parse.divergence(text)


def test_progress_of_the_stock_tools():
    base = Counter(measure._BASE_WINDOW, 3)
    assert base.find("1.32 minutes\n") is None
    assert base.find("1.32 minutes\n[1]7.7803,[2]12.7573,") == (2, 3)
    kld = Counter(measure._KLD_WINDOW, 3)
    assert kld.find(capture("perplexity_kld.txt")) == (2, 3)


def test_progress_of_builds_and_tests():
    assert NINJA.find("[1/230] Building\n[17/230] Building CXX object x.o\n") == (17, 230)
    assert CTEST.find(" 3/12 Test  #3: format_test ........   Passed    0.01 sec\n") == (3, 12)
