# SPDX-License-Identifier: Apache-2.0
"""Sizes of pages: records of the attention layer, exact rows of the tail layer beside it.

vLLM hands out blocks of one size in bytes to all layers and makes that so by giving layers with
small pages more tokens a block. A tail page holds the 16-bit rows of one tile; it is padded to a
whole number of record pages, so that a block of records is that many tiles.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec

from ... import _abi
from ...presets import Preset

ROW_BYTES = 2  # of a value
ROW_ALIGNMENT = 16


@dataclass(frozen=True)
class PageShape:
    """Pages of one layer, for KV heads on this device; keys and values have the same head dim."""

    preset: Preset
    n_kv_heads: int
    head_dim: int

    @property
    def key_bytes(self) -> int:
        return self.preset.key_bytes(self.head_dim, _abi.ORDER_CUDA)

    @property
    def pair_bytes(self) -> int:
        return self.preset.pair_bytes(self.head_dim, _abi.ORDER_CUDA)

    @property
    def record_page_bytes(self) -> int:
        """[n_kv_heads] pairs of a K and a V record: one tile."""
        return self.n_kv_heads * self.pair_bytes

    @property
    def row_stride(self) -> int:
        """Bytes from one exact row of a head to the next."""
        return self._tail_layout[1]

    @property
    def tiles_per_page(self) -> int:
        """Record pages in a tail page."""
        return self._tail_layout[0]

    @cached_property
    def _tail_layout(self) -> tuple[int, int]:
        """The fewest record pages that hold [K, V][n_kv_heads][group] rows, and their stride.

        The kernels count pages in rows, so the stride divides the page.
        """
        rows = 2 * self.n_kv_heads * self.preset.group
        for n_pages in count(1):
            page = n_pages * self.record_page_bytes
            for stride in range(ROW_BYTES * self.head_dim, page // rows + 1, ROW_ALIGNMENT):
                if page % stride == 0:
                    return n_pages, stride
        raise AssertionError("a page of enough records is a multiple of any stride")

    @property
    def tail_page_bytes(self) -> int:
        return self.tiles_per_page * self.record_page_bytes

    @property
    def rows_per_tail_page(self) -> int:
        """Rows, as the kernels count them, from one tail page to the next."""
        return self.tail_page_bytes // self.row_stride


@dataclass(frozen=True, kw_only=True)
class RecordSpec(FullAttentionSpec):
    """Blocks of whole tiles; a page of `group` tokens has record_page_bytes bytes."""

    record_page_bytes: int = 0
    group: int = 128

    @property
    def real_page_size_bytes(self) -> int:
        return -(-self.block_size * self.record_page_bytes // self.group)

    @classmethod
    def merge(cls, specs: list) -> "RecordSpec":
        merged = super().merge(specs)
        sizes = {(spec.record_page_bytes, spec.group) for spec in specs}
        assert len(sizes) == 1, f"layers of one cache group have records of sizes {sizes}"
        return replace(merged, record_page_bytes=specs[0].record_page_bytes, group=specs[0].group)


@dataclass(frozen=True, kw_only=True)
class TailSpec(ChunkedLocalAttentionSpec):
    """Blocks of one tile's exact rows. `lookback`: tokens by which a host may take lengths back."""

    page_bytes: int
    lookback: int

    @property
    def real_page_size_bytes(self) -> int:
        return self.page_bytes

    def max_admission_blocks_per_request(
        self, max_num_batched_tokens: int, max_model_len: int
    ) -> int:
        """Tiles around the beginning and around the end of a step."""
        around = 1 + -(-self.lookback // self.block_size)
        return min(2 * around, -(-max_model_len // self.block_size))
