# SPDX-License-Identifier: Apache-2.0
"""Stock llama.cpp: unmodified sources, built once and kept in the cache folder."""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .command import NINJA, Command, StepError, run
from .downloads import Package, fetch
from .lock import exclusive
from .paths import CACHE
from .ui import step

VERSION = "0.5.0"
TARGETS = ("llama-completion", "llama-bench", "llama-perplexity", "llama-server", "llama-cli")
TEST_TARGETS = ("llama-quantize",)  # of the host tests; a build of the user's own may lack them

# llama.cpp 0.5.0 with ggml 0.25.3 is vendored in this source distribution.
SOURCE = Package(
    name="llama-cpp-python",
    version="0.3.36",
    file="llama_cpp_python-0.3.36.tar.gz",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    source=True,
)
_ROOT = "llama_cpp_python-0.3.36/"
_CPP = _ROOT + "vendor/llama.cpp/"
_PYTHON = _ROOT + "llama_cpp/"

_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_CURL=OFF",
    # The result is renamed after the build, so its libraries must be found relative to it.
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
)


def get() -> Path:
    """Returns a folder with bin/llama-completion and the other tools."""
    own = os.environ.get("LLAMA_CPP_DIR")
    if own:
        folder = Path(own).expanduser().resolve()
        if missing := _missing(folder, TARGETS):
            raise StepError(
                f"LLAMA_CPP_DIR={own} lacks bin/{', bin/'.join(missing)}.\n"
                "What to do: name the build folder of llama.cpp, or unset LLAMA_CPP_DIR."
            )
        return folder
    target = CACHE / f"llama.cpp-{VERSION}-{_cpu_id()}"
    with exclusive("llama.cpp"):
        if _missing(target, TARGETS + TEST_TARGETS):
            _build(target)
    return target


def unpack_python(folder: Path) -> None:
    """Makes `folder` the package llama_cpp as if installed with the stock libraries in its lib.

    Like a wheel, which cannot hold links: libggml.so and libggml.so.0 are two files.
    """
    _unpack(fetch(SOURCE), _PYTHON, folder)
    (folder / "lib").mkdir()
    for library in (get() / "bin").glob("lib*.so*"):
        shutil.copy(library, folder / "lib")


def _missing(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not (folder / "bin" / name).exists()]


def _cpu_id() -> str:
    """Stock builds use every instruction of the machine; a cache may outlive the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:8]


def _build(target: Path) -> None:
    """Builds under a temporary name, where an interrupted build goes on the next time."""
    work = target.with_name(target.name + ".partial")
    source = work / "src"
    if not source.exists():
        _unpack(fetch(SOURCE), _CPP, source)
    build = work / "build"
    if not (build / "build.ninja").exists():
        run(
            Command(
                title=f"Configuring stock llama.cpp {VERSION}",
                log="llama-configure",
                argv=["cmake", "-G", "Ninja", "-S", source, "-B", build, *_OPTIONS],
                advice=f"delete {work} and start again",
            )
        )
    run(
        Command(
            title=f"Building stock llama.cpp {VERSION} (once, about 7 minutes on 2 cores)",
            log="llama-build",
            argv=["cmake", "--build", build, "--target", *TARGETS, *TEST_TARGETS],
            advice=f"start again to resume; if it fails at the same place delete {work}",
            counter=NINJA,
        )
    )
    with _replacing(target) as result:
        shutil.move(build / "bin", result / "bin")
    shutil.rmtree(work)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new folder that gets its final name only if nothing went wrong."""
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    yield fresh
    shutil.rmtree(target, ignore_errors=True)  # an older one that lacks something
    os.replace(fresh, target)


def _unpack(archive: Path, prefix: str, source: Path) -> None:
    with step("Unpacking llama.cpp"), _replacing(source) as fresh, tarfile.open(archive) as tar:
        members = []
        for member in tar:
            if member.name.startswith(prefix):
                member.name = member.name.removeprefix(prefix)
                members.append(member)
        tar.extractall(fresh, members)  # safe: the archive is pinned by its checksum
