# SPDX-License-Identifier: Apache-2.0
"""The presets that hosts offer, and the sizes of their records."""

import ctypes
from dataclasses import dataclass

from . import _abi
from ._library import library


@dataclass(frozen=True)
class Preset:
    """A pair of record formats: bits of keys and values, tile length in tokens."""

    key_bits: int
    value_bits: int
    group: int = 128

    @property
    def name(self) -> str:
        return f"kvarn_k{self.key_bits}v{self.value_bits}_g{self.group}"

    def key_format(self, head_dim: int, order: int = _abi.ORDER_CPU) -> _abi.Format:
        return _abi.Format(_abi.KEY, _abi.BALANCED, order, self.key_bits, self.group, head_dim)

    def value_format(self, head_dim: int, order: int = _abi.ORDER_CPU) -> _abi.Format:
        return _abi.Format(_abi.VALUE, _abi.BALANCED, order, self.value_bits, self.group, head_dim)

    def key_bytes(self, head_dim: int, order: int = _abi.ORDER_CPU) -> int:
        """Bytes of a K record, 0 if the head dim is not legal."""
        return library().kvarn_record_bytes(ctypes.byref(self.key_format(head_dim, order)))

    def pair_bytes(self, head_dim: int, order: int = _abi.ORDER_CPU) -> int:
        """Bytes of a K record followed by a V record, 0 if the head dim is not legal."""
        value = library().kvarn_record_bytes(ctypes.byref(self.value_format(head_dim, order)))
        return self.key_bytes(head_dim, order) + value


PRESETS = tuple(
    Preset(key, value) for key, value in ((8, 8), (8, 4), (4, 4), (4, 2), (3, 3), (3, 2), (2, 2))
)
BY_NAME = {preset.name: preset for preset in PRESETS}
