import os
from pathlib import Path

import pytest

from flyball_actuators.world import stop_reason


def test_no_file_goes_on(tmp_path: Path) -> None:
    assert stop_reason("") == ""
    assert stop_reason(str(tmp_path / "stop")) == ""


def test_the_file_stops_and_gives_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    file.write_text("storage incident\nmore")
    assert stop_reason(str(file)) == f"{file} exists: storage incident; remove it to go on"
    file.write_bytes(b"")
    assert stop_reason(str(file)) == f"{file} exists; remove it to go on"
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    assert "exists" in stop_reason(str(file))
    file.unlink()
    file.mkdir()
    assert "exists" in stop_reason(str(file))


def test_what_cannot_be_known_stops(tmp_path: Path) -> None:
    assert "folder of" in stop_reason(str(tmp_path / "gone" / "stop"))
    (tmp_path / "file").write_text("")
    assert "cannot be read" in stop_reason(str(tmp_path / "file" / "stop"))


def test_an_unreadable_folder_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "lstat", refuse)  # root can read everything, so the mode bits cannot show it
    assert "Permission denied" in stop_reason(str(tmp_path / "stop"))
