# SPDX-License-Identifier: Apache-2.0
"""The plug-in for stock vLLM: `--kv-cache-dtype kvarn_k4v2_g128`.

vLLM calls `register` in every process, before it reads its arguments. Nothing changes for other
cache dtypes. docs/vllm.md says how it works.
"""


def register() -> None:
    """Entry point of the group `vllm.general_plugins`; may be called more than once."""
    from . import versions

    lane = versions.lane()
    if lane is versions.Lane.NONE:  # vLLM goes on without our cache dtypes
        versions.logger.error(versions.problem())
    elif lane is versions.Lane.LEGACY:
        from . import legacy

        legacy.install()
    else:
        from . import backends, dtype, selection

        dtype.add_names()
        backends.register()
        selection.install(backends.CpuLane())
