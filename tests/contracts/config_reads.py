"""Which fields of the configuration the product reads, by the types that annotations give to expressions.

The inference is coarse but never guesses by the name of a field alone: a field counts as read only on an expression
whose type is its section. Types come from annotations of parameters, variables, attributes and results, from what
methods put into attributes of their class, and from ``isinstance`` and ``match``; they spread through assignments,
loops and calls. To check a value in ``__post_init__``, to compare it with that of another configuration or to copy it
into one is not to use it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

Kind = type | str
"""A section, or the name of a class of the product that is none."""
Kinds = frozenset[Kind]
NONE: Kinds = frozenset()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
BINDINGS = (ast.AnnAssign, ast.Assign, ast.For, ast.comprehension, ast.NamedExpr)
PASSING = (ast.Subscript, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.Starred, ast.Tuple, ast.List, ast.Await)
LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""They bind and read nothing by themselves, and have no parts that do."""
CONTAINER_METHODS = ("values", "items", "get", "pop", "setdefault")
COPYING = ("replace", "_replace")
Names = Mapping[str, Kinds]
Narrowed = Mapping[str, list[ast.expr]]
"""Classes to which ``isinstance`` or ``match`` limits variables."""


def sections_of(kind: object) -> frozenset[type]:
    """The structs in a type, through options, lists and unions, and the structs in their fields."""
    found, todo = set[type](), [kind]
    while todo:
        one = todo.pop()
        todo += get_args(one)
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in found:
            found.add(one)
            todo += get_type_hints(one).values()
    return frozenset(found)


def _direct(kind: object) -> Kinds:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return frozenset((kind,))
    return NONE.union(*(_direct(one) for one in get_args(kind)))


class Reads:
    """The pairs of a section and a field that the modules read."""

    def __init__(self, sections: frozenset[type], aliases: Mapping[str, object], modules: list[ast.Module]) -> None:
        self.fields = {one: {name: _direct(kind) for name, kind in get_type_hints(one).items()} for one in sections}
        self.named: dict[str, Kinds] = {one.__name__: frozenset((one,)) for one in sections}
        self.named |= {name: _direct(kind) for name, kind in aliases.items()}
        self.local: dict[str, Kinds] = {}
        """What names mean in the module that is read, where it defines them itself."""
        self.bases: dict[str, Kinds] = {}
        self.members: dict[str, dict[str, Kinds]] = defaultdict(lambda: defaultdict(frozenset))
        self.results: dict[str, Kinds | None] = {}
        """Kinds of what functions return, by their names; ``None`` where that is of the type of an argument."""
        self.here: dict[str, Kinds | None] = {}
        self.found: set[tuple[type, str]] = set()
        defined = [self._defined(module, number) for number, module in enumerate(modules)]
        for module, self.local in zip(modules, defined, strict=True):
            self._declare(module)
        scopes = [Scope(module) for module in modules]
        for _ in range(2):  # what one module puts into an attribute is read in others
            self.found.clear()
            for module, scope, self.local in zip(modules, scopes, defined, strict=True):
                self.here = {one.name: self._result(one) for one in module.body if isinstance(one, ast.FunctionDef)}
                self._visit(scope, {}, scope.words)

    def _defined(self, module: ast.Module, number: int) -> dict[str, Kinds]:
        """The classes and unions of a module: a class that extends a section is read as that section."""
        self.local = {}
        for one in _walked(module):
            if isinstance(one, ast.ClassDef):
                fields = [
                    line.target.id
                    for line in one.body
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                ]
                known = [k for k in self.named.get(one.name, NONE) if _is_of(k, one.name, fields)]
                section = known or [k for base in one.bases for k in self.of_annotation(base) if isinstance(k, type)]
                self.local[one.name] = frozenset[Kind](section) or frozenset((f"{one.name} {number}",))
        for line in module.body:
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.value, ast.BinOp)
                and isinstance(line.targets[0], ast.Name)
            ):
                self.local[line.targets[0].id] = self.of_annotation(line.value)
        for name, kinds in self.local.items():
            self.named[name] = self.named.get(name, NONE) | kinds
        return self.local

    def _declare(self, module: ast.Module) -> None:
        methods = set[ast.AST]()
        for one in _walked(module):
            if isinstance(one, ast.FunctionDef) and one not in methods:
                before, result = self.results.get(one.name, NONE), self._result(one)
                self.results[one.name] = None if before is None or result is None else before | result
            if not isinstance(one, ast.ClassDef):
                continue
            methods.update(one.body)
            for kind in self.local[one.name]:
                if isinstance(kind, str):
                    self.bases[kind] = NONE.union(*(self.of_annotation(base) for base in one.bases))
                    self._declare_members(self.members[kind], one.body)

    def _declare_members(self, members: dict[str, Kinds], body: list[ast.stmt]) -> None:
        for line in body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                members[line.target.id] |= self.of_annotation(line.annotation)
            elif isinstance(line, ast.FunctionDef):
                members[line.name] |= self._result(line) or NONE

    def _result(self, node: ast.FunctionDef) -> Kinds | None:
        if node.returns is None or re.search(r"\b[A-Z]\b", ast.unparse(node.returns)):  # none, or a type variable
            return None
        return self.of_annotation(node.returns)

    def of_annotation(self, node: ast.AST) -> Kinds:
        """The kinds that an annotation names."""
        return NONE.union(*map(self._kinds_of, _words_of(node)))

    def _kinds_of(self, name: str) -> Kinds:
        return self.local.get(name) or self.named.get(name, NONE)

    def _member(self, kind: Kind, name: str) -> Kinds | None:
        """Kinds of an attribute, ``None`` if the class has none of that name."""
        if isinstance(kind, type):
            return self.fields[kind].get(name)
        if name in self.members[kind]:
            return self.members[kind][name]
        found = [self._member(base, name) for base in self.bases.get(kind, NONE) if base != kind]
        return next((kinds for kinds in found if kinds is not None), None)

    def _visit(self, scope: "Scope", outer: Names, words: frozenset[str]) -> None:
        names = {name: kinds for name, kinds in outer.items() if name not in scope.fresh}
        for arg in scope.args:
            names[arg.arg] = self.of_annotation(arg.annotation) if arg.annotation else names.get(arg.arg, NONE)
        if scope.owner in self.local and scope.args:
            names[scope.args[0].arg] = self.local[scope.owner]
        for node, narrowed in scope.bindings * 2:
            self._bind(node, names, self._narrow(names, narrowed))
        for read, narrowed in scope.attributes:
            kinds = self.of(read.value, self._narrow(names, narrowed))
            self.found |= {(one, read.attr) for one in kinds if isinstance(one, type) and read.attr in self.fields[one]}
        for call, narrowed in scope.dynamic:
            for one in self.of(call.args[0], self._narrow(names, narrowed)):
                self.found |= (
                    {(one, word) for word in words & self.fields[one].keys()} if isinstance(one, type) else set()
                )
        for inner, narrowed in scope.scopes:
            self._visit(inner, self._narrow(names, narrowed), words)

    def _narrow(self, names: Names, narrowed: Narrowed) -> Names:
        return (
            names
            if not narrowed
            else {**names, **{name: NONE.union(*map(self.of_annotation, kinds)) for name, kinds in narrowed.items()}}
        )

    def _bind(self, node: ast.AST, names: dict[str, Kinds], seen: Names) -> None:
        if isinstance(node, ast.AnnAssign):
            self._assign(node.target, self.of_annotation(node.annotation), names, seen)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._match(target, node.value, names, seen)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._match(node.target, node.iter, names, seen)
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, self.of(node.value, seen), names, seen)

    def _match(self, target: ast.expr, value: ast.expr, names: dict[str, Kinds], seen: Names) -> None:
        """Assign what a value is or holds: part by part where it is a tuple, or lists that are read side by side."""
        zipped = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "zip"
        parts = value.args if isinstance(value, ast.Call) and zipped else getattr(value, "elts", [])
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and len(target.elts) == len(parts):
            pairs = list(zip(target.elts, parts, strict=True))
        for one, part in pairs:
            self._assign(one, self.of(part, seen), names, seen)

    def _assign(self, target: ast.expr, kinds: Kinds, names: dict[str, Kinds], seen: Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = names.get(target.id, NONE) | kinds
        elif isinstance(target, ast.Attribute):
            for one in self.of(target.value, seen):
                if isinstance(one, str):
                    self.members[one][target.attr] |= kinds
        elif isinstance(target, (ast.Tuple, ast.List)):
            for inner in target.elts:
                self._assign(inner, kinds, names, seen)

    def of(self, node: ast.AST, names: Names) -> Kinds:
        """The kinds that an expression may be, or hold."""
        if isinstance(node, ast.Name):
            return names.get(node.id) or self._kinds_of(node.id)
        if isinstance(node, ast.Attribute):
            held = self.of(node.value, names)
            known = [kinds for one in held if (kinds := self._member(one, node.attr)) is not None]
            return NONE.union(*known) if known else held if node.attr in CONTAINER_METHODS else NONE
        if isinstance(node, ast.Call):
            return self._called(node, names)
        parts: list[ast.AST] = []
        if isinstance(node, COMPREHENSIONS):
            inside = {name: kinds for name, kinds in names.items() if name not in _targets(node)}
            for one in node.generators:
                self._match(one.target, one.iter, inside, {**names, **inside})
            return self.of(node.value if isinstance(node, ast.DictComp) else node.elt, inside)
        if isinstance(node, PASSING):
            parts = [*ast.iter_child_nodes(node)]
        elif isinstance(node, ast.Dict):
            parts = [*node.values]
        return NONE.union(*(self.of(one, names) for one in parts))

    def _called(self, node: ast.Call, names: Names) -> Kinds:
        given = NONE.union(*(self.of(one, names) for one in node.args))
        if isinstance(node.func, ast.Name):
            if known := self._kinds_of(node.func.id):
                return known
            result = self.here.get(node.func.id, self.results.get(node.func.id))
            return given if result is None else result
        held = self.of(node.func, names)
        if held or not isinstance(node.func, ast.Attribute):
            return held
        if node.func.attr in COPYING:
            return given | self.of(node.func.value, names)
        if self.of(node.func.value, names):  # a method whose result is no section
            return NONE
        result = self._kinds_of(node.func.attr) or self.results.get(node.func.attr)
        return given if result is None else result


@cache
def _walked(root: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(root))


@cache
def _words_of(node: ast.AST) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", ast.unparse(node)))


def _is_of(kind: Kind, name: str, fields: list[str]) -> bool:
    return isinstance(kind, type) and kind.__name__ == name and [*kind.__annotations__] == fields


class Scope:
    """A module or function: what it binds and reads, and the functions in it; ``owner`` is the class of a method."""

    def __init__(self, root: ast.AST, owner: str = "") -> None:
        self.owner = owner
        self.args: list[ast.arg] = []
        self.bindings: list[tuple[ast.AST, Narrowed]] = []
        self.attributes: list[tuple[ast.Attribute, Narrowed]] = []
        self.dynamic: list[tuple[ast.Call, Narrowed]] = []
        self.scopes: list[tuple[Scope, Narrowed]] = []
        self.fresh: frozenset[str] = _targets(root) if isinstance(root, COMPREHENSIONS) else frozenset[str]()
        if isinstance(root, FUNCTIONS):
            self.args = [*root.args.posonlyargs, *root.args.args, *root.args.kwonlyargs]
        constants = [node.value for node in _walked(root) if isinstance(node, ast.Constant)] if not owner else []
        self.words = frozenset(value for value in constants if isinstance(value, str))
        for node in ast.iter_child_nodes(root):
            self._read(node, "", {})

    def _read(self, node: ast.AST, owner: str, narrowed: Narrowed) -> None:
        if isinstance(node, (*FUNCTIONS, *COMPREHENSIONS)):
            if getattr(node, "name", "") != "__post_init__":
                self.scopes.append((Scope(node, owner or "function"), narrowed))
            return
        if isinstance(node, BINDINGS):
            self.bindings.append((node, narrowed))
        elif isinstance(node, ast.Attribute):
            self.attributes.append((node, narrowed))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            self.dynamic.append((node, narrowed))
        inner = node.name if isinstance(node, ast.ClassDef) else owner
        for child, limits in _children(node):
            if not isinstance(child, LEAVES) and not _is_copied(node, child):
                self._read(child, inner, {**narrowed, **limits})


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, Narrowed]]:
    """Parts of a node, each with the classes to which a test limits variables in it."""
    if isinstance(node, (ast.If, ast.IfExp)):
        limits = _limits(node.test)
        yield node.test, limits if isinstance(node.test, ast.BoolOp) else {}
        yield from ((one, limits) for one in (node.body if isinstance(node, ast.If) else [node.body]))
        yield from ((one, {}) for one in (node.orelse if isinstance(node, ast.If) else [node.orelse]))
    elif isinstance(node, ast.Match) and isinstance(node.subject, ast.Name):
        yield node.subject, {}
        for case in node.cases:
            classes = [part.cls for part in ast.walk(case.pattern) if isinstance(part, ast.MatchClass)]
            name = case.pattern.name if isinstance(case.pattern, ast.MatchAs) else None
            limits = {word: classes for word in (node.subject.id, name) if word} if classes else {}
            yield from ((one, limits) for one in [*([case.guard] if case.guard else []), *case.body])
    else:
        yield from ((one, {}) for one in ast.iter_child_nodes(node))


def _targets(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> frozenset[str]:
    parts = [part for one in node.generators for part in ast.walk(one.target)]
    return frozenset(part.id for part in parts if isinstance(part, ast.Name))


def _limits(test: ast.expr) -> Narrowed:
    """Variables that ``isinstance`` limits where a test holds."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return {name: kinds for one in test.values for name, kinds in _limits(one).items()}
    if (
        isinstance(test, ast.Call)
        and getattr(test.func, "id", "") == "isinstance"
        and isinstance(test.args[0], ast.Name)
    ):
        return {test.args[0].id: [test.args[1]]}
    return {}


def _is_copied(parent: ast.AST, child: ast.AST) -> bool:
    """Whether a value is only compared with that of another configuration, or copied into one."""
    if isinstance(parent, ast.Compare):
        sides = {_field(one) for one in (parent.left, *parent.comparators)}
        return len(sides) == 1 and None not in sides
    return (
        isinstance(parent, ast.Call)
        and child in parent.keywords
        and _called_name(parent) in COPYING
        and (isinstance(child, ast.keyword) and child.arg is None)
    )


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _field(node: ast.AST) -> str | None:
    """The field that an expression reads: by its name, or by the expression that gives it to ``getattr``."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
        return ast.unparse(node.args[1])
    return node.attr if isinstance(node, ast.Attribute) else None


def modules_of(root: Path) -> list[ast.Module]:
    """The modules of the product."""
    return [ast.parse(path.read_text()) for path in sorted(root.glob("*/flyball_*/**/*.py"))]


def unread(kinds: list[type[msgspec.Struct]], aliases: Mapping[str, Any], modules: list[ast.Module]) -> list[str]:
    """``Section.field`` of each field that no module reads on its section, or on one that either extends."""
    sections = frozenset[type]().union(*(sections_of(kind) for kind in kinds))
    bases = {base for one in sections for base in one.__mro__ if base.__module__ != "msgspec" and base is not object}
    found = Reads(sections | bases, aliases, modules).found
    for kept in (_walked, _words_of):  # or the trees of all modules would stay in memory
        kept.cache_clear()
    return sorted(
        f"{one.__name__}.{name}"
        for one in sections
        for name in get_type_hints(one)
        if not any(name == read and (issubclass(one, other) or issubclass(other, one)) for other, read in found)
    )
