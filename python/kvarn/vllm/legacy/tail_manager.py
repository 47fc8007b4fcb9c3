# SPDX-License-Identifier: Apache-2.0
"""Which tiles of a request have a block of exact rows.

Only those where a step may begin: the open tile, and those before that rejected drafts may open
again. Tiles that a step both begins and completes get vLLM's null block: attention reads their rows
from the step itself. Blocks are never shared: what a prefix hit needs is records.
"""

from vllm.v1.core.single_type_kv_cache_manager import ChunkedLocalAttentionManager
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from .specs import RecordSpec, TailSpec


class TailManager(ChunkedLocalAttentionManager):
    def __init__(self, kv_cache_spec: TailSpec, **kwargs) -> None:
        super().__init__(kv_cache_spec, **kwargs)
        self._lookback = kv_cache_spec.lookback
        self._freed: dict[str, int] = {}  # tiles of a request of which all are null

    def _first_kept(self, n_tokens: int) -> int:
        """First tile where the step after one that ends with n_tokens may begin."""
        return max(n_tokens - self._lookback, 0) // self.block_size

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return self._first_kept(num_computed_tokens) * self.block_size

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        required = -(-num_tokens // self.block_size)
        held = len(self.req_to_blocks.get(request_id, ()))
        if request_id not in self.num_cached_block:
            held = max(held, len(new_computed_blocks), self._first_kept(total_computed_tokens))
        if apply_admission_cap:
            return max(min(required - held, self._max_admission_blocks_per_request or required), 0)
        return max(required - max(held, self._first_kept(num_tokens)), 0)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list:
        blocks = self.req_to_blocks[request_id]
        required = -(-num_tokens // self.block_size)
        if required <= len(blocks):
            return []
        kept = max(len(blocks), min(self._first_kept(num_tokens), required))
        new = [self._null_block] * (kept - len(blocks))
        if required > kept:
            new += self.block_pool.get_new_blocks(required - kept)
        blocks.extend(new)
        return new

    def remove_skipped_blocks(
        self,
        request_id: str,
        total_computed_tokens: int,
        num_prompt_tokens: int | None = None,
    ) -> None:
        """As the base class does, but null blocks may lie between others."""
        blocks = self.req_to_blocks.get(request_id)
        if not blocks:
            return
        first = self._freed.get(request_id, 0)
        last = min(self._first_kept(total_computed_tokens), len(blocks))
        gone = [i for i in range(first, last) if blocks[i] != self._null_block]
        self.block_pool.free_blocks([blocks[i] for i in gone])
        for i in gone:
            blocks[i] = self._null_block
        self._freed[request_id] = max(first, last)

    def pop_blocks_for_free(self, request_id: str) -> list:
        self._freed.pop(request_id, None)
        return super().pop_blocks_for_free(request_id)

    def cache_blocks(self, request, num_tokens: int, retention_interval: int | None = None) -> None:
        """Exact rows are not found by later requests."""

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool,
        kv_cache_spec: TailSpec,
        *_args,
        **_kwargs,
    ) -> tuple[list, ...]:
        """Whatever records are found: whole tiles, which need no exact rows."""
        n_tiles = max_length // kv_cache_spec.block_size
        return tuple([block_pool.null_block] * n_tiles for _ in kv_cache_group_ids)


def register() -> None:
    """Tells vLLM who manages the blocks of our specs."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    # vLLM registers its own specs only while the registry is empty.
    KVCacheSpecRegistry._ensure_registered()
    KVCacheSpecRegistry.register(RecordSpec, FullAttentionManager, FullAttentionSpec)
    KVCacheSpecRegistry.register(TailSpec, TailManager, TailSpec)
