# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal (a live bar) and elsewhere (a line now and then)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

_QUIET_SECONDS = 30.0  # without a terminal, how often a long step says that it is alive


class Step:
    """One visible piece of work. `advance` may be called often, `alive` at least once a second."""

    def __init__(self, title: str, progress: Progress | None) -> None:
        self.title = title
        self._start = self._last_line = time.monotonic()
        self._counter = ""
        self._progress = progress
        self._task = progress.add_task(title, total=None, counter="") if progress else None

    def advance(self, done: int, total: int) -> None:
        self._counter = f"{done}/{total}"
        if self._progress and self._task is not None:
            self._progress.update(self._task, completed=done, total=total, counter=self._counter)

    def alive(self) -> None:
        now = time.monotonic()
        if self._progress is None and now - self._last_line >= _QUIET_SECONDS:
            self._last_line = now
            line = f"  ... {self.title} {self._counter} ({self.elapsed()})"
            console.print(line, markup=False, soft_wrap=True)

    def elapsed(self) -> str:
        seconds = round(time.monotonic() - self._start)
        return f"{seconds // 60}:{seconds % 60:02d}"


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Shows a step while it runs and one line when it is done."""
    if console.is_terminal:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counter]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            current = Step(title, progress)
            yield current
    else:
        console.print(f"  {title}", markup=False, soft_wrap=True)
        current = Step(title, None)
        yield current
    console.print(f"  [green]ok[/green] {title} ({current.elapsed()})", soft_wrap=True)
