import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden bytes again (run with the path tests/contracts)"
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    # The option is unknown where this file was not read before the command line was.
    return bool(request.config.getoption("--update-golden", default=False))
