"""What each XID requests."""

import typing

import pytest

from flyball_collectors.nvml.events.xid import verdict_of
from flyball_contracts.records.events import Remedy

SCENARIOS = [
    (13, "restart_app"), (31, "restart_app"), (43, "none"), (45, "notify"), (48, "drain"), (63, "none"),
    (64, "reset_gpu"), (74, "drain"), (79, "reboot"), (94, "restart_app"), (95, "reset_gpu"), (119, "reset_gpu"),
    (145, "no_new_work"), (157, "no_new_work"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "remedy"), SCENARIOS)
def test_known_codes(code: int, remedy: str) -> None:
    assert verdict_of(code).remedy == remedy


@pytest.mark.parametrize("code", [0, 1, 999, 2**40])
def test_an_unknown_code_is_never_ignored(code: int) -> None:
    assert verdict_of(code).remedy == "no_new_work"
    assert verdict_of(code).severity != "info"


def test_154_follows_the_driver() -> None:
    remedies = [verdict_of(154, action).remedy for action in (None, 0, 1, 2, 3, 99)]
    assert remedies == ["unknown", "none", "reset_gpu", "reboot", "drain", "unknown"]


def test_the_driver_reports_whether_an_nvlink_error_is_fatal() -> None:
    for code in range(144, 151):
        assert verdict_of(code, fatal=True)[:2] == ("critical", "drain")
        assert verdict_of(code, fatal=False)[:2] == ("warning", "notify")
        assert verdict_of(code)[:2] == ("warning", "no_new_work")
    assert verdict_of(79, fatal=False).remedy == "reboot"  # says nothing of other codes


def test_every_verdict_is_one_that_the_contract_knows() -> None:
    assert {verdict_of(code).remedy for code in range(300)} <= set(typing.get_args(Remedy))
