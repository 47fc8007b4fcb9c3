# SPDX-License-Identifier: Apache-2.0
"""A stock `vllm serve`, and chats with it through the openai client."""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import vllm
from .command import StepError
from .paths import LOGS, ROOT, cores
from .ui import step

START_SECONDS = 600  # the first start compiles


@dataclass
class Server:
    url: str
    log: Path

    def chat(self, chats: list[list[dict]], tokens: int) -> list[dict]:
        """[{"text", "tok_s"}] of each chat, one after the other."""
        process = subprocess.run(
            [str(vllm.PYTHON), str(ROOT / "scripts" / "lib" / "vllm_chat.py"), self.url],
            input=json.dumps({"chats": chats, "tokens": tokens}),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            raise StepError(
                f"The chat failed:\n{process.stderr[-2000:]}\nWhat to do: read {self.log}"
            )
        return json.loads(process.stdout)

    def capacity(self) -> int:
        """Tokens that fit into the cache, as vLLM says when it starts."""
        return capacity(self.log.read_text(errors="replace"))


def capacity(log: str) -> int:
    found = re.search(r"KV cache size: ([\d,]+) tokens", log)
    if not found:
        raise StepError("vLLM did not say how many tokens fit its cache.\nWhat to do: read its log")
    return int(found[1].replace(",", ""))


@contextlib.contextmanager
def serve(cache_dtype: str, *args: str) -> Iterator[Server]:
    """Serves the small model until the block is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = vllm.PYTHON.parent / "vllm"
    argv = [str(program), "serve", str(vllm.MODEL), "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--served-model-name", "SmolLM2-135M-Instruct", "--kv-cache-dtype", cache_dtype, *args]
    env = {**os.environ, **vllm.environment(cores())}
    del env["VLLM_ENABLE_V1_MULTIPROCESSING"]  # a server needs its engine in a process of its own
    LOGS.mkdir(parents=True, exist_ok=True)
    server = Server(f"http://127.0.0.1:{port}", LOGS / f"vllm-serve-{cache_dtype}.log")
    with server.log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
        try:
            with step(f"Starting vllm serve --kv-cache-dtype {cache_dtype}") as current:
                _wait(server, process, current)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(server: Server, process: subprocess.Popen, current) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            end = "\n".join(server.log.read_text(errors="replace").splitlines()[-15:])
            raise StepError(f"vllm serve did not start.\n{end}\nWhat to do: read {server.log}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            with urllib.request.urlopen(server.url + "/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        current.alive()
        time.sleep(0.5)
