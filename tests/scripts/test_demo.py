# SPDX-License-Identifier: Apache-2.0
"""The demo's options and what it writes."""

import json

import pytest
from rich.console import Console

from kvarn_dev import demo, report
from kvarn_dev import test as test_runner
from kvarn_dev.parse import Divergence

ROWS = [
    report.Row("f16", 180.0, 49.2, Divergence(-0.00001, 0.0, 0.0, 100.0, 1.0)),
    report.Row("kvarn_k4v2_g128", 52.75, 40.0, Divergence(0.05, 0.02, 1.5, 89.4, 1.04)),
]


def test_json_has_the_documented_shape():
    document = json.loads(report.as_json("m.gguf", {"f16": "a"}, ROWS))
    assert set(document) == {"model", "texts", "rows"}
    assert document["texts"] == {"f16": "a"}
    assert document["rows"][1] == {
        "cache": "kvarn_k4v2_g128",
        "kv_mib": 52.75,
        "tok_s": 40.0,
        "kld_mean": 0.05,
        "kld_median": 0.02,
        "kld_p999": 1.5,
        "same_top": 89.4,
        "ppl_ratio": 1.04,
    }


def test_json_file_is_whole(tmp_path):
    report.write_json(tmp_path / "r.json", "{}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_table_shows_every_cache_and_no_negative_zero():
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(report.table(ROWS, 8192, 4096))
    text = console.export_text()
    assert "kvarn_k4v2_g128" in text and "52.8" in text and "-0.0" not in text


def test_options():
    options = demo.parse_args(["--quick", "--windows", "2"])
    assert options.quick and options.windows == 2 and options.json is None
    assert test_runner.parse_args(["--sanitize", "--no-host"]).preset == "asan-ubsan"
    assert test_runner.parse_args(["--tsan"]).preset == "tsan"


@pytest.mark.parametrize(
    "argv", [["--windows", "0"], ["--windows", "9"], ["--json", "/no/such/folder/x"], ["extra"]]
)
def test_bad_options_are_refused_before_any_work(argv):
    with pytest.raises(SystemExit) as caught:
        demo.parse_args(argv)
    assert caught.value.code == 2
