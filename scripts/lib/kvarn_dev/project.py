# SPDX-License-Identifier: Apache-2.0
"""Builds this project with its CMake presets and runs its C++ tests."""

from .command import CTEST, NINJA, Command, run
from .lock import exclusive
from .paths import ROOT, cores


def build(preset: str) -> None:
    with exclusive(f"build-{preset}"):
        run(
            Command(
                title=f"Configuring kvarn ({preset})",
                log=f"configure-{preset}",
                argv=["cmake", "--preset", preset],
                cwd=ROOT,
                advice=f"read the log; after a change of compilers delete build/{preset}",
            )
        )
        run(
            Command(
                title=f"Building kvarn ({preset})",
                log=f"build-{preset}",
                argv=["cmake", "--build", "--preset", preset],
                cwd=ROOT,
                counter=NINJA,
            )
        )


def ctest(preset: str, *options: str) -> None:
    run(
        Command(
            title=f"C++ tests ({preset})",
            log=f"ctest-{preset}",
            argv=[
                *("ctest", "--test-dir", ROOT / "build" / preset, "--output-on-failure"),
                *("--no-tests=error", "--parallel", str(cores()), *options),
            ],
            cwd=ROOT,
            counter=CTEST,
            advice="the log shows the output of the tests that failed",
        )
    )
