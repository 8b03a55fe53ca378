"""The latest readings in Prometheus' formats."""

import gzip
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Exposed
from prometheus_client.registry import Collector

from flyball_collectors.export.dcgm import dcgm_metric_families
from flyball_collectors.export.latest import Latest, View
from flyball_collectors.export.names import MetricFamily, label, metric_family_of
from flyball_collectors.export.rows import column_attributes, row_labels
from flyball_contracts.metrics import LAYOUTS


class Page(NamedTuple):
    """A response to a scrape."""

    content_type: str
    encoding: str
    body: bytes


class Column(NamedTuple):
    """Destination of a column's values."""

    metric_family: MetricFamily
    sample: str
    labels: Mapping[str, str]


class PrometheusPages:
    """Renders each view at most once per format and encoding, for any number of clients.

    Thread-safe; one thread renders, the others wait for it.
    """

    def __init__(self, latest: Latest, *, dcgm: bool = False) -> None:
        self.dcgm = dcgm
        self._latest = latest
        self._lock = threading.Lock()
        self._made: dict[tuple[str, bool], Page] = {}
        self._made_of: tuple[View | None, bool] = None, False

    def page(self, accept: str, accept_encoding: str) -> Page:
        """Response for the headers of a request: OpenMetrics or the text format, compressed or not."""
        encode, content_type = choose_encoder(accept)
        compressed = "gzip" in accept_encoding
        with self._lock:
            now = self._latest.view, self.dcgm
            if self._made_of[0] is not now[0] or self._made_of[1] != now[1]:
                self._made, self._made_of = {}, now
            page = self._made.get((content_type, compressed))
            if page is None:
                registry = CollectorRegistry(auto_describe=False)
                registry.register(_MetricFamilies(now[0], dcgm=now[1]))
                body = encode(registry)
                encoded = gzip.compress(body, compresslevel=1) if compressed else body
                page = Page(content_type, "gzip" if compressed else "", encoded)
                self._made[content_type, compressed] = page
            return page


class _MetricFamilies(Collector):
    """One view, in the client library's interface."""

    def __init__(self, view: View | None, *, dcgm: bool) -> None:
        self._view = view
        self._dcgm = dcgm

    def collect(self) -> Iterable[Exposed]:
        """All metric families that have a value."""
        if self._view is None:
            return []
        found = metric_families(self._view)
        return [*found, *dcgm_metric_families(self._view)] if self._dcgm else found


def metric_families(view: View) -> list[Exposed]:
    """Metric families of a view, each with the samples of all its layouts; NaN has no sample."""
    found: dict[str, Exposed] = {}
    for block in view.blocks:
        labels = row_labels(block.layout, view.inventory)
        known = ~np.isnan(block.values)
        for place, column in enumerate(_columns(block.layout.schema)):
            rows = np.flatnonzero(known[:, place])
            if not len(rows):
                continue
            metric_family = column.metric_family
            exposed = found.get(metric_family.name)
            if exposed is None:
                exposed = found[metric_family.name] = Exposed(
                    metric_family.name, _helps()[metric_family.name], metric_family.type, metric_family.unit
                )
            values = block.values[:, place].tolist()
            for row in rows.tolist():
                exposed.add_sample(column.sample, {**labels[row], **column.labels}, values[row])
    return list(found.values())


@cache
def _columns(schema: int) -> tuple[Column, ...]:
    layout = LAYOUTS[schema]
    columns: list[Column] = []
    for metric in layout.metrics:
        metric_family = metric_family_of(metric)
        labels = {label(key): value for key, value in column_attributes(layout, metric).items()}
        columns.append(
            Column(
                metric_family,
                f"{metric_family.name}_total" if metric_family.type == "counter" else metric_family.name,
                labels,
            )
        )
    return tuple(columns)


@cache
def _helps() -> dict[str, str]:
    """Help text of each metric family, from all of its columns."""
    parts: dict[str, list[str]] = {}
    for layout in LAYOUTS.values():
        for metric in layout.metrics:
            about = ", ".join(f"{key} {value}" for key, value in metric.attributes.items())
            parts.setdefault(metric_family_of(metric).name, []).append(
                f"{about}: {metric.about}" if about else metric.about
            )
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in parts.items()}
