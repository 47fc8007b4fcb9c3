# SPDX-License-Identifier: Apache-2.0
"""Generation from Python: llama-cpp-python with the stock libraries, set up as README.md says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
N_PREDICT = 24
NEAR_TIE = 0.05  # difference of fp16's two best logits where an answer may part (test_server.py)

# Follows the README's lines. Prints each token's id and the gap between the two best logits.
GENERATE = """
import json, sys
import numpy

steps = []

def watch(tokens, logits):
    second, best = numpy.argsort(logits)[-2:]
    steps.append([int(best), float(logits[best] - logits[second])])
    return logits

out = llm(
    open(sys.argv[1]).read(),
    max_tokens=int(sys.argv[2]),
    temperature=0,
    logits_processor=llama_cpp.LogitsProcessorList([watch]),
)
llm.close()
print(json.dumps({"steps": steps, "text": out["choices"][0]["text"], **out["usage"]}))
"""


def readme_lines(model: Path) -> str:
    """The Python code of README.md, with this model and a context that fits it."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for written, meant in (("model.gguf", str(model)), ("32768", "4096")):
        assert written in code
        code = code.replace(written, meant)
    return code


def generate(package: Path, model: Path, env: dict[str, str]) -> tuple[dict, str]:
    argv = [sys.executable, "-c", readme_lines(model) + GENERATE]
    argv += [str(ROOT / "data" / "prompt.txt"), str(N_PREDICT)]
    run = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package), **env},
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1]), run.stderr


def kv_buffers(log: str) -> list[str]:
    """Names of the buffer types that hold caches."""
    return re.findall(r"(\S+) KV buffer size", log)


def test_readme_lines_generate_as_fp16(package, plugin_path, smollm2_f32):
    env = {"GGML_BACKEND_PATH": str(plugin_path), "KVARN_PRESET": "kvarn_k8v8_g128"}
    packed, log = generate(package, smollm2_f32, env)
    assert set(kv_buffers(log)) == {"kvarn"}, log[-3000:]
    closing = re.findall(r"closing: rows written (\d+), tiles sealed (\d+).*nodes (\d+)", log)
    written, sealed, generic = map(int, closing[-1])
    assert written > 1500 and sealed > 0 and generic == 0
    assert packed["prompt_tokens"] > 1500 and packed["completion_tokens"] == N_PREDICT

    exact, log = generate(package, smollm2_f32, {})
    assert set(kv_buffers(log)) == {"CPU"}
    print(f"fp16: {exact['text']!r}\nk8v8: {packed['text']!r}")
    parting = [
        gap
        for (token, gap), (other, _) in zip(exact["steps"], packed["steps"], strict=True)
        if token != other
    ]
    assert not parting or parting[0] < NEAR_TIE
