# SPDX-License-Identifier: Apache-2.0
"""Makes vLLM choose our backend for our cache dtypes.

Why: a platform chooses by its own list; there is no hook for a cache dtype.
How: the platform's chooser is wrapped; every other dtype goes through to it.
Gone when: vLLM asks registered backends which cache dtypes they serve.
"""

from ..presets import BY_NAME


def install(lane) -> None:
    """Wraps the chooser once, on the class that defines it.

    lane.of(config) is the backend class for vLLM's AttentionSelectorConfig of a layer,
    lane.platform_problem(platform) says why this lane cannot run on the platform and what to do, or
    is None; lane.OTHER_WAY is what helps besides another cache dtype if a layer cannot be served.
    """
    from vllm.platforms import current_platform

    platform = type(current_platform)
    owner = next(base for base in platform.__mro__ if "get_attn_backend_cls" in vars(base))
    original = vars(owner)["get_attn_backend_cls"].__func__
    if getattr(original, "kvarn", False):
        return

    def choose(cls, selected_backend, attn_selector_config, num_heads=None):
        if attn_selector_config.kv_cache_dtype not in BY_NAME:
            return original(cls, selected_backend, attn_selector_config, num_heads)
        return _ours(lane, cls, selected_backend, attn_selector_config)

    choose.kvarn = True
    owner.get_attn_backend_cls = classmethod(choose)


def _ours(lane, platform, selected_backend, config) -> str:
    name = config.kv_cache_dtype
    problem = lane.platform_problem(platform())
    if problem:
        raise ValueError(
            f"--kv-cache-dtype {name} on {platform.device_name}: {problem}. Or use another cache "
            "dtype."
        )
    backend = lane.of(config)
    if selected_backend is not None and selected_backend.name != backend.get_name():
        raise ValueError(
            f"--kv-cache-dtype {name} brings its own attention backend {backend.get_name()}, but "
            f"{selected_backend.name} was asked for. Leave --attention-backend out."
        )
    reasons = backend.validate_configuration(device_capability=None, **config._asdict())
    if reasons:
        raise ValueError(
            f"--kv-cache-dtype {name} cannot serve this model: {'; '.join(reasons)}. "
            f"Use another cache dtype{lane.OTHER_WAY}."
        )
    return ".".join(backend.full_cls_name())
