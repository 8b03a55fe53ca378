"""Who an agent is: the same boot and a new epoch at each start."""

import logging
import socket
import threading
from pathlib import Path

import pytest

from flyball_collectors.agent.identity import identify, is_newest, look
from flyball_contracts.config import AgentConfig

NOW_NS = 1_700_000_000_000_000_000


def config(tmp_path: Path, node: str = "n1") -> AgentConfig:
    return AgentConfig(node=node, state_dir=str(tmp_path / "state"))


def test_epochs_count_starts(tmp_path: Path) -> None:
    starts = [identify(config(tmp_path), NOW_NS) for _ in range(3)]
    assert [start.epoch for start in starts] == [NOW_NS, NOW_NS + 1, NOW_NS + 2]
    assert len({start.boot_id for start in starts}) == 1


def test_an_agent_knows_whether_another_has_started_since(tmp_path: Path) -> None:
    first = identify(config(tmp_path), NOW_NS)
    assert is_newest(config(tmp_path), first)
    second = identify(config(tmp_path), NOW_NS)
    assert not is_newest(config(tmp_path), first)
    assert is_newest(config(tmp_path), second)
    assert is_newest(config(tmp_path / "elsewhere"), first), "where nothing is counted nobody is known"


def test_nodes_count_apart_and_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    assert identify(config(tmp_path, "../../n1"), NOW_NS).epoch == NOW_NS
    assert identify(config(tmp_path, "n1"), NOW_NS).epoch == NOW_NS
    assert {file.parent for file in tmp_path.rglob("epoch-*")} == {tmp_path / "state"}


def test_agents_that_start_at_once_get_different_epochs(tmp_path: Path) -> None:
    epochs: list[int] = []
    threads = [
        threading.Thread(target=lambda: epochs.append(identify(config(tmp_path), NOW_NS).epoch)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(NOW_NS, NOW_NS + 8))


@pytest.mark.parametrize("damage", ["", "x", "-4", "9" * 40, "\x00\x00"])
def test_a_damaged_count_goes_on_from_the_clock(tmp_path: Path, damage: str) -> None:
    identify(config(tmp_path), NOW_NS)
    (tmp_path / "state/epoch-n1").write_text(damage)
    assert identify(config(tmp_path), NOW_NS).epoch == NOW_NS
    assert identify(config(tmp_path), NOW_NS).epoch == NOW_NS + 1


def test_a_state_folder_that_cannot_be_is_the_start_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING):
        assert identify(config(tmp_path), NOW_NS).epoch == NOW_NS
    assert "agent.state_dir" in caplog.text


def test_the_default_folder_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert identify(AgentConfig(node="n1"), NOW_NS).epoch == NOW_NS
    assert (tmp_path / "flyball/epoch-n1").read_text() == f"{NOW_NS}\n"


def test_the_boot_id_is_the_kernel_s(tmp_path: Path) -> None:
    kernel = tmp_path / "proc/sys/kernel/random/boot_id"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("b0-07\n")
    assert look(AgentConfig(node="n1", root=str(tmp_path))) == ("n1", "b0-07", 0)
    assert look(AgentConfig(root=str(tmp_path / "nowhere"))) == (socket.gethostname(), "unknown", 0)


def test_the_environment_names_a_node_that_the_configuration_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_NODE", "gpu-7")
    assert look(AgentConfig(root=str(tmp_path))).node == "gpu-7"
    assert look(AgentConfig(node="n1", root=str(tmp_path))).node == "n1"
