"""Hourly carbon intensity of grid zones: Electricity Maps data, as published by HewlettPackard/green-dcc.

File: `hourly_2021_2024` (`zone, time, lca, estimated`).

Mapping and assumptions:

- One `Signal` per zone and hour: the lifecycle, average intensity of that hour (`lca`, gCO2eq/kWh), as UTC. It is a
  measurement, not a forecast, and is published at the end of its hour: a live feed is some hours later still.
- Hours without a value are left out. `direct` and the shares are not used.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flyball_contracts.records import Signal
from flyball_streams.importers.base import NS_PER_S, ImportReport, Progress, RecordingBuilder, read_table, report_of
from flyball_streams.recording import RecordingWriter

STEP_S = 3600
_PROGRESS_EVERY = 4096


@dataclass(frozen=True)
class CarbonElectricityMaps:
    """Importer of `carbon_electricitymaps`."""

    name: str = "carbon_electricitymaps"
    about: str = "hourly lifecycle carbon intensity of grid zones, as signals (3 years)"

    def convert(self, source: Path, out: Path, *, progress: Progress | None = None) -> ImportReport:
        """Convert the trace's folder to a recording; the module describes the mapping."""
        keys = {"time": pl.Datetime("ns"), "zone": pl.String()}
        table = read_table(source, "hourly_2021_2024.parquet", keys, {"lca": pl.Float64(), "estimated": pl.Boolean()})
        rows = table.rows.drop_nulls("lca")
        with RecordingWriter(out, made_by=f"flyball import {self.name}") as writer:
            builder = RecordingBuilder(writer, self.name)
            hours = rows.select(pl.col("time").dt.epoch("ns"), "zone", "lca", "estimated").iter_rows()
            for i, (start_ns, zone, intensity, estimated) in enumerate(hours):
                published_ns = start_ns + STEP_S * NS_PER_S
                signal = Signal(
                    zone=zone,
                    kind="carbon_intensity",
                    published_ns=published_ns,
                    start_ns=start_ns,
                    step_s=float(STEP_S),
                    p50=(intensity,),
                    forecast=False,
                    estimated=bool(estimated),
                    source=self.name,
                )
                builder.record(signal, published_ns)
                if progress is not None and ((i + 1) % _PROGRESS_EVERY == 0 or i + 1 == len(rows)):
                    progress(i + 1, len(rows))
        left_out = {"rows without zone or time": table.dropped, "hours without a value": len(table.rows) - len(rows)}
        return report_of(writer, left_out)
