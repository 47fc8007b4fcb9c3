# SPDX-License-Identifier: Apache-2.0
"""How far 8-bit rows move the logits of a model: the bound below which a tie is a near-tie.

Runs in vLLM's environment with the model's folder and a text as arguments, and uses neither vLLM
nor kvarn: the model in transformers reads the text in steps of one tile, and each finished tile of
its cache is rounded to 256 levels between minimum and maximum, keys by channel, values by token.
kvarn's records of 8 bits rotate and balance first, so they are no worse than that.

For each token beyond the first tile, a movement is the largest change of the distance between the
best token and one of the next four. Prints JSON: their number, root mean square and maximum.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

TILE = 128
WINDOW = 5 * TILE
WINDOWS = 10
NEXT_BEST = 4


def rounded(rows: torch.Tensor, over: int) -> torch.Tensor:
    """256 levels between the least and the largest element along dimension `over`."""
    least, largest = rows.amin(over, keepdim=True), rows.amax(over, keepdim=True)
    unit = ((largest - least) / 255).clamp_min(1e-12)
    return ((rows - least) / unit).round() * unit + least


def logits(model, ids: torch.Tensor, round_tiles: bool) -> torch.Tensor:
    cache = DynamicCache()
    found = []
    for start in range(0, ids.shape[1], TILE):
        found.append(model(ids[:, start : start + TILE], past_key_values=cache).logits[0])
        if round_tiles:
            for layer in cache.layers:  # [1, heads, tokens, channels]
                tile = slice(start, start + TILE)
                layer.keys[:, :, tile] = rounded(layer.keys[:, :, tile], 2)
                layer.values[:, :, tile] = rounded(layer.values[:, :, tile], 3)
    return torch.cat(found)[TILE:]


@torch.inference_mode()
def main() -> None:
    folder, text = sys.argv[1], Path(sys.argv[2]).read_text()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(text)["input_ids"]])
    movements = []
    for start in range(0, WINDOWS * WINDOW, WINDOW):
        window = ids[:, start : start + WINDOW]
        exact = logits(model, window, False)
        best = exact.topk(1 + NEXT_BEST).indices
        moved = (logits(model, window, True) - exact).gather(1, best)
        movements.append((moved[:, :1] - moved[:, 1:]).abs().amax(1))
    found = torch.cat(movements)
    result = {"n": len(found), "rms": found.square().mean().sqrt().item()}
    print(json.dumps({**result, "max": found.max().item()}))


main()
