# SPDX-License-Identifier: Apache-2.0
"""The lane for vLLM before `customize_spec` (0.25.1), on CUDA: pages of records for the kernels of
kvarn_cuda.h, and pages of exact rows beside them, both owned by vLLM's scheduler."""


def install() -> None:
    """Everything that this lane adds to or wraps in vLLM; may be called more than once."""
    from .. import dtype, selection
    from . import layer_spec, tail_manager
    from .backends import CudaLane

    dtype.add_names()
    layer_spec.install()
    tail_manager.register()
    selection.install(CudaLane())
