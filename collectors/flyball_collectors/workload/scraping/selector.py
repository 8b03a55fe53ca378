"""Selectors of samples, and their sums."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from flyball_collectors.workload.scraping.page import Sample
from flyball_contracts.errors import ConfigError

_ONE = re.compile(r'\s*([A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{((?:[^"}]|"[^"\\]*")*)\})?\s*')
_PAIR = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(!?=)\s*"([^"\\]*)"\s*')


class Condition(NamedTuple):
    """Required or excluded value of a label; an absent label is empty."""

    label: str
    equal: bool
    value: str


class Selector(NamedTuple):
    """One term: the samples of a name whose labels meet all conditions."""

    name: str
    conditions: tuple[Condition, ...]

    def takes(self, sample: Sample) -> bool:
        """Whether the selector matches the sample."""
        return sample.name == self.name and all(
            (sample.labels.get(c.label, "") == c.value) == c.equal for c in self.conditions
        )


Terms = tuple[Selector, ...]


def parse_terms(text: str, where: str) -> Terms:
    """Selectors ``name{label="value", other!="value"}`` joined by `` + ``.

    Raises :class:`ConfigError`, which names ``where``.
    """
    terms: list[Selector] = []
    at = 0
    while True:
        one = _ONE.match(text, at)
        if one is None:
            raise ConfigError(f'{where}: {text!r} is no selector; write name, or name{{label="value"}} + name')
        terms.append(Selector(one[1], _conditions(one[2] or "", text, where)))
        at = one.end()
        if at == len(text):
            return tuple(terms)
        if text[at] != "+":
            raise ConfigError(f"{where}: {text!r} is no selector; unexpected {text[at:]!r}, join terms by ' + '")
        at += 1


def _conditions(inside: str, text: str, where: str) -> tuple[Condition, ...]:
    conditions: list[Condition] = []
    parts: list[str] = re.findall(r'(?:[^",]|"[^"]*")+', inside)  # at commas outside of quotes
    for part in filter(None, map(str.strip, parts)):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            raise ConfigError(f'{where}: {text!r}: {part!r} is no condition; write label="value" or label!="value"')
        conditions.append(Condition(pair[1], pair[2] == "=", pair[3]))
    return tuple(conditions)


class Samples:
    """The samples of a page by name; no value can be below 0 or infinite: such ones are left out, as NaN is.

    Series that differ only in the labels ``copies`` are copies of one, of which the largest counts. A sample with other
    values for the labels of ``match`` is left out.
    """

    def __init__(self, samples: Iterable[Sample], match: Mapping[str, str], copies: Sequence[str]) -> None:
        self._copies = frozenset(copies)
        self._by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            if all(sample.labels.get(label, value) == value for label, value in match.items()):
                self._by_name.setdefault(sample.name, []).append(sample)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_name)

    def values(self, terms: Terms) -> dict[str, float]:
        """Value of each selected series, by its name and labels; empty if the page has none."""
        return self.by_label(terms, "").get("", {})

    def by_label(self, terms: Terms, label: str) -> dict[str, dict[str, float]]:
        """The same grouped by one label (empty if absent), which then does not distinguish series."""
        found: dict[str, dict[str, float]] = {}
        for term in terms:
            for sample in self._by_name.get(term.name, ()):
                if 0 <= sample.value < inf and term.takes(sample):
                    own = sorted((k, v) for k, v in sample.labels.items() if k != label and k not in self._copies)
                    group = found.setdefault(sample.labels.get(label, ""), {})
                    key = f"{sample.name}{own}"
                    group[key] = max(group.get(key, sample.value), sample.value)
        return found
