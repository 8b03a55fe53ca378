"""One cloud of each kind for all tests here; each test has pools of its own."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.clouds.aws import CREDENTIALS, REGION, Account
from tests.clouds.moto_server import moto_server
from tests.clouds.strict import StrictAws

from flyball_actuators.platforms.pools import errors, platform as pool_platform


@pytest.fixture(scope="module")
def aws_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        proxy = StrictAws(url)
        try:
            yield Account(url, proxy)
        finally:
            proxy.close()


@pytest.fixture
def aws(aws_account: Account, quick: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account whose proxy makes no faults but those that the test asks for."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(errors, "BACKOFF_S", (0.001, 0.01))

    def session(region_name: str) -> Any:
        assert region_name == REGION
        return aws_account.session

    monkeypatch.setattr("boto3.Session", session)  # each new one would read megabytes of models
    aws_account.proxy.calm()
    yield aws_account
    aws_account.proxy.calm()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cloud does not show counts as never done after a moment."""
    monkeypatch.setattr(pool_platform, "SETTLE_S", 0.05)
