# SPDX-License-Identifier: Apache-2.0
"""Where things are. Nothing is ever written to the source tree except build/."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "data"


def cache_folder() -> Path:
    """The folder that keeps downloads, models and the stock llama.cpp between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvarn"


CACHE = cache_folder()
LOGS = CACHE / "logs"
MODELS = CACHE / "models"
SCRATCH = CACHE / "scratch"


def plugin_path() -> Path:
    """The release build of the ggml plug-in; llama.cpp only loads it by its full path."""
    return ROOT / "build" / "release" / "plugins" / "ggml" / "libggml-kvarn.so"


def fake_gpu_plugin_path() -> Path:
    """The same with a GPU that is played by the host, for tests."""
    return ROOT / "build/release/tests/host/fake_gpu/libggml-kvarn-fake-gpu.so"


def cores() -> int:
    return len(os.sched_getaffinity(0))
