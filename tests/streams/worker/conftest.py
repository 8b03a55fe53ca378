import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.streams.worker.rig import Rig

os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture
def rig(broker: Broker, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Rig]:
    """A rig on each kind of broker."""
    with Rig(broker, tmp_path, unique("worker"), {}) as made:
        yield made


@pytest.fixture
def embedded_rig(tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Callable[..., Rig]]:
    """Make rigs on embedded brokers; takes settings of the worker."""
    with ExitStack() as stack:

        def make(**worker: Any) -> Rig:
            broker = stack.enter_context(EmbeddedBroker({}))
            return stack.enter_context(Rig(broker, tmp_path, unique("worker"), worker))

        yield make
