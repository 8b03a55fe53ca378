"""The list of what an image holds, on the packages of the environment that runs the tests."""

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def contents() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contents", ROOT / "infra/docker/contents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_is_a_cyclonedx_document_of_what_is_installed() -> None:
    document = contents().sbom(Path(sysconfig.get_paths()["purelib"]))
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    own = document["metadata"]["component"]
    assert (own["type"], own["name"]) == ("application", "flyball")
    refs = [own["bom-ref"], *(one["bom-ref"] for one in document["components"])]
    assert len(refs) == len(set(refs))
    for one in document["components"]:
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
    needs = {entry["ref"]: entry["dependsOn"] for entry in document["dependencies"]}
    assert set(needs) == set(refs)
    assert {ref for wanted in needs.values() for ref in wanted} <= set(refs)
    direct = {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in needs[own["bom-ref"]]}
    assert {"click", "msgspec", "numpy", "pyyaml"} <= direct


def test_the_extras_are_those_of_the_dockerfile() -> None:
    assert contents().of_dockerfile() == ["agent,otlp", "worker,dashboard", "actuate,kubernetes,keda,aws,gcp,azure"]
