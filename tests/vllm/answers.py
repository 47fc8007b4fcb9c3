# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of stock vLLM, computed once and kept, and how other answers part from them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mixes import MOST_TOKENS


@dataclass(frozen=True)
class Case:
    """An answer to judge: `tokens` follow `prompt`. `label` says where it comes from."""

    label: str
    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Parting:
    case: Case
    at: int  # index of the token, counted from where the prompt or the last parting ended
    gap: float  # what stock's best token is ahead of the one chosen; inf: not among its best

    def __str__(self) -> str:
        return (
            f"{self.case.label}: after {len(self.case.prompt) + self.at} tokens another one than "
            f"stock vLLM's, which is {self.gap:.4f} ahead"
        )


class StockAnswers:
    """compute(prompts) answers [{"tokens", "best": [[[logprob, token], ...], ...]}, ...], each of
    MOST_TOKENS; `path` keeps them between runs, `version` names what they depend on."""

    def __init__(self, compute: Callable[[list], list[dict]], path: Path, version: str) -> None:
        self._compute = compute
        self._path = path
        self._version = version
        self._kept: dict[str, dict] = json.loads(path.read_text()) if path.exists() else {}
        self.computed = 0

    def _key(self, prompt: list[int]) -> str:
        return hashlib.sha256(json.dumps([self._version, prompt]).encode()).hexdigest()

    def prepare(self, prompts: list[list[int]]) -> None:
        missing = {self._key(p): p for p in prompts if self._key(p) not in self._kept}
        if not missing:
            return
        found = self._compute(list(missing.values()))
        self._kept.update(zip(missing, found, strict=True))
        self.computed += len(missing)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._kept))
        partial.replace(self._path)

    def judge(self, cases: list[Case], near_tie: float) -> list[Parting]:
        """Where answers part from stock's. After a near-tie the rest of an answer is held against
        what stock says to the prompt and the answer so far; after any other parting it is not."""
        partings = []
        while cases:
            self.prepare([case.prompt for case in cases])
            following = []
            for case in cases:
                found = self._part(case)
                if found is None:
                    continue
                partings.append(found)
                end = found.at + 1
                if found.gap <= near_tie and end < len(case.tokens):
                    longer = case.prompt + case.tokens[:end]
                    following.append(Case(case.label, longer, case.tokens[end:]))
            cases = following
        return partings

    def _part(self, case: Case) -> Parting | None:
        stock = self._kept[self._key(case.prompt)]
        assert len(case.tokens) <= len(stock["tokens"]) == MOST_TOKENS
        pairs = zip(case.tokens, stock["tokens"], strict=False)
        at = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        if at is None:
            return None
        known = {token: logprob for logprob, token in stock["best"][at]}
        gap = known[stock["tokens"][at]] - known.get(case.tokens[at], float("-inf"))
        return Parting(case, at, gap)
