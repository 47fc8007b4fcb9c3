# SPDX-License-Identifier: Apache-2.0
"""Shows the results of the demo to people and writes them for programs."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .parse import Divergence
from .ui import console


@dataclass(frozen=True)
class Row:
    cache: str
    kv_mib: float
    tok_s: float
    quality: Divergence


def show_texts(texts: dict[str, str]) -> None:
    for cache, text in texts.items():
        console.print(Panel(Text(text), title=f"answer with {cache}", title_align="left"))


def _fixed(value: float, digits: int) -> str:
    """Without a sign on zero: f16 against itself may differ by a rounding."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def table(rows: list[Row], context: int, depth: int) -> Table:
    # Narrow enough for 80 columns with every name whole.
    result = Table(title="Measured by stock llama.cpp", padding=(0, 0))
    result.add_column("KV cache", no_wrap=True)
    headings = (
        f"KV MiB at {context}",
        f"tok/s at {depth}",
        "KLD mean",
        "KLD median",
        "KLD 99.9%",
        "same top %",
        "PPL ratio",
    )
    for heading in headings:
        result.add_column(heading, justify="right")
    for row in rows:
        quality = row.quality
        result.add_row(
            row.cache,
            _fixed(row.kv_mib, 1),
            _fixed(row.tok_s, 1),
            _fixed(quality.kld_mean, 4),
            _fixed(quality.kld_median, 4),
            _fixed(quality.kld_p999, 3),
            _fixed(quality.same_top, 1),
            _fixed(quality.ppl_ratio, 4),
        )
    return result


def as_json(model: str, texts: dict[str, str], rows: list[Row]) -> str:
    flat = [
        {"cache": row.cache, "kv_mib": row.kv_mib, "tok_s": row.tok_s, **asdict(row.quality)}
        for row in rows
    ]
    return json.dumps({"model": model, "texts": texts, "rows": flat}, indent=2) + "\n"


def write_json(path: Path, text: str) -> None:
    """Writes the whole file or none of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
