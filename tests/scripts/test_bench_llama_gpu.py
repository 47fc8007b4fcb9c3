# SPDX-License-Identifier: Apache-2.0
"""bench/llama_gpu.py with stand-ins for the host's programs and nvidia-smi."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "llama_gpu.py"
BENCH = """
tests = []
for depth in map(int, value("-d").split(",")):
    speed = 100 if cache == "f16" else 150
    tests.append({"n_depth": depth, "samples_ts": [speed] * int(value("-r"))})
print(json.dumps(tests))
"""
BATCHED = """
import time
assert int(value("-c")) >= int(value("-npl")) * (int(value("-npp")) + int(value("-ntg")))
if value("-npp") == "8":
    assert value("-c") == "32768"
    size = 4096 if cache == "f16" else 900.5
    print(f"llama_kv_cache:      CUDA0 KV buffer size = {size:8.2f} MiB")
    for used in (2000 + int(size), 2000):
        open("new", "w").write(str(used))
        os.replace("new", "used")
        time.sleep(0.5)
elif cache == "q4_0":
    sys.exit("out of memory")
else:
    print('{"pp": 1, "speed_pp": 1000.0, "tg": 1, "speed_tg": 20.5, "t": 1}')
"""
HEAD = f"""#!{sys.executable}
import json, os, sys
argv = sys.argv[1:]
value = lambda flag: argv[argv.index(flag) + 1] if flag in argv else None
cache = value("--device")
if cache is None or not cache.startswith("kvarn"):
    assert "GGML_BACKEND_PATH" not in os.environ
    cache = value("-ctk")
else:
    assert os.environ["GGML_BACKEND_PATH"].endswith("/plugin.so")
assert value("-fa") in ("1", "on")
"""
SMI = f"""#!{sys.executable}
import sys
print("GPU of tests, 1.0" if "name" in " ".join(sys.argv) else open("used").read())
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    programs = {"llama-bench": HEAD + BENCH, "llama-batched-bench": HEAD + BATCHED}
    for name, text in {**programs, "nvidia-smi": SMI}.items():
        program = tmp_path / name
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "plugin.so").write_bytes(b"")
    (tmp_path / "used").write_text("2000")
    (tmp_path / "models").mkdir()
    for shape in ("8b", "d64"):
        (tmp_path / "models" / f"{shape}.gguf").write_bytes(b"GGUF")
    return tmp_path


def measure(place: Path, *more: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, str(SCRIPT), "--llama", ".", "--plugin", "plugin.so"]
    environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    return subprocess.run(
        [*argv, "--folder", "models", "--json", "out.json", *more],
        cwd=place, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_parts(place: Path) -> None:
    done = measure(
        place, "--parts", "decode,prefill,batch,memory", "--shapes", "8b,d64", "--rounds", "1",
        "--caches", "f16,q4_0,kvarn_k4v2_g128",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((place / "out.json").read_text())
    assert found["gpu"].strip() == "GPU of tests, 1.0"
    for part, depths in (("decode", 5), ("prefill", 2)):
        assert len(found[part]["8b"]) == 3 * depths
        ratios = {row["cache"]: row["ratio"] for row in found[part]["d64"]}
        assert ratios == pytest.approx({"f16": 1, "q4_0": 1.5, "kvarn_k4v2_g128": 1.5})
    batch = {(row["cache"], row["sequences"]): row for row in found["batch"]}
    assert batch["kvarn_k4v2_g128", 8]["decode_tok_s"] == 20.5
    assert batch["q4_0", 1]["failed"] == "out of memory"
    memory = {row["cache"]: row for row in found["memory"]}
    assert memory["f16"] == {"cache": "f16", "kv_mib": 4096.0, "device_mib": 4096}
    assert memory["kvarn_k4v2_g128"]["kv_mib"] == 900.5
    assert memory["kvarn_k4v2_g128"]["device_mib"] == 900


@pytest.mark.parametrize("limit", [0, 1, 7, 8, 9, 100, 333, 511, 512, 600])
def test_longest_context(limit: int) -> None:
    spec = importlib.util.spec_from_file_location("llama_gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["llama_gpu"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    tried = []

    def starts(tokens: int) -> bool:
        assert tokens % module.STEP == 0 and tokens <= 1 << 21
        tried.append(tokens)
        return tokens <= limit * module.STEP

    assert module.longest(starts) == min(limit, 512) * module.STEP
    assert len(tried) == len(set(tried)) <= 18


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--parts", "decode,speed"), "'speed': allowed are decode, prefill"),
        (("--shapes", "9b"), "'9b': allowed are 8b"),
        (("--plugin", "none.so"), "none.so: no such file"),
    ],
)
def test_wrong_uses_say_what_to_do(place: Path, more: tuple[str, ...], said: str) -> None:
    done = measure(place, *more)
    assert done.returncode == 2
    assert said in done.stderr
