# SPDX-License-Identifier: Apache-2.0
"""The KV caches that are compared, and how llama.cpp is told to use each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .paths import plugin_path


@dataclass(frozen=True)
class Cache:
    name: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def stock(kind: str) -> Cache:
    """One of llama.cpp's own cache types, without the plug-in."""
    return Cache(kind, ("-ctk", kind, "-ctv", kind))


def kvarn(device: str) -> Cache:
    """A device of the plug-in. All layers must be on it, otherwise their KV bypasses it."""
    env = {"GGML_BACKEND_PATH": str(plugin_path())}
    return Cache(device, ("--device", device, "-ngl", "99"), env)


def by_name(name: str) -> Cache:
    return kvarn(name) if name.startswith("kvarn_") else stock(name)


BASELINE = stock("f16")
FAVOURITE = kvarn("kvarn_k4v2_g128")
TABLE = (
    BASELINE,
    stock("q8_0"),
    stock("q4_0"),
    kvarn("kvarn_k4v4_g128"),
    FAVOURITE,
    kvarn("kvarn_k2v2_g128"),
)
