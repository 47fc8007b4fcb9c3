# SPDX-License-Identifier: Apache-2.0
"""What a step looks like: tensors on the device, which the kernels read, and the sizes of the call.

Nothing is read back: a captured graph sees the same tensors with other contents.
"""

from dataclasses import dataclass

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder

from ..pages import check_page


@dataclass
class StepMetadata:
    """Tensors are int32 on the device."""

    n_requests: int
    n_tokens: int  # of all requests
    max_query_len: int
    query_begin: torch.Tensor  # [requests + 1]
    lengths: torch.Tensor  # [requests] with the tokens of this step
    block_table: torch.Tensor  # [requests][tiles]

    @property
    def width(self) -> int | None:
        """Query tokens of each request, if all have as many."""
        uniform = self.n_requests * self.max_query_len == self.n_tokens
        return self.max_query_len if uniform else None


class StepMetadataBuilder(AttentionMetadataBuilder[StepMetadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        _check_page(kv_cache_spec, vllm_config)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> StepMetadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise ValueError("kvarn: attention that is not causal is not supported")
        n = common.num_reqs
        tensors = (
            common.query_start_loc[: n + 1],
            common.seq_lens[:n],
            common.block_table_tensor[:n],
        )
        for tensor in tensors:
            if tensor.dtype != torch.int32 or tensor.stride(-1) != 1:
                raise ValueError(
                    f"kvarn: vLLM gave metadata of type {tensor.dtype} and strides "
                    f"{tensor.stride()}; expected neighbouring int32 values"
                )
        return StepMetadata(n, common.num_actual_tokens, common.max_query_len, *tensors)


def _check_page(spec, vllm_config) -> None:
    wanted = spec.record_page_bytes * spec.block_size // spec.group
    element = torch.empty(0, dtype=vllm_config.model_config.dtype).element_size()
    plain = 2 * spec.block_size * spec.num_kv_heads * spec.head_size * element
    check_page(spec, wanted, plain)
