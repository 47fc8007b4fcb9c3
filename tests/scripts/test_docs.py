# SPDX-License-Identifier: Apache-2.0
"""Documents: commands exist and answer --help, links lead somewhere, named things are real."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvarn_dev import caches, llama
from kvarn_dev.paths import DATA, ROOT

DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/*.md")]
    if path.is_file()
)
OURS = ("scripts/demo", "scripts/vllm-demo", "scripts/test", ".ci/run")


def shell_commands(document: Path) -> list[list[str]]:
    """The words of each command in the fenced sh blocks, without leading assignments."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


COMMANDS = [
    pytest.param(words, id=f"{document.name}: {' '.join(words)[:60]}")
    for document in DOCUMENTS
    for words in shell_commands(document)
]


def test_the_readme_has_its_two_commands():
    words = shell_commands(ROOT / "README.md")
    assert ["scripts/demo"] in words and ["scripts/test"] in words


@pytest.mark.parametrize("words", COMMANDS)
def test_documented_program_exists(words):
    program = words[0]
    if program.startswith("llama-"):
        assert program in llama.TARGETS
    elif "/" in program:
        assert os.access(ROOT / program, os.X_OK), f"{program} cannot be run"
    else:
        assert shutil.which(program) or program in ("cd", "git", "sudo", "pip", "vllm", "kvarn"), (
            f"no {program}"
        )


@pytest.mark.parametrize("program", OURS)
def test_own_program_explains_itself_at_once(program):
    answer = subprocess.run(
        [ROOT / program, "--help"], capture_output=True, text=True, timeout=20, check=True
    )
    assert f"Usage: {program}" in answer.stdout and "Example:" in answer.stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_documented_options_of_own_programs_are_known(words):
    if words[0] in OURS:
        command, env = [ROOT / words[0]], os.environ
    elif words[0] == "kvarn":
        command = [sys.executable, "-m", "kvarn.cli", *words[1:3]]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    else:
        pytest.skip("not one of ours")
    text = subprocess.run(
        [*command, "--help"], capture_output=True, text=True, check=True, env=env
    ).stdout
    for word in words[1:]:
        if word.startswith("--"):
            assert word.split("=")[0] in text, f"{words[0]} --help does not mention {word}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: broken link {target}"


def test_every_pinned_package_is_documented():
    text = (ROOT / "docs" / "dependencies.md").read_text().lower()
    requirements = (ROOT / "scripts/lib/requirements.txt").read_text()
    debian = (ROOT / "scripts/lib/packages.txt").read_text()
    names = re.findall(r"^([a-z][a-z0-9-]+)==", requirements, re.MULTILINE)
    names += [line for line in debian.splitlines() if line and not line.startswith("#")]
    missing = [name for name in names if name.lower().replace("+", "") not in text.replace("+", "")]
    assert not missing


def test_the_prompt_is_in_the_form_the_model_was_trained_on():
    prompt = (DATA / "prompt.txt").read_text()
    assert prompt.startswith("<|im_start|>system\n")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert len(prompt.split()) > 1600
    assert (DATA / "perplexity.txt").stat().st_size >= 64 * 1024


def test_the_table_of_the_readme_names_the_measured_caches():
    text = (ROOT / "README.md").read_text()
    assert [cache.name for cache in caches.TABLE if f"`{cache.name}`" not in text] == []
