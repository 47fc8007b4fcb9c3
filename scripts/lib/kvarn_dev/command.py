# SPDX-License-Identifier: Apache-2.0
"""Runs one program: output to a log, progress from its output, a clear report on failure."""

import os
import re
import selectors
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from .paths import LOGS
from .ui import Step, step

_TAIL_BYTES = 4096  # enough for the longest progress record of any program run here


class StepError(Exception):
    """A step failed; the text says what ran, where the log is, its end, and what to do."""


@dataclass(frozen=True)
class Result:
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True)
class Counter:
    """Finds progress in output: the pattern's first group is `done`, the second or total `of`."""

    pattern: str
    total: int | None = None

    def find(self, text: str) -> tuple[int, int] | None:
        found = list(re.finditer(self.pattern, text, re.MULTILINE))
        if not found:
            return None
        groups = found[-1].groups()
        total = self.total if self.total is not None else int(groups[1])
        return int(groups[0]), total


NINJA = Counter(r"^\[(\d+)/(\d+)\]")
CTEST = Counter(r"^\s*(\d+)/(\d+) Test")


@dataclass
class Command:
    """A program with its arguments, and how to talk about it."""

    title: str
    log: str  # name of the log file, without folder and ending
    argv: Sequence[str | Path]
    advice: str = "read the log, then start again; finished steps are kept"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    counter: Counter | None = None

    def shown(self) -> str:
        """The command as a user could type it."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join(words + [shlex.quote(str(word)) for word in self.argv])


def run(command: Command) -> Result:
    """Runs a command to its end as a visible step. Raises StepError if it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log_path = LOGS / f"{command.log}.log"
    with step(command.title) as current, log_path.open("wb") as log:
        log.write(f"$ {command.shown()}\n".encode())
        log.flush()
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                [str(word) for word in command.argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **command.env},
                cwd=command.cwd,
            )
        except OSError as error:
            raise StepError(_report(command, log_path, str(error))) from error
        try:
            out, err = _collect(process, log, command.counter, current)
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        seconds = time.monotonic() - start
        if code != 0:
            reason = f"signal {-code}" if code < 0 else f"exit status {code}"
            raise StepError(_report(command, log_path, reason))
    return Result(out.decode(errors="replace"), err.decode(errors="replace"), seconds)


def _collect(
    process: subprocess.Popen[bytes], log: BinaryIO, counter: Counter | None, current: Step
) -> tuple[bytes, bytes]:
    """Reads both pipes as they come; records may end in a comma, so no waiting for whole lines."""
    assert process.stdout and process.stderr
    parts: dict[BinaryIO, list[bytes]] = {process.stdout: [], process.stderr: []}
    tail = ""
    with selectors.DefaultSelector() as selector:
        for pipe in parts:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(timeout=1.0):
                pipe = key.fileobj
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    selector.unregister(pipe)
                    continue
                parts[pipe].append(data)
                log.write(data)
                log.flush()
                if counter:
                    tail = (tail + data.decode(errors="replace"))[-_TAIL_BYTES:]
                    if found := counter.find(tail):
                        current.advance(*found)
            current.alive()
    return b"".join(parts[process.stdout]), b"".join(parts[process.stderr])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a child that is still there after an interruption, gently at first."""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _report(command: Command, log: Path, reason: str) -> str:
    lines = log.read_text(errors="replace").splitlines()[1:]
    end = "\n".join(f"  | {line}" for line in lines[-15:])
    return (
        f"{command.title}: failed ({reason})\n"
        f"Command: {command.shown()}\nLog: {log}\n{end}\nWhat to do: {command.advice}"
    )
