# SPDX-License-Identifier: Apache-2.0
"""How hosts load the plug-in: from Python (RTLD_LOCAL), beside a GPU, and hosts it must refuse."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "third_party" / "ggml" / "0.25"

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def python(code: str, *args: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def compile_library(source: str, target: Path, *options: str) -> Path:
    path = target.with_suffix(".c")
    path.write_text(textwrap.dedent(source))
    argv = ["cc", "-shared", "-fPIC", f"-I{HEADERS}", str(path), "-o", str(target), *options]
    subprocess.run(argv, check=True, timeout=120)
    return target


LIST_DEVICES = """
    import ctypes, sys
    libggml, *plugins = sys.argv[1:]
    ggml = ctypes.CDLL(libggml, mode=ctypes.RTLD_LOCAL)
    ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    base = ctypes.CDLL("libggml-base.so.0")
    base.ggml_backend_dev_name.restype = ctypes.c_char_p
    base.ggml_backend_dev_name.argtypes = [ctypes.c_void_p]
    base.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    base.ggml_backend_dev_init.restype = ctypes.c_void_p
    base.ggml_backend_dev_init.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    base.ggml_backend_free.argtypes = [ctypes.c_void_p]
    for plugin in plugins:
        assert ggml.ggml_backend_load(plugin.encode()), plugin
    for i in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(i)
        name = base.ggml_backend_dev_name(device).decode()
        print(name, base.ggml_backend_dev_type(device))
        if name.startswith("kvarn"):
            base.ggml_backend_free(base.ggml_backend_dev_init(device, None))
"""
GPU, IGPU = "1", "2"  # ggml_backend_dev_type


def devices(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert run.returncode == 0, run.stderr
    return dict(line.split() for line in run.stdout.splitlines())


def libggml(llama_bin) -> Path:
    return llama_bin("llama-bench").parent / "libggml.so.0"


def test_from_python_with_rtld_local(llama_bin, plugin_path):
    found = devices(python(LIST_DEVICES, libggml(llama_bin), plugin_path))
    names = [name for name in found if name.startswith("kvarn")]
    assert names == ["kvarn"] + [
        f"kvarn_{bits}_g128" for bits in ("k4v4", "k4v2", "k3v3", "k3v2", "k2v2", "k8v4", "k8v8")
    ]
    assert {found[name] for name in names} == {GPU}


FAKE_GPU = """
    #include "ggml-backend-impl.h"
    static const char * name(ggml_backend_dev_t d) { return "FAKE0"; }
    static enum ggml_backend_dev_type type(ggml_backend_dev_t d) { return 1; }
    static struct ggml_backend_device device = {{.get_name = name, .get_description = name,
                                                 .get_type = type}};
    static const char * reg_name(ggml_backend_reg_t r) { return "FAKE"; }
    static size_t count(ggml_backend_reg_t r) { return 1; }
    static ggml_backend_dev_t get(ggml_backend_reg_t r, size_t i) { return &device; }
    static struct ggml_backend_reg reg = {GGML_BACKEND_API_VERSION, {reg_name, count, get, 0}, 0};
    ggml_backend_reg_t ggml_backend_init(void) { device.reg = &reg; return &reg; }
"""


@needs_compiler
def test_beside_a_gpu_it_is_used_only_when_named(llama_bin, plugin_path, tmp_path):
    """llama.cpp adds an integrated GPU by itself only if there is no other GPU."""
    gpu = compile_library(FAKE_GPU, tmp_path / "libggml-fake.so")
    found = devices(python(LIST_DEVICES, libggml(llama_bin), gpu, plugin_path))
    assert found["FAKE0"] == GPU
    assert {kind for name, kind in found.items() if name.startswith("kvarn")} == {IGPU}


REFUSE = """
    import ctypes, sys
    host, plugin = sys.argv[1:]
    if host != "none":
        ctypes.CDLL(host, mode=ctypes.RTLD_GLOBAL)
    init = ctypes.CDLL(plugin).ggml_backend_init
    init.restype = ctypes.c_void_p
    print(init())
"""


def fake_host(folder: Path, version: str) -> Path:
    """A library with every function that the plug-in binds, of the version given, without a CPU."""
    header = (ROOT / "plugins" / "ggml" / "host.h").read_text()
    names = set(re.findall(r"X\((ggml_\w+)\)", header)) - {"ggml_version"}
    source = f'const char * ggml_version(void) {{ return "{version}"; }}\n'
    source += "".join(f"void * {name}(void) {{ return 0; }}\n" for name in sorted(names))
    return compile_library(source, folder / "libggml-base.so", "-Wl,-soname,libggml-base.so.0")


@needs_compiler
@pytest.mark.parametrize("version", ["0.24.9", "0.27.0"])
def test_other_ggml_version(version, plugin_path, tmp_path):
    run = python(REFUSE, fake_host(tmp_path, version), plugin_path)
    assert run.stdout.strip() == "None"
    assert f"the host has ggml {version}, this build supports ggml 0.25.x" in run.stderr


@needs_compiler
def test_host_without_cpu_device(plugin_path, tmp_path):
    run = python(REFUSE, fake_host(tmp_path, "0.25.3"), plugin_path)
    assert run.stdout.strip() == "None"
    assert "the host has registered no CPU device" in run.stderr


def test_process_without_ggml(plugin_path):
    run = python(REFUSE, "none", plugin_path)
    assert run.stdout.strip() == "None"
    assert "no ggml library found" in run.stderr
