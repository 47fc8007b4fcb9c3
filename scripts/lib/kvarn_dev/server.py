# SPDX-License-Identifier: Apache-2.0
"""A stock llama-server for the host tests, and how two of its greedy answers are compared."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Server:
    url: str
    log: Path

    def post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def complete(self, prompt: str, slot: int = -1, **more) -> dict:
        body = {
            "prompt": prompt,
            "n_predict": 24,
            "temperature": 0,
            "seed": 1,
            "cache_prompt": False,
            "n_probs": 2,
            "ignore_eos": True,
            "id_slot": slot,
        }
        return self.post("/completion", {**body, **more})


@contextlib.contextmanager
def serve(binary: Path, model: Path, log: Path, args: list, env: dict) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [
        *(binary, "-m", model, "--port", port, "-np", 4, "-fa", "on", "--no-warmup"),
        *("-v", "--cache-ram", 0, *args),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, "the server did not start"
                with contextlib.suppress(urllib.error.URLError, ConnectionError):
                    with urllib.request.urlopen(url + "/health", timeout=5) as answer:
                        if answer.status == 200:
                            break
                time.sleep(0.1)
            yield Server(url, log)
            assert process.poll() is None, log.read_text()[-3000:]
        finally:
            process.terminate()
            process.wait(timeout=30)


def first_gap(alone: dict, together: dict) -> float | None:
    """The gap between the two best logits where the answers part, None if they are equal."""
    for one, other in zip(
        alone["completion_probabilities"], together["completion_probabilities"], strict=True
    ):
        if one["id"] != other["id"]:
            best, second = (entry["logprob"] for entry in one["top_logprobs"][:2])
            return best - second
    return None
