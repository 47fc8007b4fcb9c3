# SPDX-License-Identifier: Apache-2.0
"""Figures of all rounds, and what follows from them."""

import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Row:
    """One cache at one depth. Ratios are to the baseline of the same round and depth."""

    cache: str
    depth: int
    tok_s: float  # median
    flash: bool  # of the better variant
    ratio: float  # of tok_s, median
    ratio_low: float
    ratio_high: float
    # Milliseconds a token spends on the depth: time here less time at depth 0, medians;
    # None at depth 0.
    attention_ms: float | None
    attention_ratio: float | None  # how many times faster than the baseline's
    samples: list[float] = field(default_factory=list)

    def as_json(self) -> dict:
        return asdict(self)


class Samples:
    """Tokens a second by (cache, flash attention, depth), in the order of the rounds."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool, int], list[float]] = defaultdict(list)

    def add(self, cache: str, flash: bool, depth: int, tok_s: list[float]) -> None:
        self._found[cache, flash, depth] += tok_s

    def best(self, cache: str, depth: int) -> tuple[bool, list[float]]:
        """The variant with the higher median."""
        both = [
            (flash, self._found[cache, flash, depth])
            for flash in (False, True)
            if self._found.get((cache, flash, depth))
        ]
        return max(both, key=lambda variant: statistics.median(variant[1]))

    def rows(self, caches: list[str], depths: list[int], baseline: str) -> list[Row]:
        return [self._row(cache, depth, baseline) for depth in depths for cache in caches]

    def _row(self, cache: str, depth: int, baseline: str) -> Row:
        flash, samples = self.best(cache, depth)
        _, base = self.best(baseline, depth)
        ratios = [ours / theirs for ours, theirs in zip(samples, base, strict=True)]
        ours, theirs = self._attention_ms(cache, depth), self._attention_ms(baseline, depth)
        return Row(
            cache=cache,
            depth=depth,
            tok_s=statistics.median(samples),
            flash=flash,
            ratio=statistics.median(ratios),
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            attention_ms=ours,
            attention_ratio=theirs / ours if ours and theirs and ours > 0 else None,
            samples=samples,
        )

    def _attention_ms(self, cache: str, depth: int) -> float | None:
        if depth == 0:
            return None
        _, here = self.best(cache, depth)
        _, empty = self.best(cache, 0)
        differences = [1000 / a - 1000 / b for a, b in zip(here, empty, strict=True)]
        return statistics.median(differences)
