"""Packages are held to their digests: the list is whole, and what is not what it says is not installed."""

import hashlib
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
BOOTSTRAP = {"pip", "setuptools", "wheel", "flyball"}
"""What a virtual environment begins with, and Flyball itself."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashed() -> dict[str, tuple[str, int]]:
    """Version and number of digests of each package in the list."""
    found: dict[str, tuple[str, int]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / "hashes.txt").read_text()):
        match = re.match(r"(\S+)==(\S+)", entry)
        assert match is not None, entry
        found[normal(match[1])] = match[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry))
    return found


def test_each_package_of_the_list_has_the_version_that_was_tested_and_digests() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    known = hashed()
    assert {name: version for name, (version, _) in known.items()} == {
        normal(name): version for name, version in versions.items()
    }, "make hashes"
    assert all(count for _, count in known.values())


def test_all_that_is_installed_is_in_the_list() -> None:
    known = hashed()
    there = {normal(one.metadata["Name"]): one.version for one in distributions()}
    assert {name for name in there if name not in BOOTSTRAP and known.get(name, ("", 0))[0] != there[name]} == set()


def packed(path: Path, code: str) -> str:
    """Write a wheel of package ``tiny``; its digest."""
    files = {
        "tiny.py": code,
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("code", ["tested = True", "stolen = True"])
def test_a_package_that_is_not_what_the_list_says_is_not_installed(tmp_path: Path, code: str) -> None:
    index, hashes = tmp_path / "index", tmp_path / "hashes.txt"
    index.mkdir()
    wheel = index / "tiny-1.0-py3-none-any.whl"
    digest = packed(wheel, "tested = True")
    same = packed(wheel, code) == digest
    hashes.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    venv.create(tmp_path / "venv", with_pip=False)
    recipe = re.search(r"\$\(UV\) (pip install .*) -b hashes\.txt", (ROOT / "Makefile").read_text())
    assert recipe is not None
    words = recipe[1].replace("$(BIN)/python", str(tmp_path / "venv/bin/python")).replace("hashes.txt", str(hashes))
    local = f"--offline --no-config --cache-dir {tmp_path}/cache --no-index --find-links {index} tiny"
    done = subprocess.run([UV, *words.split(), *local.split()], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == same, done.stderr
    assert ("Hash mismatch" in done.stderr) != same
    assert bool([*(tmp_path / "venv/lib").glob("python*/site-packages/tiny.py")]) == same
