"""The closing table: the same time with and without Flyball."""

import io

from msgspec.structs import replace
from rich.console import Console

from flyball_cli.demo.worth import comparison, deadlines_kept, in_time
from flyball_contracts.records import Account, WorkloadAccount


def account(scenario: str = "actual", **changes: object) -> Account:
    plain = Account(
        id="a",
        subject="fleet",
        cell="fleet",
        scenario="actual",
        since_ns=0,
        time_ns=7_200_000_000_000,
        gpu_h=100.0,
        cost_usd=400.0,
        energy_j=3.6e8,
        carbon_g=25_000.0,
        requests=1_010.0,
        in_time=990.0,
        queued=10.0,
        lost_gpu_h=0.5,
    )
    return replace(plain, scenario=scenario, **changes)


def shown(**accounts: Account) -> str:
    table = comparison(accounts)
    assert table is not None
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_requests_that_still_wait_are_neither_in_time_nor_late() -> None:
    assert in_time(account()) == 0.99
    assert in_time(account(requests=5.0, in_time=0.0, queued=5.0)) is None


def test_the_table_reports_what_changed() -> None:
    text = shown(actual=account(), baseline=account("baseline", gpu_h=125.0, in_time=950.0, carbon_g=50_000.0))
    assert "2.00 h of event time" in text
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines()}
    assert lines["requests in time"] == "requests in time 99.00 95.00 +4.00 points %"
    assert lines["GPU-hours held"] == "GPU-hours held 100.0 125.0 -20.0 % h"
    assert lines["energy"] == "energy 100.0 100.0 +0.0 % kWh"
    assert lines["carbon"] == "carbon 25.0 50.0 -50.0 % kgCO2e"


def test_what_does_more_work_may_use_more() -> None:
    actual = account(energy_j=4e8, useful_gpu_h=100.0)
    text = shown(actual=actual, baseline=account("baseline", energy_j=3.6e8, useful_gpu_h=80.0))
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines()}
    assert lines["energy"] == "energy 111.1 100.0 +11.1 % kWh"
    assert lines["useful work"] == "useful work 100.0 80.0 +25.0 % GPU-h"
    assert lines["energy of useful work"] == "energy of useful work 1.111 1.250 -11.1 % kWh/GPU-h"


def test_deadlines_are_counted_once_they_are_decided() -> None:
    def job(name: str, ended: bool | None) -> WorkloadAccount:
        return WorkloadAccount(workload=name, replicas=1, ready=1, gpu_h=1.0, in_time_end=ended)

    actual = account(workloads=(job("a", True), job("b", True), job("c", None)))
    assert deadlines_kept(actual) == (2, 2)
    text = shown(actual=actual, baseline=account("baseline", workloads=(job("a", False), job("b", True))))
    (line,) = (" ".join(line.split()) for line in text.splitlines() if line.startswith("deadlines"))
    assert line == "deadlines kept 2 of 2 1 of 2 jobs"
    waiting = account(workloads=(job("a", None),))
    text = shown(actual=waiting, baseline=account("baseline", workloads=(job("a", True),)))
    assert "deadlines kept none due yet 1 of 1 jobs" in " ".join(text.split())


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    assert " 100.0 - h" in " ".join(shown(actual=account()).split())
    assert comparison({}) is None
