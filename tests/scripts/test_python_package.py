# SPDX-License-Identifier: Apache-2.0
"""The Python package against the headers that it binds, without the library."""

import importlib.util
import re
import sys

import pytest

from kvarn_dev.paths import ROOT


@pytest.fixture(scope="module")
def abi():
    """kvarn/_abi.py alone: it needs nothing but ctypes."""
    spec = importlib.util.spec_from_file_location("kvarn_abi", ROOT / "python/kvarn/_abi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TYPES = {
    "kvarn_format": "Format",
    "kvarn_dtype": "c_int",
    "int32_t": "c_int",
    "int64_t": "c_long",
    "uint64_t": "c_ulong",
    "float": "c_float",
    "kvarn_role": "c_int",
    "kvarn_mode": "c_int",
    "kvarn_order": "c_int",
}


def members(header: str, struct: str) -> list[tuple[str, str]]:
    """(name, ctypes name) of each member of a struct, in order."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "include/kvarn" / header).read_text())
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.DOTALL)[1]
    found = []
    for line in body.split(";")[:-1]:
        first, *others = (part.strip() for part in line.split(","))
        words, _, name = first.rpartition(" ")
        kind = "c_void_p" if "*" in words else TYPES[words.split()[-1]]
        found += [(each, kind) for each in (name, *others)]
    return found


@pytest.mark.skipif(sys.maxsize < 2**32, reason="names of ctypes differ on 32-bit machines")
@pytest.mark.parametrize(
    ("header", "struct", "name"),
    [
        ("kvarn.h", "kvarn_format", "Format"),
        ("kvarn.h", "kvarn_counts", "Counts"),
        ("kvarn_paged.h", "kvarn_paged_step", "PagedStep"),
    ],
)
def test_structs_have_the_members_of_the_header(abi, header, struct, name):
    fields = [(field, kind.__name__) for field, kind in getattr(abi, name)._fields_]
    assert fields == members(header, struct)


def test_every_declared_function_is_in_a_header(abi):
    headers = "".join(path.read_text() for path in (ROOT / "include/kvarn").glob("*.h"))
    names = set(re.findall(r'"(kvarn_[a-z_]+)"', (ROOT / "python/kvarn/_abi.py").read_text()))
    missing = [name for name in names if not re.search(rf"\b{name}\b", headers)]
    assert not missing


def test_versions_agree():
    header = (ROOT / "include/kvarn/kvarn.h").read_text()
    parts = [re.search(rf"VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    for file in ("python/pyproject.toml", "python/kvarn/__init__.py"):
        assert f'"{".".join(parts)}"' in (ROOT / file).read_text()
