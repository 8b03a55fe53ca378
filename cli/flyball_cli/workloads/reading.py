"""Reads a file of workloads as specifications, with errors that name file, line, key and remedy."""

from typing import Any

import yaml

from flyball_contracts.config.reading.loader import convert_node, line_of
from flyball_contracts.config.reading.yaml_text import YamlDumper, YamlLoader, refuse_mistakes
from flyball_contracts.declared.document import WorkloadDocument, written
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import WorkloadSpec


def read_specs(text: str, name: str, now_ns: int) -> list[WorkloadSpec]:
    """Specifications of YAML text: documents, each one workload or a list of them.

    ``name`` replaces the file in errors.

    Raises :class:`ConfigError` at the first error.
    """
    specs: list[WorkloadSpec] = []
    lines: dict[str, int] = {}
    for node, data in _entries(text, name):
        line = node.start_mark.line + 1
        path = _title(node)
        document = convert_node(node, data, WorkloadDocument, name, path)
        if (found := document.contradiction()) is not None:
            raise ConfigError(f"{name}:{line_of(node, found[0])}: {path}.{found[0]}: {found[1]}")
        if document.workload in lines:
            first = lines[document.workload]
            raise ConfigError(
                f"{name}:{line}: {path}: is declared twice; it is also in line {first}: keep one of the two"
            )
        lines[document.workload] = line
        try:
            specs.append(document.spec(now_ns))
        except ValueError as error:
            raise ConfigError(f"{name}:{line_of(node, 'deadline')}: {path}.deadline: {error}") from error
    if not specs:
        raise ConfigError(f"{name}:1: no workload in it; `flyball workloads example` prints a file to start from")
    return specs


def write_specs(specs: list[WorkloadSpec]) -> str:
    """YAML text, one document for each workload, for :func:`read_specs`.

    A workload that only the controller can declare, by an object of a cluster, is written as a comment.
    """
    return "---\n".join(_written(spec) for spec in specs)


def _written(spec: WorkloadSpec) -> str:
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 110}
    texts: list[str] = [yaml.dump(written(spec), Dumper=YamlDumper, **options)]
    if "/" not in spec.workload:
        return texts[0]
    return "".join(f"# {line}\n" for line in ("declared by its object in the cluster:", *texts[0].splitlines()))


def _title(node: yaml.Node) -> str:
    """Name of the workload of a node, if any; errors begin with it."""
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value if isinstance(node, yaml.MappingNode) else []
    names = [value.value for key, value in pairs if key.value == "workload" and isinstance(value, yaml.ScalarNode)]
    return str(names[0]) if names else ""


def _entries(text: str, name: str) -> list[tuple[yaml.Node, Any]]:
    loader: Any = YamlLoader(text)
    found: list[tuple[yaml.Node, Any]] = []
    try:
        while loader.check_node():
            root = loader.get_node()
            if root is None:
                continue
            refuse_mistakes(root, name)
            nodes = root.value if isinstance(root, yaml.SequenceNode) else [root]
            for node in nodes:
                data = loader.construct_document(node)
                if data is not None:
                    found.append((node, data))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}:1: not valid YAML: {error}") from error
    finally:
        loader.dispose()
    return found
