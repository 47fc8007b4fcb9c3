# SPDX-License-Identifier: Apache-2.0
"""`kvarn bench llama`: the stock llama-bench, caches taking turns.

Each round runs every cache once, so that a machine that slows down slows all of them down. A stock
cache is run without and with flash attention where llama.cpp allows both (unless --flash names
one), and the better one is its figure.
"""

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..presets import BY_NAME
from . import report
from .error import BenchError
from .samples import Samples

STOCK = ("f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
BASELINE = "f16"
_EXAMPLE = """\
example:
  kvarn bench llama --model SmolLM2.gguf --plugin build/release/plugins/ggml/libggml-kvarn.so \\
    --depths 0,8192 --caches f16,q8_0,kvarn_k4v2_g128 --json speed.json --plot speed.svg
"""


@dataclass(frozen=True)
class Variant:
    """A cache and how llama-bench is told to use it."""

    cache: str
    flash: bool

    def arguments(self) -> list[str]:
        flash = ["-fa", "1" if self.flash else "0"]
        if self.cache in BY_NAME:
            return [*flash, "--device", self.cache, "-ngl", "99"]
        return [*flash, "-ctk", self.cache, "-ctv", self.cache]


def variants(cache: str, flash: str) -> list[Variant]:
    """llama.cpp needs flash attention for quantised values; for others both ways may be tried."""
    if cache in ("f16", "bf16") and flash != "on":
        return [Variant(cache, False)] + [Variant(cache, True)] * (flash == "both")
    return [Variant(cache, True)]


def add_parser(hosts) -> None:
    parser = hosts.add_parser(
        "llama",
        help="llama.cpp: decode speed by depth of the cache",
        description=__doc__.split("\n\n", 1)[1],
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--plugin", type=Path, help="libggml-kvarn.so; needed for its presets")
    parser.add_argument(
        "--llama-bench", default="llama-bench", help="program of a stock llama.cpp (default: PATH)"
    )
    parser.add_argument("--depths", default="0,8192,32768", help="tokens in the cache, by commas")
    parser.add_argument(
        "--caches",
        default="f16,q8_0,q4_0,kvarn_k4v2_g128",
        help=f"by commas: {', '.join(STOCK)}, or a preset such as kvarn_k4v2_g128",
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each cache runs")
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        help="figures a round takes of a cache and depth, which it fills once",
    )
    parser.add_argument("--tokens", type=int, default=32, help="decoded for each figure")
    parser.add_argument(
        "--prompt", type=int, default=0, help="measure prefill of so many tokens, not decode"
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--flash",
        choices=("both", "on", "off"),
        default="both",
        help="stock 16-bit caches: without and with flash attention, or one of the two alone: with"
        " it on GPUs; without it on CPUs behind a cache that takes long to fill, where that wins",
    )
    parser.add_argument("--json", type=Path, help="write rows {cache, depth, tok_s, ...}")
    parser.add_argument("--plot", type=Path, help="write a picture (.svg or .png)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    caches = _caches(options.caches)
    depths = _depths(options.depths)
    plugin = _plugin(options.plugin, caches)
    program = _program(options.llama_bench)
    if not options.model.is_file():
        raise BenchError(f"--model {options.model}: no such file. Give a GGUF file.")
    least_of = {"rounds": 1, "repeats": 1, "tokens": 1, "threads": 1, "prompt": 0}
    for name, least in least_of.items():
        if getattr(options, name) < least:
            raise BenchError(f"--{name} {getattr(options, name)}: must be at least {least}.")
    for path in (options.json, options.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise BenchError(f"{path}: the folder {path.absolute().parent} does not exist.")
    runs = [variant for cache in caches for variant in variants(cache, options.flash)]
    samples = Samples()
    with _progress(len(runs) * options.rounds) as advance:
        for _ in range(options.rounds):
            for variant in runs:
                advance(f"{variant.cache}{'' if variant.flash else ', no flash attention'}")
                speeds = _measure(program, plugin, variant, depths, options)
                for depth, tok_s in speeds.items():
                    samples.add(variant.cache, variant.flash, depth, tok_s)
    rows = samples.rows(caches, depths, BASELINE)
    report.show(rows, options)
    if options.json:
        options.json.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    if options.plot:
        report.plot(rows, options)
    return 0


def _measure(program: str, plugin: Path | None, variant: Variant, depths, options) -> dict:
    decoded = 0 if options.prompt else options.tokens
    argv = [program, "-m", str(options.model), "-p", str(options.prompt), "-n", str(decoded)]
    argv += ["-d", ",".join(map(str, depths)), "-t", str(options.threads)]
    argv += ["-r", str(options.repeats), "-o", "json", *variant.arguments()]
    environment = {k: v for k, v in os.environ.items() if k != "GGML_BACKEND_PATH"}
    if variant.cache in BY_NAME:
        environment["GGML_BACKEND_PATH"] = str(plugin)
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    try:
        if done.returncode != 0:
            raise ValueError(f"status {done.returncode}")
        tests = json.loads(done.stdout)
        return {test["n_depth"]: [float(x) for x in test["samples_ts"]] for test in tests}
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(
            f"llama-bench with the cache {variant.cache} gave no figures ({error}):\n"
            f"{' '.join(argv)}\n{done.stderr.strip()[-2000:]}\nRun that command by itself."
        ) from error


def _caches(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in STOCK and name not in BY_NAME:
            raise BenchError(
                f"--caches: there is no cache '{name}'. Allowed: {', '.join((*STOCK, *BY_NAME))}."
            )
    if not names:
        raise BenchError("--caches is empty. Example: --caches f16,kvarn_k4v2_g128")
    return list(dict.fromkeys([BASELINE, *names]))  # ratios need the baseline


def _depths(text: str) -> list[int]:
    try:
        depths = sorted({int(word) for word in text.split(",")} | {0})
    except ValueError:
        raise BenchError(f"--depths {text}: not whole numbers. Example: 0,8192,32768") from None
    if depths[0] < 0:
        raise BenchError(f"--depths {text}: a depth is at least 0.")
    return depths


def _plugin(path: Path | None, caches: list[str]) -> Path | None:
    if not any(cache in BY_NAME for cache in caches):
        return None
    if path is None:
        raise BenchError("--plugin is missing: the path of libggml-kvarn.so, as the build made it.")
    if not path.is_file():
        raise BenchError(f"--plugin {path}: no such file. Build: cmake --build --preset release")
    return path.absolute()


def _program(given: str) -> str:
    found = shutil.which(given)
    if found is None:
        raise BenchError(
            f"--llama-bench {given}: no such program. Give the path of a stock llama.cpp's."
        )
    return found


@contextmanager
def _progress(total: int) -> Iterator:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=report.errors) as progress:
        task = progress.add_task("", total=total, completed=-1)

        def advance(what: str) -> None:
            progress.update(task, description=what, advance=1)

        yield advance
        progress.update(task, advance=1)
