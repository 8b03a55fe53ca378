"""Cost and results of the cell since it started."""

import numpy as np
from msgspec.structs import replace

from flyball_contracts.ids import record_id
from flyball_contracts.records import Account, WorkloadAccount
from flyball_contracts.records.accounts import Scenario
from flyball_simulator.cell.plant import Plant, Step
from flyball_simulator.hardware.gpus import Column
from flyball_simulator.signals import carbon_now

J_PER_KWH = 3.6e6
CARBON_EVERY_S = 60.0


class Meter:
    """Sums up one plant, tick by tick.

    - GPU-hours: GPUs that a replica holds, from its start until it has released them, busy or not.
    - USD: for machines of the configuration, the price of the GPUs that are held (a GPU's share of its node's price);
      machines that were bought cost their full price from arrival to return. A pool without a price costs nothing.
      Electricity is part of a machine's price.
    - Energy: all present GPUs, also idle ones; no hosts, no cooling.
    - Carbon: that energy at the true intensity of each GPU's zone at that time, not at the published forecast.
    - Requests: arrivals at services; requests in time waited at most the objective's delay.
    - Lost GPU-hours: work since the last checkpoint that a stop discarded, and GPUs that a gang held while it waited
      for a dead one. A slower pace because of a straggler does not count.
    - Useful GPU-hours: what healthy GPUs at full load need for the served requests and for job work that was not lost.
      Notebooks have none.
    """

    def __init__(self, plant: Plant, scenario: Scenario) -> None:
        self._plant = plant
        self._scenario: Scenario = scenario
        self._gpu_s = np.zeros(len(plant.specs))
        self._usd = self._energy_j = self._carbon_g = 0.0
        self._minute, self._intensity = -1, np.zeros(len(plant.config.zones))

    def add(self, step: Step) -> None:
        """Add one tick."""
        plant, dt_s = self._plant, step.moment.dt_s
        site, machines = plant.site, plant.machines
        rows = step.rows
        held = np.bincount(rows.workload, rows.gpus, len(plant.specs))
        self._gpu_s += held * dt_s
        present = machines.present[site.node_of]
        paid = np.where(machines.extra[site.node_of], present, plant.placement.owner >= 0)
        self._usd += float(site.price_usd_per_s[paid].sum()) * dt_s
        energy_j = np.where(present, np.nan_to_num(step.gpu[Column.ENERGY]), 0.0)
        self._energy_j += float(energy_j.sum())
        minute = int(max(step.moment.t_s, 0.0) // CARBON_EVERY_S)
        if minute != self._minute:
            self._minute, self._intensity = minute, carbon_now(plant.config, minute * CARBON_EVERY_S)
        by_zone = np.bincount(site.zone_of, energy_j, len(self._intensity))
        self._carbon_g += float(by_zone @ self._intensity) / J_PER_KWH

    def account(self) -> Account:
        """Totals up to the last tick."""
        plant = self._plant
        services = plant.services
        of_request = 1.0 / services.per_request
        config, time_ns = plant.config, plant.clock_ns
        return Account(
            id=record_id("Account", config.cell, self._scenario, plant.start_ns, time_ns),
            subject=config.cell,
            cell=config.cell,
            scenario=self._scenario,
            since_ns=max(plant.start_ns - plant.period_ns, 0),
            time_ns=time_ns,
            gpu_h=float(self._gpu_s.sum()) / 3600.0,
            cost_usd=self._usd,
            energy_j=self._energy_j,
            carbon_g=self._carbon_g,
            requests=float((services.arrived * of_request).sum()),
            in_time=float((services.in_time * of_request).sum()),
            queued=float((services.queued * of_request).sum()),
            lost_gpu_h=float(plant.lost_gpu_s.sum()) / 3600.0,
            useful_gpu_h=float(sum(map(self._useful_gpu_h, range(len(plant.specs))))),
            workloads=tuple(self._part(w) for w in range(len(plant.specs))),
        )

    def _part(self, w: int) -> WorkloadAccount:
        plant, services, batches = self._plant, self._plant.services, self._plant.batches
        part = WorkloadAccount(
            workload=plant.specs[w].workload,
            replicas=plant.placement.wanted[w],
            ready=plant.ready(w),
            gpu_h=float(self._gpu_s[w]) / 3600.0,
            lost_gpu_h=float(plant.lost_gpu_s[w]) / 3600.0,
            useful_gpu_h=self._useful_gpu_h(w),
        )
        if w < services.count:
            work = np.array([services.arrived[w], services.in_time[w], services.queued[w]]) / services.per_request[w]
            requests, in_time, queued = work.tolist()
            delay_s = float(services.wait_s[w])
            return replace(part, requests=requests, in_time=in_time, queued=queued, delay_s=delay_s)
        if w >= batches.first:
            progress = float(batches.progress[w - batches.first])
            return replace(part, progress=progress, in_time_end=self._kept(w))
        return part

    def _useful_gpu_h(self, w: int) -> float:
        plant = self._plant
        services, trainings, batches = plant.services, plant.trainings, plant.batches
        if w < services.count:
            done_s = services.served_s[w]
        elif w - trainings.first < trainings.count:
            done_s = trainings.done_s[w - trainings.first]
        else:
            done_s = batches.done_s[w - batches.first] if w >= batches.first else 0.0
        return float(done_s) * plant.placement.workloads[w].gpus / 3600.0

    def _kept(self, w: int) -> bool | None:
        """Whether a job ended before its deadline; ``None`` while that is open, and without a deadline."""
        deadline_ns, ended_ns = self._plant.specs[w].deadline_ns, self._plant.ended_ns.get(w)
        if deadline_ns is None:
            return None
        if ended_ns is not None:
            return ended_ns <= deadline_ns
        return False if self._plant.clock_ns > deadline_ns else None
