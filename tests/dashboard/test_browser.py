"""The page in a real browser: every panel shows its data, live, on a desktop and on a phone."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.dashboard import scene
from tests.dashboard.serve import serving
from tests.dashboard.shoot import FLAGS, chromium

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.topics import TOPICS
from flyball_streams.broker import EmbeddedBroker

pytestmark = pytest.mark.integration
PARTITIONS = {topic.name: topic.partitions for topic in TOPICS.values()}
WAIT_MS = 30_000
COLOURS = """canvas => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3]) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size;
}"""

PAINTED = """() => {
  let painted = 0;
  for (const canvas of document.querySelectorAll('.fleet canvas')) {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 3; i < data.length; i += 4) painted += data[i] > 0;
  }
  return painted;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no chromium on the PATH; install it from the system's packages (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(PARTITIONS) as broker:
        scene.publish(broker.bootstrap, [scene.message_of(item) for item in scene.scene()])
        yield broker


@pytest.fixture(scope="module")
def url(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(broker.bootstrap, tmp_path_factory.mktemp("dashboard") / "work") as url:
        yield url


class Watched:
    """A page, with every address that it asked for and every error that it wrote."""

    def __init__(self, browser: Browser, url: str, width: int, height: int) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(WAIT_MS)
        self.hosts: set[str | None] = set()
        self.errors: list[str] = []
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.on("websocket", lambda channel: self._ask(channel.url))
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url)

    def _ask(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("data", "blob"):
            self.hosts.add(parts.hostname)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def close(self) -> None:
        self.page.close()
        assert self.hosts == {"127.0.0.1"}
        assert self.errors == []


@pytest.fixture
def desktop(browser: Browser, url: str) -> Iterator[Page]:
    watched = Watched(browser, url, 1440, 900)
    yield watched.page
    watched.close()


@pytest.fixture
def phone(browser: Browser, url: str) -> Iterator[Page]:
    watched = Watched(browser, url, 390, 844)
    yield watched.page
    watched.close()


def test_every_panel_shows_its_data(desktop: Page) -> None:
    expect(desktop.locator(".tile").first).to_contain_text("384", timeout=WAIT_MS)
    expect(desktop.locator(".tiles")).to_contain_text("kW")
    expect(desktop.locator(".mode")).to_have_text("mode: dry run")
    expect(desktop.locator(".cells")).to_contain_text("384 GPUs")
    words = re.compile("384 GPUs, .*1 failing, 1 straggling, 2 anomalous")
    expect(desktop.locator(".map")).to_have_attribute("aria-label", words)
    first = desktop.locator(".card").first
    expect(first).to_contain_text("demand will pass the ready capacity in 45 s")
    expect(first.locator(".outcome")).to_have_text("accepted, dry run")
    expect(desktop.locator(".outcome.refused")).to_have_text("refused: blast radius")
    expect(desktop.locator(".badge")).to_have_text(["Scale", "Migrate", "Preempt", "Scale", "Scale"])
    expect(desktop.locator(".plans")).to_contain_text("nightly-embed saves 46 %")
    expect(desktop.locator(".row-odd:visible")).to_have_count(5)
    expect(desktop.locator(".odd")).to_contain_text("temperature (gpu) 91 °C, expected 64 °C")
    rows = desktop.locator(".capacity .row-cap:not(.titles):visible")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text(
        re.compile("chat-70b.*199.*learned.*±25 %.*±40 %.*±12 %.*±4 %.*±5 %.*1.6 min.*9 me")
    )
    expect(rows.last).to_contain_text(re.compile("vision-api.*owner.*not measured yet"))
    for panel in (".fleet", ".demand", ".carbon"):
        canvas = desktop.locator(f"{panel} canvas").first
        canvas.wait_for()
        assert canvas.evaluate(COLOURS) > 8, panel


def test_the_heat_map_tells_what_is_under_the_pointer(desktop: Page) -> None:
    canvas = desktop.locator(".fleet canvas").first
    canvas.wait_for()
    expect(desktop.locator(".tile").first).to_contain_text("384", timeout=WAIT_MS)
    desktop.wait_for_function("document.querySelector('.chart-fleet').clientHeight > 100")
    canvas.hover(position={"x": 6, "y": 27})  # the first GPU of the first zone
    tip = desktop.locator(".fleet .fb-tip")
    expect(tip).to_contain_text("GPU 0")
    expect(tip).to_contain_text("pretrain-llm")


def test_the_reader_picks_a_workload(desktop: Page) -> None:
    expect(desktop.locator(".facts:not(.advice)")).to_contain_text("6 of 6", timeout=WAIT_MS)
    desktop.locator(".pick").click()
    desktop.get_by_role("option", name="pretrain-llm").click()
    expect(desktop.locator(".facts:not(.advice)")).to_contain_text("busy GPUs")
    expect(desktop.locator(".facts:not(.advice)")).to_contain_text("22 of 22")


def test_a_decision_appears_while_the_page_is_open(desktop: Page, broker: EmbeddedBroker) -> None:
    expect(desktop.locator(".card")).not_to_have_count(0, timeout=WAIT_MS)
    first = desktop.locator(".card").first
    first.locator("summary").click()
    expect(first.locator(".proof")).to_contain_text("demand forecast, 95 %")
    before = desktop.locator(".card").count()
    reason = "Move it away: <img src=x onerror=\"console.error('ran')\"> is what the record says."
    migrate = scene.decisions()[1]
    fresh = replace(migrate, id="fresh", time_ns=scene.NOW - NS_PER_S, reason=reason)
    scene.publish(broker.bootstrap, [scene.message_of(fresh)])
    expect(desktop.locator(".card")).to_have_count(before + 1, timeout=WAIT_MS)
    top = desktop.locator(".card").first
    expect(top.locator(".reason")).to_have_text(reason)  # as text, not as an element
    expect(top.locator(".outcome")).to_have_text("awaiting outcome")
    (outcome, *_) = scene.outcomes([fresh])
    scene.publish(broker.bootstrap, [scene.message_of(outcome)])
    expect(top.locator(".outcome")).to_have_text("accepted, dry run", timeout=WAIT_MS)
    expect(desktop.locator(".card").nth(1).locator(".proof")).to_be_visible()  # what was open stays open


def test_a_lost_broker_is_told_on_the_page(desktop: Page, broker: EmbeddedBroker) -> None:
    expect(desktop.locator(".link")).to_contain_text("live", timeout=WAIT_MS)
    broker.set_down()
    try:
        expect(desktop.locator(".banner")).to_contain_text(f"No broker answers at {broker.bootstrap}", timeout=WAIT_MS)
    finally:
        broker.set_up()
    expect(desktop.locator(".banner")).to_be_hidden(timeout=WAIT_MS)


def test_a_phone_does_not_scroll_sideways(phone: Page) -> None:
    expect(phone.locator(".card")).not_to_have_count(0, timeout=WAIT_MS)
    phone.locator(".carbon canvas").first.wait_for()
    expect(phone.locator(".capacity .row-cap:visible").first).to_contain_text("cold start P90")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    outside = phone.evaluate(
        "[...document.querySelectorAll('.panel *, .tile *, .top *')]"
        ".filter(e => e.offsetParent && e.getBoundingClientRect().right > 391).map(e => e.className).slice(0, 5)"
    )
    assert outside == []


def test_ten_thousand_gpus_stay_painted_while_they_change(browser: Browser, tmp_path: Path) -> None:
    fleet = scene.Fleet(nodes=1250)
    with EmbeddedBroker(PARTITIONS) as big, serving(big.bootstrap, tmp_path / "work") as url:
        scene.publish(big.bootstrap, [scene.message_of(item) for item in scene.scene(fleet)])
        watched = Watched(browser, url, 1440, 900)
        page = watched.page
        expect(page.locator(".tile").first).to_contain_text("10,000", timeout=WAIT_MS)
        page.wait_for_function("document.querySelector('.chart-fleet').clientHeight > 100")
        page.wait_for_timeout(1500)
        settled = page.evaluate(PAINTED)
        assert settled > 10_000 * 3 * 3  # at least three pixels square for each
        for tick in range(200, 204):
            scene.publish(big.bootstrap, [scene.message_of(frame) for frame in scene.frames(fleet, [tick])])
            for _ in range(8):
                page.wait_for_timeout(100)
                assert page.evaluate(PAINTED) > 0.98 * settled
        watched.close()


def test_an_empty_fleet_says_what_is_awaited(browser: Browser, tmp_path: Path) -> None:
    with EmbeddedBroker(PARTITIONS) as empty, serving(empty.bootstrap, tmp_path / "work") as url:
        watched = Watched(browser, url, 1440, 900)
        topics = {
            "fleet": "inventory",
            "demand": "demand",
            "carbon": "signals",
            "feed": "decisions",
            "odd": "insights",
        }
        for panel, topic in topics.items():
            words = watched.page.locator(f".{panel} .empty")
            expect(words).to_be_visible(timeout=WAIT_MS)
            expect(words).to_contain_text(f"flyball.{topic}.v1")
        watched.close()
