# SPDX-License-Identifier: Apache-2.0
"""One measurement a function, each made by a stock tool of llama.cpp."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from . import parse
from .caches import BASELINE, Cache
from .command import Command, Counter, Result, StepError, run
from .downloads import sha256_of
from .paths import CACHE, DATA, cores

DEPTH = 4096  # tokens in the cache when the decode speed is measured
MEMORY_CONTEXT = 8192
BENCH_THREADS = min(2, cores())

_BASE_WINDOW = r"\[(\d+)\]\d"
_KLD_WINDOW = r"^\s*(\d+)\s+[\d.]+ ±"

T = TypeVar("T")


@dataclass(frozen=True)
class Lab:
    """A model, a build of llama.cpp, and a text to judge by."""

    llama: Path
    model: Path
    windows: int

    def tool(self, name: str) -> Path:
        return self.llama / "bin" / name

    def answer(self, cache: Cache) -> str:
        """The greedy answer to the long prompt."""
        argv = [
            *(self.tool("llama-completion"), "-m", self.model, "-f", DATA / "prompt.txt"),
            *("--temp", "0", "--seed", "1", "-n", "64", "-c", "4096", "-fa", "on"),
            *("-no-cnv", "--no-display-prompt", "--no-escape", "-t", str(cores())),
            *cache.args,
        ]
        return self._run("Answering the long prompt", "answer", argv, cache).stdout.strip()

    def kv_mib(self, cache: Cache) -> float:
        """Size of the KV cache, as the host logs it."""
        argv = [
            *(self.tool("llama-completion"), "-m", self.model, "-p", "Hello", "-n", "1"),
            *("-c", str(MEMORY_CONTEXT), "-fa", "on", "-no-cnv", "--no-warmup", "-lv", "4"),
            *cache.args,
        ]
        return _parsed(parse.kv_mib, self._run("Memory", "memory", argv, cache).stderr, argv)

    def tok_s(self, cache: Cache) -> float:
        """Decode speed with DEPTH tokens in the cache."""
        argv = [
            *(self.tool("llama-bench"), "-m", self.model, "-fa", "1", "-p", "0", "-n", "32"),
            *("-d", str(DEPTH), "-r", "2", "-t", str(BENCH_THREADS), "-o", "json"),
            *cache.args,
        ]
        result = self._run(f"Decode speed at depth {DEPTH}", "speed", argv, cache)
        return _parsed(parse.tokens_per_second, result.stdout, argv)

    def divergence(self, cache: Cache) -> parse.Divergence:
        """Quality against f16. Figures of stock types are kept: they are the same every time."""
        kept = self._kept_folder() / f"{cache.name}.json"
        if not cache.env and kept.exists():
            return parse.Divergence(**json.loads(kept.read_text()))
        argv = [*self._perplexity(), "--kl-divergence", *cache.args]
        counter = Counter(_KLD_WINDOW, self.windows)
        result = self._run("Quality against f16", "quality", argv, cache, counter)
        found = _parsed(parse.divergence, result.stdout, argv)
        if not cache.env:
            kept.write_text(json.dumps(asdict(found)))
        return found

    def prepare_base(self) -> None:
        """Saves the f16 distributions that the others are compared with."""
        base = self._base_file()
        if base.exists():
            return
        base.parent.mkdir(parents=True, exist_ok=True)
        partial = base.with_suffix(".partial")
        argv = [
            *self._perplexity(partial),
            *("-f", DATA / "perplexity.txt", "--chunks", str(self.windows)),
            *BASELINE.args,
        ]
        counter = Counter(_BASE_WINDOW, self.windows)
        self._run("Reference distributions", "base", argv, BASELINE, counter)
        os.replace(partial, base)

    def _perplexity(self, base: Path | None = None) -> list[str | Path]:
        return [
            *(self.tool("llama-perplexity"), "-m", self.model, "-c", "2048", "-b", "2048"),
            *("-ub", "128", "-fa", "on", "-t", str(cores())),
            *("--kl-divergence-base", base or self._base_file()),
        ]

    def _base_file(self) -> Path:
        return self._kept_folder() / "f16.dat"

    def _kept_folder(self) -> Path:
        """One folder for each combination of inputs that the figures depend on."""
        folder = self.tool("llama-perplexity").resolve().parent
        newest = max(file.stat().st_mtime_ns for file in folder.iterdir())
        key = (
            sha256_of(DATA / "perplexity.txt"),
            self.model.name,
            str(self.windows),
            f"{folder} {newest} {cores()}",
        )
        return CACHE / "quality" / hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]

    def _run(
        self,
        what: str,
        log: str,
        argv: list[str | Path],
        cache: Cache,
        counter: Counter | None = None,
    ) -> Result:
        command = Command(
            title=f"{what}: {cache.name}",
            log=f"{log}-{cache.name}",
            argv=argv,
            env=cache.env,
            counter=counter,
            advice="run the command above by itself; its output says more",
        )
        return run(command)


def _parsed(reader: Callable[[str], T], text: str, argv: list[str | Path]) -> T:
    try:
        return reader(text)
    except parse.ParseError as error:
        raise StepError(
            f"{Path(argv[0]).name} printed something unexpected: {error}\n"
            "What to do: use the pinned llama.cpp (unset LLAMA_CPP_DIR)."
        ) from error
