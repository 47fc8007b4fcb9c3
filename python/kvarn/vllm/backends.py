# SPDX-License-Identifier: Apache-2.0
"""One backend class for each preset: vLLM asks the class for its page size, without the dtype."""

from dataclasses import replace
from typing import ClassVar

import torch
from vllm.config import get_current_vllm_config
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout

from ..presets import BY_NAME, Preset
from . import skipped
from .preset_classes import by_preset


class KvarnBackend(AttentionBackend):
    """What all presets share. A tile is [n_kv_heads] pairs of a K and a V record."""

    preset: ClassVar[Preset]
    tiles_a_page: ClassVar[int] = 1  # more beside layers that are skipped
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    forward_includes_kv_cache_update = True

    @classmethod
    def get_name(cls) -> str:
        return cls.preset.name.upper()

    @staticmethod
    def get_impl_cls():
        from .impl import KvarnImpl

        return KvarnImpl

    @staticmethod
    def get_builder_cls():
        from .metadata import KvarnMetadataBuilder

        return KvarnMetadataBuilder

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype) -> bool:
        return kv_cache_dtype == cls.preset.name

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return cls.preset.pair_bytes(head_size) > 0

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int]:
        return [128]

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        return block_size is None or block_size == 128

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return 128

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return (KVCacheLayout.LBHNC,)

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
            said.append(f"head size {head_size} is not a multiple of 8 from 32 to 576")
        if not cls.supports_block_size(block_size):
            said.append(f"--block-size {block_size} is not 128, the length of a tile")
        return ", ".join(said) or None

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        if spec.head_size_v != spec.head_size:
            raise NotImplementedError(
                f"--kv-cache-dtype {cls.preset.name} does not support values of head size "
                f"{spec.head_size_v} beside keys of {spec.head_size}. Use another cache dtype."
            )
        pair = cls.preset.pair_bytes(spec.head_size)
        group = cls.preset.group
        whole = spec.block_size % group == 0
        return replace(
            spec,
            block_size=spec.block_size * (cls.tiles_a_page if whole else 1),
            num_head_slots=spec.num_kv_heads,
            tokens_per_state=group if whole else 1,
            # vLLM also asks with blocks of one token, for estimates
            state_content_bytes=pair if whole else -(-pair // group),
            dtype=torch.uint8,
        )


_CLASSES = by_preset(KvarnBackend, "Backend", globals())


def _with_pages(backend: type[KvarnBackend], tiles: int) -> type[KvarnBackend]:
    """A subclass with so many tiles a page. vLLM finds it by its path, as it does the others."""
    name = f"{backend.__name__}Pages{tiles}"
    if name not in globals():
        fields = {"tiles_a_page": tiles, "__module__": __name__}
        globals()[name] = type(name, (backend,), fields)
    return globals()[name]


class CpuLane:
    """What the choice of a backend needs to know about this lane."""

    OTHER_WAY = ", or --kv-cache-dtype-skip-layers for the layers concerned"

    def of(self, config) -> type[KvarnBackend]:
        """The backend for a layer with this AttentionSelectorConfig."""
        backend = _CLASSES[BY_NAME[config.kv_cache_dtype].name]
        engine = get_current_vllm_config()
        names = engine.cache_config.kv_cache_dtype_skip_layers
        if not names:
            return backend
        problem = skipped.names_problem(names, engine.model_config.get_total_num_hidden_layers())
        if problem:
            raise ValueError(problem)
        if not backend.supports_head_size(config.head_size):
            return backend  # refused later, with the reason
        tiles = skipped.tiles_a_page(backend.preset, config.head_size, config.dtype)
        return _with_pages(backend, tiles)

    def platform_problem(self, platform) -> str | None:
        if platform.is_cpu():
            return None
        return "with this vLLM kvarn's plug-in runs on CPU only; on CUDA use vLLM 0.25.1"


def register() -> None:
    """A member of vLLM's enumeration for each class, once."""
    for made in _CLASSES.values():
        if made.get_name() not in AttentionBackendEnum.__members__:
            register_backend(made.get_name(), ".".join(made.full_cls_name()))
