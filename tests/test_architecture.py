"""ARCHITECTURE.md names rooms that are there, and the names in them; names and docstrings are in the field's terms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = {path.name for path in ROOT.iterdir()}
PATHS = sorted({path for path in re.findall(r"`([a-z]+/[\w./]*)`", TEXT)})


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_component_is_in_the_house() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/flyball_*/__init__.py")}
    assert set(re.findall(r"`(flyball_\w+)` \|", TEXT)) == packages


def test_names_in_rooms_are_there() -> None:
    named = re.findall(r"`([A-Z]\w+)` in `([\w./]+\.py)`", TEXT)
    assert len(named) >= 3
    assert [(name, path) for name, path in named if name not in (ROOT / path).read_text()] == []


DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_has_one_form_and_names_what_is_there(path: Path) -> None:
    text = path.read_text()
    assert re.match(r"# [^\d\s]", text), "its number is in the name of its file alone"
    assert "\n**Context.** " in text
    assert "\n**Decision.**" in text
    files = re.findall(r"`((?:[a-z]+/)+[\w.-]+\.\w+)`", text)
    assert [one for one in files if one.split("/")[0] in FOLDERS and not (ROOT / one).exists()] == []


BANNED_NAMES = frozenset(
    (
        *(
            "told",
            "said",
            "asked",
            "heard",
            "unheard",
            "heed",
            "heeded",
            "wish",
            "wishes",
            "desk",
            "ward",
            "door",
            "doors",
        ),
        *("sick", "nobody", "somebody", "whoever", "whatever", "spoken", "anew", "lately", "learnt", "riddle"),
    )
)
"""Words of no field: names are terms that a reader can look up."""
BANNED_PHRASES = re.compile(
    r"\b(that which|what of them|of which nothing|of them that has|whoever|nobody|somebody|anew|unheard|heed(s|ed)?"
    r"|wish(es|ed)?|takes? note|takes? on the|takes? in (a|the|what)|puts? by|came to nothing|hardly worth"
    r"|is (not )?to be had|had to be told|is told of|goes by what|speaks? up|a word on|so it is said"
    r"|(is|are) missed|(?<!there )(is|are) no room|the house)\b",
    re.IGNORECASE,
)
BANNED_IN_DOCUMENTS = re.compile(
    r"\b(anew|(is|are) missed|(?<!there )(is|are) no room|is told of|(nodes?|it) (is|are) out\b(?! of)"
    r"|the house(?! checks)|puts? (no|none|its|the|a|each)? ?(of its )?nodes? out)\b",
    re.IGNORECASE,
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
PRODUCT = sorted(path for root in ("*/flyball_*", "bench") for path in ROOT.glob(f"{root}/**/*.py"))


def names_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def texts_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(node.value.value.split())


def private_language(path: str, source: str) -> list[str]:
    """The names and docstrings of a module in words that only its authors know."""
    tree = ast.parse(source)
    names = [Path(path).stem, *names_in(tree)]
    words = {name: re.findall("[a-z]+", re.sub("([A-Z])", r"_\1", name).lower()) for name in names}
    found = [f"{path}: name {name!r}" for name, parts in words.items() if BANNED_NAMES.intersection(parts)]
    return found + [f"{path}: {match[0]!r}" for text in texts_in(tree) for match in BANNED_PHRASES.finditer(text)]


def test_names_and_docstrings_are_in_the_terms_of_the_field() -> None:
    assert len(PRODUCT) > 500
    found = [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in PRODUCT]
    assert [one for path, source in found for one in private_language(path, source)] == []


def test_documents_are_in_the_terms_of_the_field() -> None:
    assert len(DOCUMENTS) > 20
    texts = [(path.relative_to(ROOT).as_posix(), " ".join(path.read_text().split())) for path in DOCUMENTS]
    found = [f"{name}: {text[max(0, m.start() - 40) : m.end() + 20]}" for name, text in texts
             for m in BANNED_IN_DOCUMENTS.finditer(text)]  # fmt: skip
    assert found == []


def test_private_language_is_found() -> None:
    source = 'class Unheard:\n """What of them\n that nobody read."""\n def heed(self, wish): self.door = wish\n'
    assert private_language("ward.py", source) == [
        *(f"ward.py: name {name!r}" for name in ("ward", "Unheard", "heed", "wish", "door")),
        "ward.py: 'What of them'",
        "ward.py: 'nobody'",
    ]
