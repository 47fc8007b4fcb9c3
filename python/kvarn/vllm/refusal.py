# SPDX-License-Identifier: Apache-2.0
"""Says which features of a layer or an engine the plug-in does not serve."""

from vllm.v1.attention.backend import AttentionType


def of_layer(
    impl, alibi_slopes, sliding_window, logits_soft_cap, attn_type, kv_sharing, sinks
) -> dict[str, bool]:
    """Features that no lane serves, by the arguments of vLLM's AttentionImpl `impl`."""
    return {
        "ALiBi": alibi_slopes is not None,
        f"a sliding window of {sliding_window} tokens": sliding_window is not None,
        f"a logit soft-cap of {logits_soft_cap}": bool(logits_soft_cap),
        f"attention type {attn_type}": attn_type != AttentionType.DECODER,
        "layers that share a KV cache": kv_sharing is not None,
        "attention sinks": sinks is not None,
        "decode context parallelism": impl.dcp_world_size > 1,
        "prefill context parallelism": impl.pcp_world_size > 1,
    }


def refuse(dtype: str, found: dict[str, bool]) -> None:
    """Raises ValueError if any feature in `found` is there."""
    reasons = [what for what, there in found.items() if there]
    if reasons:
        raise ValueError(
            f"--kv-cache-dtype {dtype} does not support {', '.join(reasons)}. Use another cache "
            "dtype, or an engine without them."
        )
