"""Reads YAML into typed configuration, with errors that name file, line, key and remedy."""

import re
import types
import typing
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from flyball_contracts.config.reading.expected import expected_at, plainly
from flyball_contracts.config.reading.removed import remedy
from flyball_contracts.config.reading.yaml_text import YamlLoader, refuse_mistakes
from flyball_contracts.errors import ConfigError

T = TypeVar("T")
_INVALID_ENUM = "Invalid enum value"  # msgspec names the wrong one, not the right ones

_KEY = re.compile(r"([a-z]\w*): (.+)", re.DOTALL)


def load_config(path: Path, kind: type[T]) -> T:
    """Read a YAML file as ``kind``, a frozen struct.

    Raises :class:`ConfigError` with ``file:line: key: what was expected`` (and the nearest valid key for an unknown
    one) when the file cannot be read or is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    return parse_config(text, kind, str(path))


@contextmanager
def located(path: Path) -> Generator[None]:
    """Add file and line to a :class:`ConfigError` whose text begins with a key of the block at ``path``."""
    try:
        yield
    except ConfigError as error:
        key, _, _ = str(error).partition(": ")
        tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=YamlLoader)
        raise ConfigError(f"{path}:{line_of(tree, key)}: {error}") from error


def parse_config(text: str, kind: type[T], name: str = "<config>") -> T:
    """Read YAML text as ``kind``; ``name`` replaces the file in errors (:class:`ConfigError`)."""
    try:
        tree = yaml.compose(text, Loader=YamlLoader)
        data = yaml.load(text, Loader=YamlLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}:1: not valid YAML: {error}") from error
    except (LookupError, AttributeError) as error:  # PyYAML's constructors of tagged values
        raise ConfigError(
            f"{name}:1: not valid YAML: a value does not fit its tag; leave out tags such as !!bool"
        ) from error
    refuse_mistakes(tree, name)
    if data is None:
        data, tree = {}, None
    return convert_node(tree, data, kind, name)


def convert_node(node: yaml.Node | None, data: Any, kind: type[T], name: str, path: str = "") -> T:
    """Check and convert the ``data`` of a YAML node at ``path``, for errors (:class:`ConfigError`)."""
    _check_keys(data, kind, node, name, path)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, inner = _message_and_path(error)
        inner = _with_keys(inner, data, kind)
        expected = expected_at(kind, inner) if message.startswith(_INVALID_ENUM) or "matching regex" in message else ""
        message = f"expected {expected}" if expected else plainly(message)
        if named := _KEY.fullmatch(message):  # a section that checks itself names the key first
            inner, message = f"{inner}.{named[1]}".lstrip("."), named[2]
        place = ".".join(part for part in (path, inner) if part)
        raise ConfigError(f"{name}:{line_of(node, inner)}: {place or 'the document'}: {message}") from error


def _message_and_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """Message and path of an error; ``[...]`` in a path is a key that msgspec does not name."""
    message, _, where = str(error).partition(" - at `")
    if where.startswith("key` in"):
        message = f"a key: {plainly(message)}"
    return message, where.rstrip("`").rpartition("$")[2].lstrip(".")


def _with_keys(path: str, data: Any, kind: Any) -> str:
    """The path with a key in place of each ``[...]``: the first key whose entry is wrong by itself."""
    before, unnamed, after = path.partition("[...]")
    for key in _at(data, _parts(before)) if unnamed else ():
        alone = _only(data, _parts(before), key)
        try:
            msgspec.convert(alone, kind)
        except msgspec.ValidationError as error:
            if _message_and_path(error)[1] == path:
                return _with_keys(f"{before}[{key}]{after}", alone, kind)
    return path


def _at(data: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        data = data[_index(data, part)]
    return data


def _only(data: Any, parts: Sequence[str], key: Any) -> Any:
    """The data with only this key left in the mapping at a path."""
    if not parts:
        return {key: data[key]}
    index, copied = _index(data, parts[0]), data.copy()
    copied[index] = _only(data[index], parts[1:], key)
    return copied


def _index(container: Any, part: str) -> Any:
    return int(part) if isinstance(container, list) else part


def _check_keys(data: Any, kind: Any, node: yaml.Node | None, name: str, path: str) -> None:
    """Reject unknown keys, at any depth, with their line and the nearest valid key."""
    kind = _struct_of(kind, data, node, name, path)
    if typing.get_origin(kind) in (tuple, list) and isinstance(data, list):
        inner = typing.get_args(kind)[0]
        children: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else []
        items: list[Any] = typing.cast("Any", data)
        for i, (item, child) in enumerate(zip(items, children, strict=False)):
            _check_keys(item, inner, child, name, f"{path}[{i}]")
        return
    if not isinstance(data, dict):
        return
    marks = _children(node)
    entries: dict[Any, Any] = typing.cast("Any", data)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        for key in entries:  # a former section may be a list or a value now
            _refuse_removed(f"{path}.{key}", marks.get(str(key), (None,))[0], name)
        return
    hints = typing.get_type_hints(kind)
    for key, value in entries.items():
        where = f"{path}.{key}" if path else str(key)
        key_node, value_node = marks.get(str(key), (None, None))
        if key == kind.__struct_config__.tag_field:
            continue
        if key not in hints:
            _refuse_removed(where, key_node, name)
            line = key_node.start_mark.line + 1 if key_node else 1
            import difflib

            near = difflib.get_close_matches(str(key), hints, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(sorted(hints))}"
            raise ConfigError(f"{name}:{line}: {where}: unknown key; {hint}")
        _check_keys(value, hints[key], value_node, name, where)


def _refuse_removed(path: str, key: yaml.Node | None, name: str) -> None:
    if (remedy_text := remedy(path)) is not None:
        raise ConfigError(f"{name}:{key.start_mark.line + 1 if key else 1}: {path}: was removed: {remedy_text}")


def _struct_of(kind: Any, data: Any, node: yaml.Node | None, name: str, path: str) -> Any:
    """The one non-None member of an optional type, the section of a union that ``data`` names, or the type itself."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    members = [member for member in typing.get_args(kind) if member is not type(None)]
    if len(members) == 1:
        return members[0]
    tags = {member.__struct_config__.tag: member for member in members if hasattr(member, "__struct_config__")}
    if not tags or not isinstance(data, dict):
        return kind
    field = members[0].__struct_config__.tag_field
    given: Any = typing.cast("Any", data).get(field)
    if not isinstance(given, str) or given not in tags:
        place = f"{name}:{line_of(node, field if given is not None else '')}: {path}.{field}"
        raise ConfigError(f"{place}: expected one of {', '.join(map(str, tags))}")
    return tags[given]


def _children(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): (key, value) for key, value in node.value}


def line_of(node: yaml.Node | None, path: str) -> int:
    """Line of the deepest node on ``path`` that exists, counted from 1."""
    line = node.start_mark.line + 1 if node is not None else 1
    for part in _parts(path):
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            inner: yaml.Node = node.value[int(part)]
            line, node = inner.start_mark.line + 1, inner
        elif (found := _children(node).get(part)) is not None:
            line, node = found[0].start_mark.line + 1, found[1]
        else:
            break
    return line


def _parts(path: str) -> list[str]:
    """Keys and places of a path such as ``kafka.partitions[flyball.decisions.v1]`` or ``feeds[2].zone``."""
    return [key or place for place, key in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", path)]
