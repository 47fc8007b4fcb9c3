# SPDX-License-Identifier: Apache-2.0
"""Attention of one layer: finds its pages, its tail and the step, and runs the kernels."""

import torch
from vllm.config import get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.v1.attention.backend import AttentionImpl, AttentionType

from ...presets import BY_NAME
from ..refusal import of_layer, refuse
from .specs import PageShape
from .step import LayerMemory, Limits, StepKernels
from .tail import TailLayer

# Drafts from n-grams change nothing else; draft models have layers of their own.
_DRAFTS = (None, "ngram", "ngram_gpu", "suffix")


class CudaImpl(AttentionImpl):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self._config = get_current_vllm_config()
        drafts = getattr(self._config.speculative_config, "method", None)
        scheduler = self._config.scheduler_config
        parallel = self._config.parallel_config
        refuse(
            kv_cache_dtype,
            {
                **of_layer(
                    self,
                    alibi_slopes,
                    sliding_window,
                    logits_soft_cap,
                    attn_type,
                    kv_sharing_target_layer_name,
                    sinks,
                ),
                "KV connectors": self._config.kv_transfer_config is not None,
                f"drafts by {drafts}": drafts not in _DRAFTS,
                # A step plans once for all layers of a shape.
                "micro-batches (DBO)": parallel.use_ubatching,
                # Steps of an idle rank name blocks that others have by now.
                "data parallelism with vLLM's V2 model runner": (
                    parallel.data_parallel_size > 1 and self._config.use_v2_model_runner
                ),
                # Layers of ours may then have different block tables.
                "--kv-cache-dtype-skip-layers": bool(
                    self._config.cache_config.kv_cache_dtype_skip_layers
                ),
                "--disable-hybrid-kv-cache-manager": bool(
                    scheduler.disable_hybrid_kv_cache_manager
                ),
            },
        )
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self._shape = PageShape(BY_NAME[kv_cache_dtype], num_kv_heads, head_size)
        self._name = ""
        self._tail: TailLayer | None = None

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Adds the layer of exact rows to those for which vLLM allocates memory, once."""
        if self._tail is not None:  # weights are loaded again
            return
        layers = self._config.compilation_config.static_forward_context
        self._name = next(n for n, layer in layers.items() if getattr(layer, "impl", None) is self)
        drafts = self._config.num_speculative_tokens
        self._tail = TailLayer(self._shape, 3 * drafts, self._kernels(layers, act_dtype))
        layers[self._name + ".kvarn_tail"] = self._tail

    def _kernels(self, layers: dict, dtype: torch.dtype) -> StepKernels:
        """Those of the first layer of this shape, or new ones."""
        for other in layers.values():
            same = isinstance(other, TailLayer) and other.shape == self._shape
            if same and other.kernels.serves(self.num_heads, self.scale):
                return other.kernels
        config = self._config
        limits = Limits(
            n_requests=config.scheduler_config.max_num_seqs,
            n_tokens=config.scheduler_config.max_num_batched_tokens,
            n_tiles=-(-config.model_config.max_model_len // self._shape.preset.group),
            widths=tuple(range(1, config.num_speculative_tokens + 2)),
        )
        device = torch.device("cuda", torch.cuda.current_device())
        return StepKernels(
            self._name, self._shape, self.num_heads, dtype, self.scale, limits, device
        )

    def forward(
        self,
        layer,
        query: torch.Tensor,  # [tokens, heads, head_size], tokens may be padded
        key: torch.Tensor,  # [tokens, kv_heads, head_size]
        value: torch.Tensor,
        kv_cache: torch.Tensor,  # uint8 [blocks, kv_heads, bytes of a pair of records]
        attn_metadata,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if output_scale is not None or output_block_scale is not None:
            raise ValueError("kvarn: quantised attention output is not supported")
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        found = get_forward_context().attn_metadata[self._name + ".kvarn_tail"]
        memory = LayerMemory(kv_cache, self._tail.kv_cache)
        self._tail.kernels.run(
            self._name, attn_metadata, found.block_table, memory, query, key, value, output
        )
        return output
