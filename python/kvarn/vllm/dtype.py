# SPDX-License-Identifier: Apache-2.0
"""Makes vLLM accept the presets as cache dtypes.

Why: the legal names are a `typing.Literal` that pydantic, argparse and the selector read.
How: a longer Literal takes its place wherever a module has bound the name, and the classes that
pydantic built from it are built again.
Gone when: vLLM 0.33's `register_kv_cache_dtype` is everywhere; it replaces this file.
"""

from typing import Literal, get_args

from ..presets import BY_NAME


def add_names() -> None:
    """Adds the names once; proves it by building a CacheConfig."""
    import torch
    from vllm.config import cache
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE

    for name in BY_NAME:
        STR_DTYPE_TO_TORCH_DTYPE[name] = torch.uint8
    if not set(BY_NAME) <= set(get_args(cache.CacheDType)):
        _replace_literal()
    for name in BY_NAME:
        made = cache.CacheConfig(cache_dtype=name)
        if made.cache_dtype != name:
            raise RuntimeError(f"vLLM did not take over the cache dtype {name}: {made.cache_dtype}")


def _replace_literal() -> None:
    from pydantic.dataclasses import rebuild_dataclass
    from vllm.config import VllmConfig, cache, speculative
    from vllm.engine import arg_utils
    from vllm.v1.attention import selector

    old = cache.CacheDType
    new = Literal[(*get_args(old), *BY_NAME)]
    drafts_have_one = hasattr(speculative, "CacheDType")  # not in 0.25
    readers = (cache, arg_utils, selector, *((speculative,) if drafts_have_one else ()))
    for module in readers:  # those that read it as they run
        module.CacheDType = new
    _retype(cache.CacheConfig, "cache_dtype", new)
    if drafts_have_one:
        _retype(speculative.SpeculativeConfig, "kv_cache_dtype", new | None)
    arg_utils.EngineArgs.__annotations__["kv_cache_dtype"] = new
    for made in (cache.CacheConfig, speculative.SpeculativeConfig, VllmConfig):
        rebuild_dataclass(made, force=True)
    arg_utils._compute_kwargs.cache_clear()


def _retype(owner: type, field: str, new: object) -> None:
    owner.__annotations__[field] = new
    owner.__dataclass_fields__[field].type = new
    fields = getattr(owner, "__pydantic_fields__", {})
    if field in fields:
        fields[field].annotation = new
