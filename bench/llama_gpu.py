#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a stock llama.cpp on a GPU with its own caches and with presets, in one call.

Models have real shapes and weights of no meaning; they are written into --folder once. Parts:

  decode   tokens a second by depth, caches taking turns (`kvarn bench llama`)
  prefill  a prompt of 2,048 tokens at depth 0 and 32,768, likewise
  batch    8 sequences of 16,384 tokens and one of 131,072 (llama-batched-bench)
  memory   the KV buffer that the host logs, and what nvidia-smi counts more while it runs
  fits     the longest context that starts and decodes where only so much memory is left

The figures of a part are written to --json when it ends, so what ran is not lost.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python"
EXAMPLE = """\
example:
  bench/llama_gpu.py --llama llama.cpp/build/bin --json gpu.json \\
    --plugin build/gpu/plugins/ggml/libggml-kvarn.so
"""
# Arguments of `kvarn bench model`, and the depths at which the shape is of interest.
SHAPES = {
    "8b": ("--layers 32 --hidden 4096 --ffn 14336 --vocabulary 32000", "0,4096,8192,32768,131072"),
    "32b": ("--layers 64 --heads 40 --hidden 512 --ffn 512", "0,8192,32768"),
    "d64": ("--layers 24 --heads 32 --head-dim 64 --hidden 2048 --ffn 8192", "0,8192,32768"),
    "d256": ("--layers 24 --heads 16 --head-dim 256 --hidden 2048 --ffn 8192", "0,8192,32768"),
}
BATCHES = ((8, 16384, 64), (1, 131072, 128))  # sequences, tokens of a prompt, tokens decoded
MEMORY_CONTEXT = 32768
STEP = 4096  # contexts are searched in steps of so many tokens


@dataclass
class Bench:
    opts: argparse.Namespace
    found: dict

    def model(self, shape: str) -> Path:
        path = self.opts.folder / f"{shape}.gguf"
        if not path.exists():
            print(f"Writing {path}", flush=True)
            part = path.with_suffix(".part")
            self.kvarn("model", "--out", str(part), "--weights", "q4_0", *SHAPES[shape][0].split())
            part.rename(path)
        return path

    def kvarn(self, *words: str) -> None:
        """`kvarn bench WORDS`, its output being ours."""
        path = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))
        subprocess.run(
            [sys.executable, "-m", "kvarn.cli", "bench", *words],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
        )

    def host(self, program: str, cache: str, shape: str, *words: str) -> tuple[list[str], dict]:
        """The command and environment of a program of the host."""
        argv = [str(self.opts.llama / program), "-m", str(self.model(shape)), "-ngl", "99", *words]
        environment = {k: v for k, v in os.environ.items() if k != "GGML_BACKEND_PATH"}
        if cache.startswith("kvarn"):
            environment["GGML_BACKEND_PATH"] = str(self.opts.plugin)
            return [*argv, "--device", cache], environment
        return [*argv, "--device", "CUDA0", "-ctk", cache, "-ctv", cache], environment

    def by_depth(self, shape: str, depths: str, *words: str) -> list[dict]:
        out = self.opts.folder / "rows.json"
        self.kvarn(
            *("llama", "--model", str(self.model(shape)), "--plugin", str(self.opts.plugin)),
            *("--llama-bench", str(self.opts.llama / "llama-bench"), "--flash", "on"),
            *("--depths", depths, "--caches", ",".join(self.opts.caches), "--json", str(out)),
            *("--rounds", str(self.opts.rounds), "--repeats", "3", *words),
        )
        return json.loads(out.read_text())

    def decode(self) -> dict:
        return {
            shape: self.by_depth(shape, SHAPES[shape][1], "--tokens", "64")
            for shape in self.opts.shapes
        }

    def prefill(self) -> dict:
        return {
            shape: self.by_depth(shape, "0,32768", "--prompt", "2048") for shape in self.opts.shapes
        }

    def batch(self) -> list[dict]:
        rows = []
        for sequences, prompt, decoded in BATCHES:
            for cache in self.opts.caches:
                words = (
                    f"-fa on -npp {prompt} -ntg {decoded} -npl {sequences} --output-format jsonl"
                )
                context = str(sequences * (prompt + decoded) + 512)
                argv, env = self.host(
                    "llama-batched-bench", cache, "8b", *words.split(), "-c", context
                )
                done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
                lines = re.findall(r'^\{.*"speed_tg".*\}$', done.stdout + done.stderr, re.M)
                row = {"cache": cache, "sequences": sequences, "prompt": prompt}
                if lines:
                    figures = json.loads(lines[-1])
                    row |= {
                        "decode_tok_s": figures["speed_tg"],
                        "prefill_tok_s": figures["speed_pp"],
                    }
                else:
                    row["failed"] = (done.stderr.strip() or done.stdout.strip())[-500:]
                print(row, flush=True)
                rows.append(row)
        return rows

    def short_run(self, cache: str, context: int) -> tuple[list[str], dict]:
        """A context of a size, of which little is used."""
        words = f"-fa on -c {context} -npp 8 -ntg 4 -npl 1 -lv 4"
        return self.host("llama-batched-bench", cache, "8b", *words.split())

    def memory(self) -> list[dict]:
        rows = []
        for cache in self.opts.caches:
            argv, env = self.short_run(cache, MEMORY_CONTEXT)
            before, most = device_mib(), 0
            log = self.opts.folder / "memory.log"  # not a pipe, which could fill up
            with (
                log.open("w") as output,
                subprocess.Popen(argv, env=env, stdout=output, stderr=output) as process,
            ):
                while process.poll() is None:
                    most = max(most, device_mib() - before)
                    time.sleep(0.05)
            buffers = [
                float(x) for x in re.findall(r"KV buffer size = +([\d.]+) MiB", log.read_text())
            ]
            row = {"cache": cache, "kv_mib": sum(buffers), "device_mib": most}
            print(row, flush=True)
            rows.append(row)
        return rows

    def fits(self) -> list[dict]:
        rows = []
        for gib in self.opts.gib:
            with ballast(gib):
                for cache in self.opts.caches:
                    tokens = longest(lambda n, cache=cache: self.starts(cache, n))
                    rows.append({"cache": cache, "gib": gib, "tokens": tokens})
                    print(rows[-1], flush=True)
        return rows

    def starts(self, cache: str, context: int) -> bool:
        argv, env = self.short_run(cache, context)
        return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0


def longest(starts, most: int = 1 << 21) -> int:
    """The greatest multiple of STEP up to `most` for which `starts` holds, which is taken to hold
    for all smaller ones; 0 if there is none."""
    good, bad = 0, most // STEP + 1
    probe = 8
    while good + 1 < bad:
        probe = min(probe, bad - 1)
        if starts(probe * STEP):
            good = probe
            probe = 2 * good if 2 * good < bad else (good + bad) // 2
        else:
            bad = probe
            probe = (good + bad) // 2
    return good * STEP


def device_mib() -> int:
    """GPU memory in use."""
    query = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


@contextmanager
def ballast(gib: int):
    """Leaves `gib` GiB of the first GPU free."""
    cuda = ctypes.CDLL("libcudart.so")
    free, total, block = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    if cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) != 0:
        sys.exit("cudaMemGetInfo failed: there is no GPU here, or its driver does not answer.")
    size = free.value - (gib << 30)
    if size < 0:
        sys.exit(f"--gib {gib}: the GPU has only {free.value / 2**30:.1f} GiB free.")
    if cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(size)) != 0:
        sys.exit(f"cudaMalloc of {size / 2**30:.1f} GiB failed: does something else use the GPU?")
    try:
        yield
    finally:
        cuda.cudaFree(block)


PARTS = {
    "decode": Bench.decode,
    "prefill": Bench.prefill,
    "batch": Bench.batch,
    "memory": Bench.memory,
    "fits": Bench.fits,
}


def words(allowed):
    def parse(text: str) -> list[str]:
        given = [word.strip() for word in text.split(",") if word.strip()]
        for word in given:
            if allowed and word not in allowed:
                raise argparse.ArgumentTypeError(f"'{word}': allowed are {', '.join(allowed)}")
        return given

    return parse


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama", type=Path, required=True, help="folder of the host's programs")
    parser.add_argument("--plugin", type=Path, required=True, help="libggml-kvarn.so for GPUs")
    parser.add_argument(
        "--caches",
        type=words(None),
        default=["f16", "q8_0", "q4_0", "kvarn_k4v2_g128", "kvarn_k2v2_g128"],
        help="by commas; ratios of decode and prefill are to f16",
    )
    parser.add_argument("--parts", type=words(PARTS), default=list(PARTS), help="by commas")
    parser.add_argument("--shapes", type=words(SHAPES), default=list(SHAPES), help="by commas")
    parser.add_argument("--rounds", type=int, default=2, help="of decode and prefill")
    parser.add_argument(
        "--gib",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[24, 12],
        help="of the part fits: memory that is left",
    )
    parser.add_argument("--folder", type=Path, default=Path("gpu-models"), help="for the models")
    parser.add_argument("--json", type=Path, help="write the figures")
    opts = parser.parse_args()
    for path in (opts.llama / "llama-bench", opts.plugin):
        if not path.exists():
            parser.error(f"{path}: no such file")
    opts.plugin = opts.plugin.resolve()  # dlopen looks elsewhere for a bare name
    opts.folder.mkdir(parents=True, exist_ok=True)
    return opts


def main() -> None:
    opts = options()
    bench = Bench(opts, {"command": " ".join(sys.argv), "date": time.strftime("%Y-%m-%d")})
    gpu = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    bench.found["gpu"] = subprocess.run(gpu, capture_output=True, text=True, check=True).stdout
    for part in opts.parts:
        begin = time.monotonic()
        bench.found[part] = PARTS[part](bench)
        print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
        if opts.json:
            opts.json.write_text(json.dumps(bench.found, indent=1) + "\n")


if __name__ == "__main__":
    main()
