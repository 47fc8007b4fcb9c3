# SPDX-License-Identifier: Apache-2.0
"""`kvarn bench llama` with a stand-in for llama-bench that takes known times."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python"

# Times a token 1 ms, plus so many microseconds for each thousand tokens of depth.
COSTS = {"f16 fa0": 500, "f16 fa1": 800, "q8_0": 1000, "kvarn_k4v2_g128": 100}
STAND_IN = f"""#!{sys.executable}
import json, os, sys
argv = sys.argv[1:]
value = lambda flag: argv[argv.index(flag) + 1] if flag in argv else None
cache = value("--device") or value("-ctk")
if cache == "f16":
    cache += " fa" + value("-fa")
if cache.startswith("kvarn"):
    assert os.environ["GGML_BACKEND_PATH"].endswith("plugin.so"), "no plug-in"
else:
    assert "GGML_BACKEND_PATH" not in os.environ, "plug-in for a stock cache"
with open(os.environ["ORDER"], "a") as file:
    file.write(cache + "\\n")
if cache == "q4_0":
    sys.exit("out of memory")
costs = {COSTS!r}
tests = []
for depth in map(int, value("-d").split(",")):
    ms = 1 + costs[cache] * depth / 1e6
    ms /= 2 if value("-p") == "512" and value("-n") == "0" else 1
    samples = [1000 / ms] * int(value("-r"))
    samples[0] /= 1 if len(samples) == 1 else 2  # the first of several is slow
    tests.append({{"n_depth": depth, "samples_ts": samples}})
print(json.dumps(tests))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "plugin.so").write_bytes(b"")
    program = tmp_path / "llama-bench"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return tmp_path


def bench(place: Path, *more: str, given: str = "--model model.gguf --plugin plugin.so"):
    argv = [sys.executable, "-m", "kvarn.cli", "bench", "llama", *given.split(), *more]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PACKAGE),
        "ORDER": str(place / "order"),
        "GGML_BACKEND_PATH": "not/for/stock/caches",
        "COLUMNS": "160",
    }
    if "--llama-bench" not in more:
        argv += ["--llama-bench", str(place / "llama-bench")]
    return subprocess.run(
        argv, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_rows_ratios_and_turns(place: Path) -> None:
    done = bench(
        place,
        *("--depths", "0,1000,4000", "--caches", "q8_0,kvarn_k4v2_g128", "--rounds", "3"),
        *("--json", "out.json", "--plot", "out.svg"),
    )
    assert done.returncode == 0, done.stderr
    order = (place / "order").read_text().split("\n")[:-1]
    assert order == ["f16 fa0", "f16 fa1", "q8_0", "kvarn_k4v2_g128"] * 3
    rows = {
        (row["cache"], row["depth"]): row for row in json.loads((place / "out.json").read_text())
    }
    assert len(rows) == 9
    f16 = rows["f16", 4000]
    assert f16["flash"] is False  # the better of both
    assert f16["tok_s"] == pytest.approx(1000 / 3)
    assert f16["ratio"] == pytest.approx(1)
    kvarn = rows["kvarn_k4v2_g128", 4000]
    assert kvarn["tok_s"] == pytest.approx(1000 / 1.4)
    assert kvarn["ratio"] == pytest.approx(3 / 1.4)
    assert kvarn["attention_ms"] == pytest.approx(0.4)
    assert kvarn["attention_ratio"] == pytest.approx(5)
    assert rows["f16", 0]["attention_ms"] is None
    assert "5.00" in done.stdout and "kvarn_k4v2_g128" in done.stdout
    assert "<svg" in (place / "out.svg").read_text()


def test_prefill(place: Path) -> None:
    more = ("--depths", "0,1000", "--caches", "kvarn_k4v2_g128", "--rounds", "1")
    done = bench(place, *more, "--prompt", "512", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((place / "out.json").read_text())
    speeds = {row["cache"]: row["tok_s"] for row in rows if row["depth"] == 1000}
    assert speeds == pytest.approx({"f16": 2000 / 1.5, "kvarn_k4v2_g128": 2000 / 1.1})
    assert "tokens of a prompt of 512 a second" in done.stdout


def test_flash_attention_alone(place: Path) -> None:
    more = ("--depths", "0,4000", "--caches", "f16", "--rounds", "1", "--flash", "on")
    done = bench(place, *more, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert (place / "order").read_text() == "f16 fa1\n"
    assert [row["flash"] for row in json.loads((place / "out.json").read_text())] == [True, True]


def test_repeats_are_figures_of_their_own(place: Path) -> None:
    more = ("--depths", "0", "--caches", "kvarn_k4v2_g128", "--rounds", "2", "--repeats", "3")
    done = bench(place, *more, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((place / "out.json").read_text())
    assert {row["cache"]: row["samples"] for row in rows} == {
        "f16": [500, 1000, 1000] * 2,
        "kvarn_k4v2_g128": [500, 1000, 1000] * 2,
    }
    assert rows[1]["tok_s"] == pytest.approx(1000)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--caches", "f17"), "there is no cache 'f17'. Allowed: f16, bf16"),
        (("--depths", "1,x"), "--depths 1,x: not whole numbers"),
        (("--depths", "-5"), "a depth is at least 0"),
        (("--prompt", "-1"), "--prompt -1: must be at least 0"),
        (("--rounds", "0"), "--rounds 0: must be at least 1"),
        (("--repeats", "0"), "--repeats 0: must be at least 1"),
        (("--json", "no/such/folder.json"), "does not exist"),
        (("--llama-bench", "no-such-program"), "no such program"),
        (("--caches", "q4_0", "--rounds", "1"), "out of memory"),
    ],
)
def test_wrong_uses_say_what_to_do(place: Path, more: tuple[str, ...], said: str) -> None:
    done = bench(place, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--model no.gguf --plugin plugin.so", "no such file. Give a GGUF file."),
        ("--model model.gguf", "--plugin is missing"),
        ("--model model.gguf --plugin no.so", "--plugin no.so: no such file"),
    ],
)
def test_missing_files(place: Path, given: str, said: str) -> None:
    done = bench(place, given=given)
    assert done.returncode == 2
    assert said in done.stderr


def test_help_has_an_example(place: Path) -> None:
    done = bench(place, "--help")
    assert done.returncode == 0
    assert "example:" in done.stdout and "kvarn bench llama --model" in done.stdout
