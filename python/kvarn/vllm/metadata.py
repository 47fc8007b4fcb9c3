# SPDX-License-Identifier: Apache-2.0
"""What a step looks like: lengths, tables and how many tiles it completes."""

from dataclasses import dataclass, field

import numpy as np
import torch
from vllm.v1.attention.backend import AttentionMetadataBuilder

from .pages import check_page


@dataclass
class KvarnMetadata:
    """Arrays are int32 and contiguous; they live as long as this object."""

    n_tokens: int
    query_start: np.ndarray  # [requests + 1]
    lengths: np.ndarray  # [requests] with the tokens of this step
    block_table: np.ndarray  # [requests][tiles]
    completes_tiles: bool
    pairs: int  # of query tokens and rows that they may see, at most
    # [requests][pages], by the rings' metadata that it was made from
    ring_tables: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def ring_table(self, rings: tuple) -> np.ndarray:
        """Blocks of the pages of each request's ring; `rings` has the metadata of each page."""
        key = tuple(id(ring) for ring in rings)
        if key not in self.ring_tables:
            n = len(self.lengths)
            columns = [ring.block_table[:n, 0] for ring in rings]
            self.ring_tables[key] = torch.stack(columns, 1).to(torch.int32).contiguous().numpy()
        return self.ring_tables[key]


class KvarnMetadataBuilder(AttentionMetadataBuilder[KvarnMetadata]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._group = kv_cache_spec.tokens_per_state
        _check_page(kv_cache_spec, vllm_config)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> KvarnMetadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("kvarn: attention that is not causal is not supported")
        n = common.num_reqs
        query_start = _int32(common.query_start_loc[: n + 1])
        lengths = _int32(common.seq_lens[:n])
        counts = np.diff(query_start)
        computed = lengths - counts
        return KvarnMetadata(
            n_tokens=common.num_actual_tokens,
            query_start=query_start,
            lengths=lengths,
            block_table=_int32(common.block_table_tensor[:n]),
            pairs=int(counts.astype(np.int64) @ lengths),
            completes_tiles=bool((lengths // self._group > computed // self._group).any()),
        )


def _int32(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy(), dtype=np.int32)


def _check_page(spec, vllm_config) -> None:
    wanted = spec.unpadded_page_size_bytes
    element = torch.empty(0, dtype=vllm_config.model_config.dtype).element_size()
    plain = spec.block_size * spec.num_kv_heads * (spec.head_size + spec.head_size_v) * element
    check_page(spec, wanted, plain)
