# SPDX-License-Identifier: Apache-2.0
"""The table and the picture of `kvarn bench`."""

from rich.console import Console
from rich.table import Table

from .samples import Row

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def _unit(options) -> str:
    if options.prompt:
        return f"tokens of a prompt of {options.prompt} a second"
    return "decoded tokens a second"


def show(rows: list[Row], options) -> None:
    table = Table(title=f"{options.model.name}, {options.threads} threads, {_unit(options)}")
    for name in ("depth", "cache", "tok/s", "of f16", "spread", "attention ms", "times faster"):
        text = name == "cache"
        table.add_column(name, justify="left" if text else "right", no_wrap=text)
    depth = None
    for row in rows:
        if depth is not None and row.depth != depth:
            table.add_section()
        depth = row.depth
        table.add_row(
            str(row.depth),
            row.cache + ("" if row.flash else " (no fa)"),
            f"{row.tok_s:.1f}",
            f"{row.ratio:.2f}",
            f"{row.ratio_low:.2f}-{row.ratio_high:.2f}",
            "" if row.attention_ms is None else f"{row.attention_ms:.2f}",
            "" if row.attention_ratio is None else f"{row.attention_ratio:.2f}",
        )
    console.print(table)
    console.print(
        f"Medians of {options.rounds} rounds, in which the caches take turns, of "
        f"{options.repeats} figures each; ratios within a round. Attention: time a token takes "
        "less that at depth 0. Stock caches: the better of flash attention on and off, where both "
        "exist."
    )


def plot(rows: list[Row], options) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for cache in dict.fromkeys(row.cache for row in rows):
        mine = [row for row in rows if row.cache == cache]
        axes.plot([row.depth for row in mine], [row.tok_s for row in mine], "o-", label=cache)
    axes.set_xlabel("tokens in the cache")
    axes.set_ylabel(_unit(options))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.plot)
