"""What the images hold: installs extras into fresh environments, and reports their sizes and contents.

    python infra/docker/contents.py [--sbom FOLDER] [EXTRAS]...     EXTRAS: agent,otlp and others of the Dockerfile

Each of EXTRAS is installed as the Dockerfile installs it, held to hashes.txt. With --sbom a CycloneDX 1.6 document of
each is written, made from the metadata of what was installed.
"""

import argparse
import json
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def of_dockerfile() -> list[str]:
    """The extras that the images are made of."""
    text = (ROOT / "infra/docker/Dockerfile").read_text()
    return [str(found) for found in re.findall(r"\.whl\)\[([\w,]+)\]", text)]


def install(folder: Path, extras: str) -> Path:
    """An environment with Flyball and the extras, without pip; its packages' folder."""
    uv, hashes, built = str(Path(sys.executable).with_name("uv")), str(ROOT / "hashes.txt"), folder / "wheels"
    held = ["--build-constraints", hashes, "--require-hashes"]
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(built), *held, str(ROOT)], check=True)
    (wheel,) = built.glob("flyball-*.whl")
    venv.create(folder / "venv", with_pip=False)
    subprocess.run(
        [
            uv, "pip", "install", "--quiet", "--python", str(folder / "venv/bin/python"), "--compile-bytecode",
            "--only-binary", ":all:", "--constraint", hashes, f"{wheel}[{extras}]",
        ],
        check=True,
    )  # fmt: skip
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    return packages


def sbom(packages: Path) -> dict[str, Any]:
    """A CycloneDX document of the distributions in a folder, by name."""
    found = dict(sorted((_name(one), one) for one in distributions(path=[str(packages)])))
    own = found["flyball"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(own), "type": "application"}},
        "components": [_component(one) for one in found.values() if one is not own],
        "dependencies": [{"ref": _purl(one), "dependsOn": _needs(one, found)} for one in found.values()],
    }


def size_bytes(folder: Path) -> int:
    """What the files of a folder hold."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _component(one: Distribution) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(one),
        "name": _name(one),
        "version": one.version,
        "purl": _purl(one),
    }
    licence = one.metadata.get("License-Expression")
    return component | ({"licenses": [{"expression": licence}]} if licence else {})


def _needs(one: Distribution, found: Mapping[str, Distribution]) -> list[str]:
    """What it names and what is there; of its extras and conditions only that is there which was asked for."""
    named = {_normal(re.split(r"[^\w.-]", text)[0]) for text in one.requires or ()}
    return sorted(_purl(found[name]) for name in named & found.keys() if found[name] is not one)


def _name(one: Distribution) -> str:
    return _normal(one.metadata["Name"])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(one: Distribution) -> str:
    return f"pkg:pypi/{_name(one)}@{one.version}"


def main() -> None:
    """Install, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", default=of_dockerfile())
    parser.add_argument("--sbom", type=Path)
    options = parser.parse_args()
    print(f"{'extras':40}{'packages':>10}{'MB':>8}")
    for extras in options.extras:
        with TemporaryDirectory() as folder:
            packages = install(Path(folder), extras)
            document = sbom(packages)
            print(f"{extras:40}{len(document['components']) + 1:>10}{size_bytes(packages) / 1e6:>8.0f}", flush=True)
        if options.sbom is not None:
            options.sbom.mkdir(parents=True, exist_ok=True)
            (options.sbom / f"{extras.replace(',', '-')}.cdx.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
