# SPDX-License-Identifier: Apache-2.0
"""A batch that fails on a GPU leaves the caches as usable as a batch that was never there."""

import json
import os
import subprocess
import sys
from pathlib import Path

# More than the tail, so that its tiles are encoded beside attention; too few to seal the tile that
# the batches before have begun: its rows stay exact.
BROKEN = 140

# One context has a batch more than the other, which fails. Prints what llama_decode has answered
# and how far the next logits differ.
DECODE = """
import ctypes, json, sys
import numpy
import llama_cpp.llama_cpp as host

host._lib.ggml_backend_load_all()
find = host._lib.ggml_backend_dev_by_name
find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
devices = (ctypes.c_void_p * 2)(find(b"kvarn_k4v2_g128"), None)
assert devices[0], "no device"
params = host.llama_model_default_params()
params.devices = ctypes.cast(devices, ctypes.c_void_p)
params.n_gpu_layers = 99
model = host.llama_model_load_from_file(sys.argv[1].encode(), params)
n_vocab = host.llama_vocab_n_tokens(host.llama_model_get_vocab(model))

def answers(batches):
    params = host.llama_context_default_params()
    params.n_ctx, params.n_threads_batch = 1024, 2
    params.flash_attn_type = host.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = host.llama_init_from_model(model, params)
    statuses = []
    for n in batches:
        tokens = (host.llama_token * n)(*(1000 + 7 * i for i in range(n)))
        statuses.append(host.llama_decode(context, host.llama_batch_get_one(tokens, n)))
    row = host.llama_get_logits_ith(context, -1)
    logits = numpy.ctypeslib.as_array(row, (n_vocab,)).copy()
    host.llama_free(context)
    return statuses, logits

broken = int(sys.argv[2])
statuses, logits = answers([100, 100, broken, 8])
_, expected = answers([100, 100, 8])
print(json.dumps({"statuses": statuses, "difference": float(abs(logits - expected).max())}))
"""


def test_rows_of_batches_before(package: Path, plugins, smollm2):
    env = {
        "PYTHONPATH": str(package),
        "GGML_BACKEND_PATH": str(plugins["played gpu"]),
        "KVARN_SLIDING": "on",
        "FAKE_GPU_NO_PLAN": str(BROKEN),
    }
    run = subprocess.run(
        [sys.executable, "-c", DECODE, str(smollm2), str(BROKEN)],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert "kvarn: a KV cache operation failed: out of memory" in run.stderr
    assert "fake GPU:" not in run.stderr
    assert found == {"statuses": [0, 0, -3, 0], "difference": 0}
