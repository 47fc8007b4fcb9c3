# SPDX-License-Identifier: Apache-2.0
"""The demo: one long prompt answered twice, then a table of memory, speed and quality."""

import argparse
from pathlib import Path

from . import llama, models, project, report
from .caches import BASELINE, FAVOURITE, TABLE
from .command import StepError
from .main import guarded
from .measure import DEPTH, MEMORY_CONTEXT, Lab
from .paths import CACHE, plugin_path
from .ui import console

MAX_WINDOWS = 8  # data/perplexity.txt holds no more with this model's tokeniser


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--windows", type=int, default=3, choices=range(1, MAX_WINDOWS + 1))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"no folder {options.json.absolute().parent}")
    return options


def set_up(windows: int) -> Lab:
    console.print(
        f"Set-up; everything that is downloaded or built is kept in {CACHE}", soft_wrap=True
    )
    model = models.get(models.SMOLLM2)
    stock = llama.get()
    project.build("release")
    if not plugin_path().exists():
        raise StepError(
            f"The build did not make {plugin_path()}.\nWhat to do: see the log of the build."
        )
    return Lab(stock, model, windows)


def measured_rows(lab: Lab) -> list[report.Row]:
    console.print("Table; about ten minutes on two cores")
    lab.prepare_base()
    rows = []
    for cache in TABLE:
        memory = lab.kv_mib(cache)
        quality = lab.divergence(cache)
        rows.append(report.Row(cache.name, memory, lab.tok_s(cache), quality))
    return rows


def main() -> int:
    options = parse_args()
    lab = set_up(options.windows)
    console.print("One prompt of more than 2000 tokens, answered greedily")
    texts = {cache.name: lab.answer(cache) for cache in (BASELINE, FAVOURITE)}
    report.show_texts(texts)
    rows = [] if options.quick else measured_rows(lab)
    if rows:
        console.print(report.table(rows, MEMORY_CONTEXT, DEPTH))
        console.print(
            f"KLD, same top and PPL ratio: against f16, over {options.windows} windows of "
            "2048 tokens of data/perplexity.txt, second half of each."
        )
    if options.json:
        report.write_json(options.json, report.as_json(lab.model.name, texts, rows))
        console.print(f"Written: {options.json}")
    return 0


if __name__ == "__main__":
    guarded(main)
