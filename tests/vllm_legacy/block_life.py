# SPDX-License-Identifier: Apache-2.0
"""A model of the memory behind vLLM's block tables, driven by vLLM's own cache manager.

Random requests that share beginnings run in chunks, are preempted and aborted, and have drafts
rejected. Every step does to the model what the kernels do to the device: it writes exact rows and
seals tiles through the tables. Before that, what attention would read must be there.
"""

import random

import torch
from kvarn.presets import BY_NAME
from kvarn.vllm.legacy import tail_manager
from kvarn.vllm.legacy.specs import PageShape, RecordSpec, TailSpec
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

GROUP = 128
SHAPE = PageShape(BY_NAME["kvarn_k4v2_g128"], 8, 128)
PER_BLOCK = SHAPE.tiles_per_page
MAX_LEN = 4096


def manager(n_blocks: int, lookback: int) -> KVCacheManager:
    tail_manager.register()
    records = RecordSpec(
        block_size=GROUP * PER_BLOCK,
        num_kv_heads=8,
        head_size=128,
        dtype=torch.uint8,
        record_page_bytes=SHAPE.record_page_bytes,
    )
    tail = TailSpec(
        block_size=GROUP,
        num_kv_heads=1,
        head_size=SHAPE.tail_page_bytes,
        dtype=torch.uint8,
        attention_chunk_size=GROUP,
        page_bytes=SHAPE.tail_page_bytes,
        lookback=lookback,
    )
    assert records.page_size_bytes == tail.page_size_bytes
    config = KVCacheConfig(
        n_blocks, [], [KVCacheGroupSpec(["a"], records), KVCacheGroupSpec(["a.tail"], tail)]
    )
    return KVCacheManager(config, MAX_LEN, GROUP * PER_BLOCK, GROUP, 2048)


class Host:
    """Requests and the model: `exact` and `sealed` say by block whose tokens lie where."""

    def __init__(self, seed: int, drafts: int, n_blocks: int) -> None:
        self.random = random.Random(seed)
        self.drafts = drafts
        self.manager = manager(n_blocks, 3 * drafts)
        self.hasher = get_request_block_hasher(GROUP, sha256)
        self.exact: dict[int, list] = {}  # tail block -> token history up to each row
        self.sealed: dict[int, tuple] = {}  # tile of a record block -> its token history
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.seen = {"steps": 0, "hits": 0, "preempted": 0, "rejected": 0}
        base = [self.random.randrange(1000) for _ in range(MAX_LEN)]
        self.prompts = [base[: self.random.randrange(1, 3000)] for _ in range(6)]

    def add(self, number: int) -> None:
        prompt = list(self.random.choice(self.prompts))
        prompt += [self.random.randrange(1000) for _ in range(self.random.choice((0, 1, 130)))]
        parameters = SamplingParams(max_tokens=self.random.randrange(1, 400))
        self.waiting.append(
            Request(str(number), prompt, parameters, None, block_hasher=self.hasher)
        )

    def preempt(self, request: Request) -> None:
        self.manager.free(request)
        request.num_computed_tokens = 0
        self.running.remove(request)
        self.waiting.insert(0, request)
        self.seen["preempted"] += 1

    def schedule(self) -> list[tuple[Request, int]]:
        """Requests and how many tokens each computes."""
        plan: list[tuple[Request, int]] = []
        for request in list(self.running):
            if request not in self.running:
                continue
            n = self.length(request)
            while self.manager.allocate_slots(request, n) is None:
                last = self.running[-1]
                plan = [(other, count) for other, count in plan if other is not last]
                self.preempt(last)
                if last is request:
                    break
            if request in self.running:
                plan.append((request, n))
        while self.waiting and len(self.running) < 8:
            request = self.waiting[0]
            blocks, hit = self.manager.get_computed_blocks(request)
            n = self.length(request, hit)
            if (
                self.manager.allocate_slots(request, n, hit, blocks, full_sequence_must_fit=True)
                is None
            ):
                break
            self.seen["hits"] += hit > 0
            request.num_computed_tokens = hit
            self.running.append(self.waiting.pop(0))
            plan.append((request, n))
        return plan

    def length(self, request: Request, hit: int = 0) -> int:
        left = request.num_tokens - request.num_computed_tokens - hit
        if left <= 1:
            return 1 + self.random.randint(0, self.drafts)
        return min(left, self.random.choice((1, 64, 127, 128, 129, 500, 2048)))

    def step(self) -> None:
        plan = self.schedule()
        self.seen["steps"] += 1
        tables = {}
        for request, n in plan:
            records, tail = self.manager.get_block_ids(request.request_id)
            start = request.num_computed_tokens
            drafted = [self.random.randrange(1000) for _ in range(self.drafts)]
            tokens = (list(request.all_token_ids) + drafted)[: start + n]
            tables[request.request_id] = (records, tail, start, tokens)
            self.read_ring(tail, start, tokens)
        held = [b for _, tail, _, _ in tables.values() for b in tail if b]
        assert len(held) == len(set(held)), "two requests share exact rows"
        for records, tail, start, tokens in tables.values():
            self.append(records, tail, start, tokens)
        for records, tail, start, tokens in tables.values():
            for tile in range(start // GROUP):
                history = tuple(tokens[: (tile + 1) * GROUP])
                assert self.sealed[self.record(records, tile)] == history, "a record is not there"
            if len(tokens) - start <= self.drafts + 1:  # the decode kernel reads its own rows too
                self.read_ring(tail, len(tokens), tokens, start // GROUP * GROUP)
        self.advance(plan)

    @staticmethod
    def record(records: list[int], tile: int) -> int:
        return records[tile // PER_BLOCK] * PER_BLOCK + tile % PER_BLOCK

    def read_ring(self, tail: list[int], end: int, tokens: list, first: int | None = None) -> None:
        """Exact rows from `first` (the open tile's) to `end` are the request's."""
        for x in range(end // GROUP * GROUP if first is None else first, end):
            block = tail[x // GROUP]
            assert block != 0, "an open tile has no block"
            assert self.exact[block][x % GROUP] == hash(tuple(tokens[: x + 1])), "wrong row"

    def append(self, records: list[int], tail: list[int], start: int, tokens: list) -> None:
        for tile in range(start // GROUP, len(tokens) // GROUP):
            first = tile * GROUP
            self.read_ring(tail, max(start, first), tokens, first)
            self.sealed[self.record(records, tile)] = tuple(tokens[: first + GROUP])
        for x in range(start, len(tokens)):
            rows = self.exact.setdefault(tail[x // GROUP], [None] * GROUP)
            rows[x % GROUP] = hash(tuple(tokens[: x + 1]))

    def advance(self, plan: list[tuple[Request, int]]) -> None:
        for request, n in plan:
            request.num_computed_tokens += n
            past = request.num_computed_tokens - request.num_tokens
            if past < 0:
                continue
            accepted = self.random.randint(0, past)
            self.seen["rejected"] += past - accepted
            request.num_computed_tokens -= past - accepted
            # Drafts that are accepted are other tokens in this model: then they are computed again.
            request.num_computed_tokens -= accepted
            request.append_output_token_ids(self.random.randrange(1000))
            done = request.num_output_tokens >= request.max_tokens
            if done or request.num_tokens + 8 > MAX_LEN or self.random.random() < 0.002:
                self.manager.free(request)
                self.running.remove(request)


def life(seed: int, drafts: int, n_blocks: int, n_requests: int = 30) -> dict:
    """Runs all requests to their end; returns how often what happened."""
    host = Host(seed, drafts, n_blocks)
    for number in range(n_requests):
        host.add(number)
    while host.running or host.waiting:
        host.step()
    assert host.manager.block_pool.get_num_free_blocks() == n_blocks - 1, "blocks are lost"
    return host.seen


def notices_blocks_that_are_freed_too_early() -> bool:
    right = tail_manager.TailManager._first_kept
    tail_manager.TailManager._first_kept = lambda self, n_tokens: right(self, n_tokens) + 1
    try:
        life(0, drafts=0, n_blocks=50)
    except (AssertionError, IndexError):
        return True
    finally:
        tail_manager.TailManager._first_kept = right
    return False


if __name__ == "__main__":
    init_none_hash(sha256)
    assert notices_blocks_that_are_freed_too_early()
    total: dict[str, int] = {}
    for seed in range(6):
        for name, count in life(seed, seed % 3 * 2, 30 + 10 * (seed % 2)).items():
            total[name] = total.get(name, 0) + count
    print(total)
    for name in ("hits", "preempted", "rejected"):
        assert total[name] > 0, f"the model never had any: {name}"
