# SPDX-License-Identifier: Apache-2.0
"""Mixes of requests, and which engine runs each. A mix follows from its number alone: 200 random
ones, then those that have a prompt of every length modulo the tile, for each length of drafts."""

import random
from dataclasses import asdict, dataclass, field

TILE = 128
N_MIXES = 200
MOST_TOKENS = 32  # of an answer
# One that begins without cached prefixes and those after it, which find its blocks.
RUN_OF_MIXES = 5
LENGTHS_A_MIX = 16
# Text begins there for half of the prompts, so that they share tiles.
COMMON_STARTS = (0, 500, 1500, 2500)
POOL_SIZE = 160
LONGEST = 512


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    tokens: int
    arrives: int = 0  # step of the engine, counted from the beginning of the mix
    leaves: int | None = None  # aborted so many steps after it arrived, if still there


@dataclass(frozen=True)
class Mix:
    number: int
    requests: list[Request]
    forgets: bool  # the prefix cache is emptied first


@dataclass(frozen=True)
class Setting:
    """Arguments of one engine. With few blocks requests wait for each other, or are preempted."""

    number: int
    chunk: int  # max_num_batched_tokens
    requests: int  # max_num_seqs
    blocks: int | None
    # A request starts although its whole prompt does not fit: preempted in the middle of prompts.
    starts_early: bool = False

    @property
    def drafts(self) -> int:
        return self.number % 5

    def engine(self) -> dict:
        arguments = {
            "kv_cache_dtype": "kvarn_k8v8_g128",
            "max_model_len": LONGEST + MOST_TOKENS + TILE,
            "max_num_batched_tokens": self.chunk,
            "max_num_seqs": self.requests,
        }
        if self.starts_early:
            arguments["scheduler_reserve_full_isl"] = False
        if self.blocks:
            arguments["num_gpu_blocks_override"] = self.blocks
        if self.drafts:
            arguments["speculative_config"] = {
                "method": "ngram",
                "num_speculative_tokens": self.drafts,
                "prompt_lookup_min": 1,
                "prompt_lookup_max": 2,
            }
        return arguments


SETTINGS = [
    Setting(number, *rest)
    for number, rest in enumerate(
        [
            *((512, 16, None), (192, 16, None), (333, 12, None), (128, 16, None), (250, 8, None)),
            *((64, 8, 30), (256, 8, 26), (130, 6, 24), (40, 8, 20, True), (200, 8, 18, True)),
        ]
    )
]


@dataclass
class Texts:
    """Prompts from the tokens of a text, `ids`."""

    ids: list[int]
    pool: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(1)
        self.pool = [self._one(draw) for _ in range(POOL_SIZE)]

    def cut(self, length: int, start: int) -> list[int]:
        assert start + length <= len(self.ids)
        return self.ids[start : start + length]

    def _one(self, draw: random.Random) -> list[int]:
        near_end = draw.randint(1, 3) * TILE + draw.randint(-3, 3)
        length = draw.choice((draw.randint(1, LONGEST), near_end))
        anywhere = draw.randint(0, len(self.ids) - LONGEST)
        start = draw.choice((draw.choice(COMMON_STARTS), anywhere))
        prompt = self.cut(length, start)
        if draw.random() < 0.25:  # a common beginning that forks, often inside a tile
            fork = draw.randint(0, length)
            prompt = prompt[:fork] + self.cut(length - fork, anywhere)
        return prompt

    def mix(self, number: int) -> Mix:
        """Below N_MIXES a random one; from there on one that has every residue in a range."""
        if number >= N_MIXES:
            first = (number - N_MIXES) * LENGTHS_A_MIX % TILE
            return Mix(number, self._lengths(range(first, first + LENGTHS_A_MIX)), forgets=True)
        draw = random.Random(1000 + number)
        requests = []
        for _ in range(draw.randint(3, 8)):
            aborted = draw.random() < 0.2
            requests.append(
                Request(
                    prompt=draw.choice(self.pool),
                    tokens=draw.randint(1, MOST_TOKENS),
                    arrives=draw.choice((0, 0, draw.randint(1, 15))),
                    leaves=draw.randint(1, 20) if aborted else None,
                )
            )
        return Mix(number, requests, forgets=_forgets(number))

    def _lengths(self, residues: range) -> list[Request]:
        """A prompt for each residue of its length modulo the tile; the same for all settings."""
        draw = random.Random(2000 + residues.start)
        requests = []
        for residue in residues:
            tiles = draw.choice((1, 2)) if residue == 0 else draw.choice((0, 1, 1, 2))
            start = draw.choice(COMMON_STARTS)
            requests.append(Request(self.cut(residue + TILE * tiles, start), MOST_TOKENS))
        return requests


def _forgets(number: int) -> bool:
    return number >= N_MIXES or number % RUN_OF_MIXES == 0


def numbers_of(setting: Setting) -> list[int]:
    """The setting's share of the random mixes; with ample memory also every length."""
    share = N_MIXES // len(SETTINGS)
    random_ones = range(setting.number * share, (setting.number + 1) * share)
    if setting.blocks is not None:
        return [*random_ones]
    n_lengths = TILE // LENGTHS_A_MIX
    first = N_MIXES + setting.number * n_lengths
    return [*random_ones, *range(first, first + n_lengths)]


def leading_to(number: int) -> list[int]:
    """The mix and those before it of which it may find blocks."""
    first = number if number >= N_MIXES else number - number % RUN_OF_MIXES
    return [*range(first, number + 1)]


def job(engine: dict, mixes: list[Mix], logprobs: int | None) -> dict:
    """What stepping_engine.py reads."""
    return {"engine": engine, "mixes": [asdict(mix) for mix in mixes], "logprobs": logprobs}
