# SPDX-License-Identifier: Apache-2.0
"""Layers that --kv-cache-dtype-skip-layers leaves in the model's type, beside packed ones.

vLLM's pages all have one size. It would pad ours, the smaller ones, to that of a skipped layer, and
nothing would be saved. So our page holds as many tiles as make it the larger one: then the pages of
the few skipped layers are padded, by less than one of our tiles.
"""

import torch

from ..presets import Preset

SLIDING = "sliding_window"


def tiles_a_page(preset: Preset, head_size: int, dtype: torch.dtype) -> int:
    """Tiles that take at least the room of one tile of plain keys and values of type `dtype`."""
    element = torch.empty(0, dtype=dtype).element_size()
    plain = 2 * preset.group * head_size * element
    return -(-plain // preset.pair_bytes(head_size))


def names_problem(names: list[str], n_layers: int) -> str | None:
    """Which of `names` mean nothing to vLLM, which passes over them without a word."""
    known = {SLIDING, *map(str, range(n_layers))}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    return (
        f"--kv-cache-dtype-skip-layers {' '.join(unknown)}: no such layer. Give numbers of layers "
        f"from 0 to {n_layers - 1}, or {SLIDING} for all layers with a sliding window."
    )
