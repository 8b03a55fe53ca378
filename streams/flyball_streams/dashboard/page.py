"""The live page: panels around one view, patched about once a second."""

from pathlib import Path

from nicegui import ui

from flyball_streams.dashboard.feed import Feed
from flyball_streams.dashboard.panels.anomalies import AnomalyPanel
from flyball_streams.dashboard.panels.capacity import CapacityPanel
from flyball_streams.dashboard.panels.carbon import CarbonPanel
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.demand import DemandPanel
from flyball_streams.dashboard.panels.elements import box
from flyball_streams.dashboard.panels.fleet import FleetPanel
from flyball_streams.dashboard.panels.header import Header, Tiles
from flyball_streams.dashboard.summary import summarise

UPDATE_S = 1.0
_STATIC = Path(__file__).parent / "static"
FAVICON = (_STATIC / "governor.svg").read_text(encoding="utf-8")


def add_page(feed: Feed, mode: str) -> None:
    """Register the page at ``/``; ``mode`` is the actuator's until an outcome tells."""
    style = (_STATIC / "flyball.css").read_text(encoding="utf-8")
    script = (_STATIC / "flyball.js").read_text(encoding="utf-8")

    @ui.page("/", title="Flyball", dark=True, favicon=FAVICON)
    def page() -> None:  # pyright: ignore[reportUnusedFunction]
        ui.add_head_html(f"<style>{style}</style><script>{script}</script>")
        header = Header(mode)
        tiles = Tiles()
        with box("board", "main"):
            fleet = FleetPanel()
            decisions = DecisionPanel()
            demand = DemandPanel()
            carbon = CarbonPanel()
            capacity = CapacityPanel()
            anomalies = AnomalyPanel()

        def update() -> None:
            with feed.lock:
                view = feed.view
                summary = summarise(view)
                header.update(view, summary, feed.link)
                tiles.update(view, summary)
                fleet.update(view)
                demand.update(view)
                carbon.update(view)
                capacity.update(view)
                anomalies.update(view)
                decisions.update(view)

        ui.timer(UPDATE_S, update)
