# SPDX-License-Identifier: Apache-2.0
"""Says which features of a layer or an engine the plug-in does not serve."""


def refuse(dtype: str, found: dict[str, bool]) -> None:
    """Raises ValueError if any feature in `found` is there."""
    reasons = [what for what, there in found.items() if there]
    if reasons:
        raise ValueError(
            f"--kv-cache-dtype {dtype} does not support {', '.join(reasons)}. Use another cache "
            "dtype, or an engine without them."
        )
