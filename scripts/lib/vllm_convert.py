# SPDX-License-Identifier: Apache-2.0
"""GGUF file to a Hugging Face folder in bf16; runs in vLLM's environment.

Usage: vllm_convert.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are plain now, whatever they were made from.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.to(torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)


main()
