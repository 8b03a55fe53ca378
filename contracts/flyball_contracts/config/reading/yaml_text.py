"""YAML as people write it: ``8e9`` is a number, and a date stays text."""

import math
import re
from typing import Any, cast

import yaml

from flyball_contracts.errors import ConfigError

_FLOAT = "tag:yaml.org,2002:float"
_SCIENTIFIC = (_FLOAT, re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))


class YamlLoader(yaml.SafeLoader):
    """Reads numbers as in YAML 1.2, where PyYAML follows 1.1."""


class YamlDumper(yaml.SafeDumper):
    """Quotes texts that :class:`YamlLoader` would read as numbers."""


YamlLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in (YamlLoader, YamlDumper):
    cast("Any", _kind).add_implicit_resolver(*_SCIENTIFIC)


def refuse_mistakes(tree: yaml.Node | None, name: str) -> None:
    """Raise :class:`ConfigError` for a key that a mapping has twice, and for a number that is not finite.

    YAML accepts both; of two equal keys it silently takes the last.
    """
    waiting: list[tuple[yaml.Node | None, str]] = [(tree, "")]
    known = set[int]()
    while waiting:
        node, place = waiting.pop()
        if node is None or id(node) in known:  # an alias may lead back to its own anchor
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend((item, f"{place}[{i}]") for i, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                text, line = str(key.value), key.start_mark.line + 1
                where = f"{place}.{text}" if place else text
                if text in lines:
                    raise ConfigError(f"{name}:{line}: {where}: stands twice; it is also in line {lines[text]}")
                lines[text] = line
                waiting.append((value, where))
        elif node.tag == _FLOAT and not math.isfinite(_number(node.value)):
            where = f"{name}:{node.start_mark.line + 1}: {place or 'the document'}"
            raise ConfigError(f"{where}: {node.value} is not a finite number")


def _number(text: str) -> float:
    try:
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:  # hours and minutes, 1:30.5, which YAML 1.1 takes for a number
        return 0.0
