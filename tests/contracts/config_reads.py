"""Which fields of the configuration the product reads, by the types that annotations give to expressions.

The inference is coarse but never guesses by the name of a field alone: a field counts as read only on an expression
whose type is its section. Types come from annotations of parameters, variables, attributes and results, and spread
through assignments, loops and attributes.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

Sections = frozenset[type]
NONE: Sections = frozenset()
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
BINDINGS = (ast.AnnAssign, ast.Assign, ast.For, ast.comprehension, ast.NamedExpr, ast.MatchAs, ast.Match)
PASSING = (ast.Subscript, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.Starred, ast.Tuple, ast.List)
CONTAINER_METHODS = ("values", "items", "get", "pop", "setdefault")


def sections_of(kind: object) -> Sections:
    """The structs in a type, through options, lists and unions, and the structs in their fields."""
    found, todo = set[type](), [kind]
    while todo:
        one = todo.pop()
        todo += get_args(one)
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in found:
            found.add(one)
            todo += get_type_hints(one).values()
    return frozenset(found)


def _direct(kind: object) -> Sections:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return frozenset((kind,))
    return NONE.union(*(_direct(one) for one in get_args(kind)))


class Reads:
    """The pairs of a section and a field that the modules read; ``named`` has the sections by the names of types."""

    def __init__(self, sections: Sections, aliases: Mapping[str, object], modules: list[ast.Module]) -> None:
        self.fields = {one: {name: _direct(kind) for name, kind in get_type_hints(one).items()} for one in sections}
        self.named: dict[str, Sections] = {one.__name__: frozenset((one,)) for one in sections}
        self.named |= {name: _direct(kind) for name, kind in aliases.items()}
        self.everywhere: dict[str, Sections] = defaultdict(frozenset)
        self.here: dict[str, Sections] = defaultdict(frozenset)
        self.results: dict[str, Sections] = defaultdict(frozenset)
        self.found: set[tuple[type, str]] = set()
        nodes = [node for module in modules for node in ast.walk(module)]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        for one in classes * 2:  # a class may extend one that a later module extends
            bases = NONE.union(*(self.of_annotation(base) for base in one.bases))
            if bases:
                self.named.setdefault(one.name, bases)
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                self.results[node.name] |= self.of_annotation(node.returns)
        scopes = [Scope(module) for module in modules]
        attributes = [self._declared(module) for module in modules]
        for last in (False, True):  # attributes that one module sets are read in others
            self.found.clear()
            for scope, self.here in zip(scopes, attributes, strict=True):
                self._visit(scope, {}, scope.words)
                for name, kinds in () if last else self.here.items():
                    self.everywhere[name] |= kinds

    def _declared(self, module: ast.Module) -> dict[str, Sections]:
        found = defaultdict[str, Sections](frozenset)
        for node in ast.walk(module):
            for line in node.body if isinstance(node, ast.ClassDef) and node.name not in self.named else ():
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    found[line.target.id] |= self.of_annotation(line.annotation)
                elif isinstance(line, ast.FunctionDef) and line.returns is not None:
                    found[line.name] |= self.of_annotation(line.returns)
        return found

    def of_annotation(self, node: ast.expr) -> Sections:
        """The sections that an annotation names."""
        return NONE.union(*(self.named.get(word, NONE) for word in re.findall(r"\w+", ast.unparse(node))))

    def _visit(self, scope: "Scope", outer: Mapping[str, Sections], words: frozenset[str]) -> None:
        names = dict(outer)
        for arg in scope.args:
            names[arg.arg] = self.of_annotation(arg.annotation) if arg.annotation else names.get(arg.arg, NONE)
        if scope.owner in self.named and scope.args:
            names[scope.args[0].arg] = self.named[scope.owner]
        for node in scope.bindings * 2:
            self._bind(node, names)
        for read in scope.attributes:
            self.found |= {(one, read.attr) for one in self.of(read.value, names) if read.attr in self.fields[one]}
        for call in scope.dynamic:
            self.found |= {
                (one, word) for one in self.of(call.args[0], names) for word in words & self.fields[one].keys()
            }
        for inner in scope.scopes:
            self._visit(inner, names, words)

    def _bind(self, node: ast.AST, names: dict[str, Sections]) -> None:
        if isinstance(node, ast.AnnAssign):
            self._assign(node.target, self.of_annotation(node.annotation), names)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, self.of(node.value, names), names)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._assign(node.target, self.of(node.iter, names), names)
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, self.of(node.value, names), names)
        elif isinstance(node, ast.Match) and isinstance(node.subject, ast.Name):
            patterns = [part for case in node.cases for part in ast.walk(case.pattern)]
            kinds = [self.of_annotation(part.cls) for part in patterns if isinstance(part, ast.MatchClass)]
            names[node.subject.id] = names.get(node.subject.id, NONE).union(*kinds)
        elif isinstance(node, ast.MatchAs) and node.name and isinstance(node.pattern, ast.MatchClass):
            names[node.name] = self.of_annotation(node.pattern.cls)

    def _assign(self, target: ast.expr, kinds: Sections, names: dict[str, Sections]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = names.get(target.id, NONE) | kinds
        elif isinstance(target, ast.Attribute):
            self.here[target.attr] |= kinds
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._assign(one, kinds, names)

    def of(self, node: ast.AST, names: Mapping[str, Sections]) -> Sections:
        """The sections that an expression may be, or hold."""
        if isinstance(node, ast.Name):
            return names.get(node.id, NONE)
        if isinstance(node, ast.Attribute):
            base = [one for one in self.of(node.value, names) if node.attr in self.fields[one]]
            if base:
                return NONE.union(*(self.fields[one][node.attr] for one in base))
            if node.attr in CONTAINER_METHODS:
                return self.of(node.value, names)
            return self.here.get(node.attr) or self.everywhere.get(node.attr, NONE)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            known = self.named.get(called) or self.results.get(called)
            if known:
                return known
            held = self.of(node.func, names) if called in CONTAINER_METHODS else NONE
            return held.union(*(self.of(one, names) for one in node.args))
        parts: list[ast.AST] = []
        if isinstance(node, PASSING):
            parts = [*ast.iter_child_nodes(node)]
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            parts = [node.elt]
        return NONE.union(*(self.of(one, names) for one in parts))


class Scope:
    """A module or function: what it binds and reads, and the functions in it; ``owner`` is the class of a method."""

    def __init__(self, root: ast.AST, owner: str = "") -> None:
        self.owner = owner
        self.args: list[ast.arg] = []
        self.bindings: list[ast.AST] = []
        self.attributes: list[ast.Attribute] = []
        self.dynamic: list[ast.Call] = []
        self.scopes: list[Scope] = []
        if isinstance(root, SCOPES):
            self.args = [*root.args.posonlyargs, *root.args.args, *root.args.kwonlyargs]
        constants = [node.value for node in ast.walk(root) if isinstance(node, ast.Constant)] if not owner else []
        self.words = frozenset(value for value in constants if isinstance(value, str))
        self._read(root, "")

    def _read(self, parent: ast.AST, owner: str) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, SCOPES):
                if getattr(node, "name", "") != "__post_init__":  # to check a value is not to use it
                    self.scopes.append(Scope(node, owner or "function"))
                continue
            if isinstance(node, BINDINGS):
                self.bindings.append(node)
            elif isinstance(node, ast.Attribute):
                self.attributes.append(node)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                self.dynamic.append(node)
            self._read(node, node.name if isinstance(node, ast.ClassDef) else owner)


def modules_of(root: Path) -> list[ast.Module]:
    """The modules of the product."""
    return [ast.parse(path.read_text()) for path in sorted(root.glob("*/flyball_*/**/*.py"))]


def unread(kinds: list[type[msgspec.Struct]], aliases: Mapping[str, Any], modules: list[ast.Module]) -> list[str]:
    """``Section.field`` of each field that no module reads on its section, or on one that either extends."""
    sections = frozenset[type]().union(*(sections_of(kind) for kind in kinds))
    bases = {base for one in sections for base in one.__mro__ if base.__module__ != "msgspec" and base is not object}
    found = Reads(sections | bases, aliases, modules).found
    return sorted(
        f"{one.__name__}.{name}"
        for one in sections
        for name in get_type_hints(one)
        if not any(name == read and (issubclass(one, other) or issubclass(other, one)) for other, read in found)
    )
