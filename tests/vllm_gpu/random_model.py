# SPDX-License-Identifier: Apache-2.0
"""Writes a small Llama with random weights, scaled so that attention looks at few rows: then an
answer depends on rows far back. Usage: random_model.py FOLDER"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 512, 4, 8, 2, 128, 512, 512


def main(folder: Path) -> None:
    torch.manual_seed(7)
    weights = {}

    def add(name: str, rows: int, columns: int, spread: float) -> None:
        weights[name] = (torch.randn(rows, columns) * spread).half()

    def norm(name: str) -> None:
        weights[name] = torch.ones(HIDDEN).half()

    add("model.embed_tokens.weight", VOCAB, HIDDEN, 1.0)
    add("lm_head.weight", VOCAB, HIDDEN, 0.06)
    norm("model.norm.weight")
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        norm(layer + "input_layernorm.weight")
        norm(layer + "post_attention_layernorm.weight")
        add(layer + "self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN, 0.08)
        add(layer + "self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN, 0.08)
        add(layer + "self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN, 0.05)
        add(layer + "self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM, 0.04)
        add(layer + "mlp.gate_proj.weight", INNER, HIDDEN, 0.03)
        add(layer + "mlp.up_proj.weight", INNER, HIDDEN, 0.03)
        add(layer + "mlp.down_proj.weight", HIDDEN, INNER, 0.03)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))


main(Path(sys.argv[1]))
