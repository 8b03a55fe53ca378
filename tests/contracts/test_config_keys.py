"""How many keys a user may set, and that none that went is forgotten.

Counted are the leaf keys of each document, as :func:`key_paths` says. flyball.yaml configures all parts of Flyball: the
agent, the feeds, the worker, the actuator, the controller, the page and the sink. fleet.yaml describes a made-up fleet
for the simulator, its workloads and what befalls them; no installation needs one, so it is counted apart. A workload
that is declared, by a file or by a custom resource, is a record, which travels in a topic, and no configuration. Helm's
values are read by Helm, which makes a flyball.yaml of them.
"""

import ast
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from tests.contracts.config_reads import modules_of, unread
from tests.contracts.key_paths import key_paths

from flyball_contracts.config import Config, FleetConfig, parse_config
from flyball_contracts.config.feeds import AnyFeed
from flyball_contracts.config.reading.removed import REMOVED
from flyball_contracts.errors import ConfigError

DOCUMENTS: dict[str, type[msgspec.Struct]] = {"flyball.yaml": Config, "fleet.yaml": FleetConfig}
MOST_KEYS = {"flyball.yaml": 179, "fleet.yaml": 126}


class Cat(msgspec.Struct, tag_field="kind", tag="cat"):
    name: str
    lives: int


class Dog(msgspec.Struct, tag_field="kind", tag="dog"):
    name: str
    tricks: tuple[str, ...]


class House(msgspec.Struct):
    pets: tuple[Cat | Dog, ...]
    guest: Cat | None
    labels: dict[str, str]
    doors: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)]


def test_how_keys_are_counted() -> None:
    assert key_paths(House) == (
        *("pets.kind", "pets.name", "pets.lives", "pets.tricks", "guest.kind", "guest.name", "guest.lives"),
        *("labels", "doors"),
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_there_are_few_keys(name: str) -> None:
    count = len(key_paths(DOCUMENTS[name]))
    assert count <= MOST_KEYS[name], f"{name} has {count} keys, {MOST_KEYS[name]} at most; make one a constant"


def test_every_key_has_a_reader() -> None:
    product = modules_of(Path(__file__).resolve().parents[2])
    assert unread([*DOCUMENTS.values()], {"AnyFeed": AnyFeed}, product) == [], "read it, or remove the key"


READER = """
class Keeper:
    def __init__(self, house: House) -> None:
        self.house = house

    def names(self, other):
        return [pet.name for pet in self.house.pets], other.lives

    def tricks(self):
        for pet in self.house.pets:
            if isinstance(pet, Dog):
                yield from pet.tricks
        return [getattr(self.house, name) for name in ("doors",)]
"""


NO_READER = """
class Street:
    name: str

    def __init__(self, houses: tuple[House, ...]) -> None:
        self.houses = houses
        self.label = [house.guest for house in self.name]

    def same(self, old: House, new: House):
        if old.guest == new.guest and all(getattr(old, key) == getattr(new, key) for key in ("labels",)):
            return replace(new, **{key: getattr(old, key) for key in ("doors",)})

def called(street: Street, pet: Cat | Dog) -> str:
    match pet:
        case Dog():
            return pet.name, pet.lives, street.name
    if isinstance(pet, Dog):
        return pet.lives
    return [pet.name for pet in street.doors], [dog.name for pet, dog in zip(pets(house), streets, strict=True)]

def pets(house: House) -> list[Cat]: ...
streets: list[Street]
"""


def test_a_key_that_is_compared_or_copied_or_is_another_classs_has_no_reader() -> None:
    assert unread([House], {}, [ast.parse(NO_READER)]) == [
        *("Cat.lives", "Cat.name", "Dog.tricks", "House.doors", "House.guest", "House.labels", "House.pets"),
    ]


def test_a_key_without_a_reader_is_found() -> None:
    assert unread([House], {}, [ast.parse(READER)]) == ["Cat.lives", "House.guest", "House.labels"]
    read = "class H:\n house: House\n def f(self): return self.house.guest.lives, self.house.labels"
    assert unread([House], {}, [ast.parse(READER), ast.parse(read)]) == []


@pytest.mark.parametrize("path", sorted(REMOVED))
def test_a_key_that_went_is_gone(path: str) -> None:
    assert not [known for kind in DOCUMENTS.values() for known in key_paths(kind) if f"{known}.".startswith(f"{path}.")]


def test_a_key_that_went_says_what_to_do() -> None:
    words = "was removed: it is a constant that the benchmarks tune; leave it out"
    with pytest.raises(ConfigError, match=f"^<config>:2: worker.sizing.growth: {words}$"):
        parse_config("worker:\n  sizing: {growth: 3.0}", Config)
