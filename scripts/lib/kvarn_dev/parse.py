# SPDX-License-Identifier: Apache-2.0
"""Reads figures from the output of llama.cpp's own tools. Nothing is measured here."""

import json
import re
from dataclasses import dataclass


class ParseError(ValueError):
    """The output is not what the pinned llama.cpp prints."""


@dataclass(frozen=True)
class Divergence:
    """How far the next-token distributions are from those with an f16 cache."""

    kld_mean: float
    kld_median: float
    kld_p999: float
    same_top: float  # per cent of the places where both prefer the same token
    ppl_ratio: float  # perplexity divided by that with f16


def kv_mib(log: str) -> float:
    """Sum of all 'KV buffer size' lines: one for each buffer type and each cache."""
    sizes = re.findall(r"KV buffer size\s*=\s*([\d.]+) MiB", log)
    if not sizes:
        raise ParseError("no 'KV buffer size' line")
    return sum(map(float, sizes))


def tokens_per_second(bench_json: str) -> float:
    """Average speed of the only test of a `llama-bench -o json` run."""
    try:
        tests = json.loads(bench_json)
        (test,) = tests
        return float(test["avg_ts"])
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"not the report of one llama-bench test: {error}") from error


def divergence(text: str) -> Divergence:
    """Statistics at the end of `llama-perplexity --kl-divergence`."""
    return Divergence(
        kld_mean=_number(text, r"Mean\s+KLD"),
        kld_median=_number(text, r"Median\s+KLD"),
        kld_p999=_number(text, r"99\.9%\s+KLD"),
        same_top=_number(text, r"Same top p"),
        ppl_ratio=_number(text, r"Mean PPL\(Q\)/PPL\(base\)"),
    )


def _number(text: str, label: str) -> float:
    found = re.search(rf"^{label}\s*:\s*(-?[\d.]+|-?nan|-?inf)", text, re.MULTILINE)
    if not found:
        raise ParseError(f"no line for {label}")
    return float(found.group(1))
