# SPDX-License-Identifier: Apache-2.0
"""Holds vLLM to the size of pages that was asked for, and says what it saves."""

from vllm.logger import init_logger

logger = init_logger("vllm.kvarn")


def check_page(spec, wanted: int, plain: int) -> None:
    """vLLM pads pages to the largest one of a model without a word; then nothing is saved.

    wanted, plain: bytes of a page of this `spec`, and of the same tokens in the model's type.
    """
    if spec.page_size_bytes != wanted:
        raise ValueError(
            f"kvarn: vLLM padded its pages from {wanted} to {spec.page_size_bytes} bytes, because "
            "layers with another cache dtype have larger ones; nothing would be saved. "
            "Leave --kv-cache-dtype-skip-layers out, or use --kv-cache-dtype auto."
        )
    logger.info_once(
        "kvarn: %d bytes for %d tokens of a layer instead of %d (%.2f times smaller)",
        wanted,
        spec.block_size,
        plain,
        plain / wanted,
    )
