# SPDX-License-Identifier: Apache-2.0
"""Running a program: output kept apart, a log, and a failure that says what to do."""

import sys

import pytest

from kvarn_dev import command
from kvarn_dev.command import Command, Counter, StepError, run


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LOGS", tmp_path)
    return tmp_path


def python(code: str, **more) -> Command:
    return Command(title="a step", log="step", argv=[sys.executable, "-c", code], **more)


def test_output_is_kept_apart_and_logged_together(logs):
    result = run(python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    log = (logs / "step.log").read_text()
    assert log.startswith("$ ") and "out\n" in log and "err\n" in log


def test_much_output_on_both_pipes_does_not_block():
    code = "import sys\nfor f in (sys.stderr, sys.stdout) * 20: f.write('x' * 100_000)"
    result = run(python(code, counter=Counter(r"\[(\d+)\]", 2)))
    assert len(result.stdout) == len(result.stderr) == 2_000_000


def test_environment_and_folder(tmp_path):
    code = "import os; print(os.environ['KVARN_TEST'], os.getcwd())"
    assert run(python(code, env={"KVARN_TEST": "7"}, cwd=tmp_path)).stdout == f"7 {tmp_path}\n"


def test_failure_says_what_where_and_what_to_do(logs):
    with pytest.raises(StepError) as caught:
        run(python("print('the reason'); exit(3)", advice="do this", env={"A": "b c"}))
    text = str(caught.value)
    for part in ("a step", "exit status 3", "A='b c'", str(logs / "step.log"), "the reason"):
        assert part in text
    assert text.endswith("What to do: do this")


def test_missing_program_is_the_same_kind_of_failure():
    with pytest.raises(StepError, match="no-such-program"):
        run(Command(title="x", log="x", argv=["no-such-program"]))


def test_killed_program_names_the_signal():
    with pytest.raises(StepError, match="signal 9"):
        run(python("import os; os.kill(os.getpid(), 9)"))


def test_interruption_ends_the_child(monkeypatch):
    started = []

    def interrupted(process, *_):
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(python("import time; time.sleep(60)"))
    assert started[0].returncode is not None
