# SPDX-License-Identifier: Apache-2.0
"""Pinned downloads from the Python package index, through pip and checked by SHA-256."""

import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .command import Command, StepError, run
from .paths import CACHE

DOWNLOADS = CACHE / "dl"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    file: str
    sha256: str
    source: bool = False  # a source distribution instead of a wheel


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(package: Package) -> Path:
    """Returns the checked file, downloading it unless an earlier run left it."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    target = DOWNLOADS / package.file
    if target.exists() and sha256_of(target) == package.sha256:
        return target
    with tempfile.TemporaryDirectory(dir=DOWNLOADS, prefix="partial-") as folder:
        run(
            Command(
                title=f"Downloading {package.name} {package.version}",
                log=f"download-{package.name}",
                argv=_pip_download(package, Path(folder)),
                advice="check the network, then start again",
            )
        )
        found = Path(folder) / package.file
        if not found.exists() or sha256_of(found) != package.sha256:
            raise StepError(
                f"{package.file} from the package index is not the file that was pinned.\n"
                "What to do: do not use it; report it to the project."
            )
        os.replace(found, target)
    return target


def _pip_download(package: Package, folder: Path) -> list[str]:
    binary = "--no-binary" if package.source else "--only-binary"
    return [
        *(sys.executable, "-m", "pip", "download", "--no-input", "--no-deps"),
        *(binary, package.name, "--dest", str(folder)),
        f"{package.name}=={package.version}",
    ]
