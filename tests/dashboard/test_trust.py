"""What the page says of a workload's forecast."""

from msgspec.structs import replace
from tests.dashboard.scenes import scene

from flyball_contracts.records import Forecast, WorkloadSpec
from flyball_streams.dashboard.state.demand import Workload


def test_why_there_is_no_forecast() -> None:
    items = scene.scene()
    spec = next(item for item in items if isinstance(item, WorkloadSpec))
    forecast = next(item for item in items if isinstance(item, Forecast))
    assert Workload("nobody").trust == "none without a specification"
    assert Workload("new", spec=spec).trust == "none yet"
    assert Workload("known", spec=spec, forecast=replace(forecast, trusted=True)).trust == "trusted"
    assert Workload("known", spec=spec, forecast=replace(forecast, trusted=False)).trust == "not trusted"
