# SPDX-License-Identifier: Apache-2.0
"""kvarn: a KV cache in 2 to 8 bits. `kvarn.vllm` is the plug-in for vLLM."""

__version__ = "0.1.0"
