"""The page in a real browser: every panel shows its data, live, on a desktop and on a phone."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.brokers.embedded import EmbeddedBroker
from tests.dashboard.scenes import scene
from tests.dashboard.serve import serving
from tests.dashboard.shoot import FLAGS, chromium

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.topics import TOPICS
from flyball_streams.dashboard.state.reports import report_id

pytestmark = pytest.mark.integration
PARTITIONS = {topic.name: topic.partitions for topic in TOPICS.values()}
ANSWERS = "first token after 0.42 s, 0.031 s from token to token, KV cache 62 % full"
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
    """A page, with every address that it requested and every error that it wrote."""

    def __init__(
        self, browser: Browser, url: str, width: int, height: int, *, light: bool = False, zone: str = "Asia/Tokyo"
    ) -> None:
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="light" if light else "dark",
            timezone_id=zone,
        )
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
    expect(desktop.locator(".strip")).to_contain_text("384 on 48 nodes", timeout=WAIT_MS)
    expect(desktop.locator(".strip")).to_contain_text("kW")
    expect(desktop.locator(".mode")).to_have_text("mode: live")
    expect(desktop.locator(".banner.dry")).to_be_hidden()
    expect(desktop.locator(".cells")).to_contain_text("384 GPUs")
    words = re.compile("384 GPUs, .*1 failing, 1 straggling, 2 anomalous")
    expect(desktop.locator(".map")).to_have_attribute("aria-label", words)
    expect(desktop.locator(".plans")).to_contain_text("nightly-embed saves 46 %")
    expect(desktop.locator(".row-odd:visible")).to_have_count(3)
    expect(desktop.locator(".odd")).to_contain_text("PCIe fault, by xid 79 (GPU has fallen off the bus)")
    expect(desktop.locator(".row-odd:visible").filter(has_text="silenced by maintenance")).to_have_count(1)
    expect(desktop.locator(".row-odd:visible").filter(has_text="row-2/r04")).to_have_count(1)
    rows = desktop.locator(".capacity .row-cap:not(.titles):visible")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text(
        re.compile("chat-70b.*199.*measured.*±25 %.*±40 %.*±12 %.*±4 %.*±5 %.*1.6 min.*9 me")
    )
    expect(rows.last).to_contain_text(re.compile("vision-api.*owner.*not measured yet"))
    for panel in (".fleet", ".demand", ".carbon", ".figure-share", ".figure-queued", ".figure-delay_s"):
        canvas = desktop.locator(f"{panel} canvas").first
        canvas.wait_for()
        assert canvas.evaluate(COLOURS) > 8, panel


def test_first_come_service_and_cost_beside_the_day_without_flyball(desktop: Page) -> None:
    share = desktop.locator(".figure-share")
    expect(share).to_contain_text("99.05 %", timeout=WAIT_MS)
    expect(share).to_contain_text("without Flyball 86.5 %")
    expect(share.locator(".change.is-better")).to_have_text("+12.6 pp")
    cost = desktop.locator(".worth .tiles .tile")
    expect(cost).to_have_count(4)
    for tile, words in zip(cost.all(), ("$6,024", "966 kWh", "233 kgCO₂e", "1,746"), strict=True):
        expect(tile).to_contain_text(words)
        expect(tile).to_contain_text("without Flyball")
    above = desktop.evaluate("document.querySelector('.worth').getBoundingClientRect().bottom")
    assert above < desktop.evaluate("document.querySelector('.board').getBoundingClientRect().top")


def test_what_repeats_is_one_row_and_can_be_filtered(desktop: Page) -> None:
    expect(desktop.locator(".badge")).to_have_text(["Scale", "Migrate", "Preempt", "Scale", "Scale"], timeout=WAIT_MS)
    first, last = desktop.locator(".card").first, desktop.locator(".card").last
    expect(first).to_contain_text("demand will pass the ready capacity in 45 s")
    expect(first.locator(".second .outcome")).to_have_text("running")
    expect(last.locator(".second .outcome")).to_have_text("refused: blast radius")
    expect(last.locator(".times")).to_have_text("\N{MULTIPLICATION SIGN}3")
    expect(last.locator(".at").first).to_have_text("13:00:24\N{EN DASH}13:01:26")
    last.locator("summary").click()
    expect(last.locator(".member")).to_have_count(3)
    for label, option, left in (("Outcome", "done", 4), ("Type", "Scale", 2), ("Workload", "search-embed", 1)):
        desktop.locator(f".filters [aria-label='{label}']").click()
        desktop.get_by_role("option", name=option, exact=True).click()
        expect(desktop.locator(".card")).to_have_count(left)


def test_a_decision_has_its_own_view_with_its_life_and_what_was_observed(desktop: Page) -> None:
    expect(desktop.locator(".card")).not_to_have_count(0, timeout=WAIT_MS)
    desktop.locator(".card").first.locator("summary").click()
    desktop.locator(".card").first.locator(".member a").last.click()
    expect(desktop).to_have_url(re.compile(f"/decisions/{scene.decisions()[4].id}$"))
    expect(desktop.locator(".title h2")).to_have_text("Scale chat-70b: 4 → 6 replicas", timeout=WAIT_MS)
    expect(desktop.locator(".lead")).to_contain_text("requests wait longer than their objective")
    life = desktop.locator(".life tbody tr")
    expect(life).to_have_text(
        [
            re.compile("Decided by quantile-sizing with confidence 92 %"),
            re.compile("Accepted by actuator-1 for the platform"),
            re.compile("The platform works on it"),
            re.compile("Done: the platform shows the effect, 41 s after the decision"),
        ]
    )
    expect(desktop.locator(".effect")).to_contain_text(re.compile("replicas asked for.*4.*6.*6"))
    expect(desktop.locator(".effect")).to_contain_text(re.compile("carbon.*0.96 kgCO₂e/h.*0.883 kgCO₂e/h"))
    expect(desktop.locator(".rests")).to_contain_text("demand forecast, 95 %")
    assert desktop.locator(".demand canvas").first.evaluate(COLOURS) > 8


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"gpus/{scene.device_id(5, 3)}", ["gpu-0005 · GPU 3", "pretrain-llm", "H100-SXM", "XID 79", "Migrate"]),
        (f"nodes/{scene.node_name(5)}", ["gpu-0005", "SE-SE3", "failing", "XID 79", "Migrate"]),
        ("workloads/chat-70b", ["inference", "chat-70b", "without Flyball 86.5 %", "gpu-0024", "running", ANSWERS]),
        (
            f"reports/{report_id(scene.device_id(5, 3), 'failing')}",
            ["failing on gpu-0005 · GPU 3", "3 times", "errors (uncorrected) 14", "Migrate"],
        ),
        (
            "incidents/3f2ac0de3f2ac0de",
            [
                "taken by",
                "ann@desk",
                "GPU has fallen off the bus",
                "hang",
                "gpu-0006",
                "Migrate",
                "done",
                "is cordoned",
            ],
        ),
        ("incidents/5ac40de05ac40de0", ["rack row-2/r04", "network", "gpu-0019", "waits for a person"]),
        (f"nodes/{scene.node_name(17)}", ["watched", "waits for a person", "2 nodes of the cell are cordoned already"]),
        ("decisions/none", ["No decision none is known"]),
        ("gpus/none", ["not in the fleet"]),
        ("workloads/a%2Fb", ["a/b", "not known"]),
    ],
)
def test_each_thing_has_its_own_view(browser: Browser, url: str, path: str, words: list[str]) -> None:
    watched = Watched(browser, f"{url}{path}", 1280, 900, light=True)
    page = watched.page
    for word in words:
        expect(page.locator(".nicegui-content")).to_contain_text(word, timeout=WAIT_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    watched.close()


def test_a_click_on_a_gpu_an_incident_or_a_mark_opens_its_view(desktop: Page) -> None:
    canvas = desktop.locator(".fleet canvas").first
    canvas.wait_for()
    desktop.wait_for_function("document.querySelector('.chart-fleet').clientHeight > 100")
    desktop.wait_for_timeout(1500)
    canvas.click(position={"x": 6, "y": 27})
    expect(desktop).to_have_url(re.compile("/gpus/GPU-0016-0$"), timeout=WAIT_MS)
    expect(desktop.locator(".known")).to_contain_text("pretrain-llm", timeout=WAIT_MS)
    desktop.locator(".known a", has_text="pretrain-llm").click()
    expect(desktop).to_have_url(re.compile("/workloads/pretrain-llm$"))
    desktop.locator(".back").click()
    desktop.locator(".row-odd:visible .who").nth(0).click()
    expect(desktop.locator(".title h2")).to_have_text("pcie: gpu-0005 · GPU 3", timeout=WAIT_MS)
    expect(desktop.locator(".answer")).to_contain_text("flyball incidents ack 3f2ac0de3f2a")
    desktop.locator(".back").click()
    expect(desktop.locator(".demand .sub")).to_have_text("2 decisions in the window", timeout=WAIT_MS)
    desktop.wait_for_timeout(1500)
    x, y = desktop.locator(".chart-demand").evaluate(
        """element => {
          const chart = getElement(Number(element.id.slice(1))).chart;
          const series = chart.getOption().series.findIndex(one => one.name === 'decisions');
          return chart.convertToPixel({seriesIndex: series}, chart.getOption().series[series].data[1].value);
        }"""
    )
    desktop.locator(".demand canvas").first.click(position={"x": x, "y": y})
    expect(desktop).to_have_url(re.compile(f"/decisions/{scene.decisions()[4].id}$"), timeout=WAIT_MS)


def test_the_reader_chooses_colours_and_clock(browser: Browser, url: str) -> None:
    watched = Watched(browser, url, 1440, 900, light=True)
    page = watched.page
    ground = "getComputedStyle(document.body).backgroundColor"
    expect(page.locator(".cells")).to_contain_text("13:03:20 UTC", timeout=WAIT_MS)
    assert page.evaluate(ground) == "rgb(238, 241, 246)"
    page.locator(".choose-theme").click()
    expect(page.locator(".choose-theme")).to_have_text("light")
    assert page.evaluate(ground) == "rgb(11, 15, 23)"
    page.locator(".choose-zone").click()
    expect(page.locator(".cells")).to_contain_text("22:03:20 local time", timeout=WAIT_MS)
    expect(page.locator(".card .at").first).to_contain_text("22:03:14")
    page.goto(f"{url}workloads/chat-70b")  # the choice stays
    expect(page.locator(".choose-zone")).to_have_text("local", timeout=WAIT_MS)
    assert page.evaluate(ground) == "rgb(11, 15, 23)"
    watched.close()


def test_the_heat_map_reports_what_is_under_the_pointer(desktop: Page) -> None:
    canvas = desktop.locator(".fleet canvas").first
    canvas.wait_for()
    expect(desktop.locator(".strip")).to_contain_text("384", timeout=WAIT_MS)
    desktop.wait_for_function("document.querySelector('.chart-fleet').clientHeight > 100")
    canvas.hover(position={"x": 6, "y": 27})  # the first GPU of the first zone
    tip = desktop.locator(".fleet .fb-tip")
    expect(tip).to_contain_text("GPU 0")
    expect(tip).to_contain_text("pretrain-llm")


def test_the_reader_picks_a_workload(desktop: Page) -> None:
    expect(desktop.locator(".demand .facts:not(.advice)")).to_contain_text("6 of 6", timeout=WAIT_MS)
    desktop.locator(".demand [aria-label='Workload']").click()
    desktop.get_by_role("option", name="pretrain-llm").click()
    expect(desktop.locator(".demand .facts:not(.advice)")).to_contain_text("busy GPUs")
    expect(desktop.locator(".demand .facts:not(.advice)")).to_contain_text("22 of 22")
    desktop.locator(".demand [aria-label='Window']").click()
    desktop.get_by_role("option", name="all that is known").click()
    expect(desktop.locator(".demand .pick").first).to_contain_text("all that is known")


def test_a_decision_appears_while_the_page_is_open(desktop: Page, broker: EmbeddedBroker) -> None:
    expect(desktop.locator(".card")).not_to_have_count(0, timeout=WAIT_MS)
    first = desktop.locator(".card").first
    first.locator("summary").click()
    expect(first.locator(".members")).to_be_visible()
    before = desktop.locator(".card").count()
    reason = "Move it away: <img src=x onerror=\"console.error('ran')\"> is what the record says."
    migrate = scene.decisions()[1]
    fresh = replace(migrate, id="fresh", workload="new-job", time_ns=scene.NOW - NS_PER_S, reason=reason)
    scene.publish(broker.bootstrap, [scene.message_of(fresh)])
    expect(desktop.locator(".card")).to_have_count(before + 1, timeout=WAIT_MS)
    top = desktop.locator(".card").first
    expect(top.locator(".reason")).to_have_text(reason)  # as text, not as an element
    expect(top.locator(".second .outcome")).to_have_text("awaiting outcome")
    (accepted, *_) = scene.outcomes([fresh])
    scene.publish(broker.bootstrap, [scene.message_of(accepted)])
    expect(top.locator(".second .outcome")).to_have_text("accepted", timeout=WAIT_MS)
    expect(desktop.locator(".card").nth(1).locator(".members")).to_be_visible()  # what was open stays open


def test_a_lost_broker_is_reported_on_the_page(desktop: Page, broker: EmbeddedBroker) -> None:
    expect(desktop.locator(".link")).to_contain_text("live", timeout=WAIT_MS)
    broker.set_down()
    try:
        expect(desktop.locator(".banner.lost")).to_contain_text(
            f"No broker answers at {broker.bootstrap}", timeout=WAIT_MS
        )
    finally:
        broker.set_up()
    expect(desktop.locator(".banner.lost")).to_be_hidden(timeout=WAIT_MS)


def test_a_phone_does_not_scroll_sideways(phone: Page) -> None:
    expect(phone.locator(".figure-share")).to_contain_text("99.05 %", timeout=WAIT_MS)
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
        expect(page.locator(".strip")).to_contain_text("10,000 on 1,250 nodes", timeout=WAIT_MS)
        expect(page.locator(".fleet .sub")).to_contain_text("a square is a node")
        page.wait_for_function("document.querySelector('.chart-fleet').clientHeight > 100")
        page.wait_for_timeout(1500)
        settled = page.evaluate(PAINTED)
        assert settled > 1_250 * 9 * 9  # at least nine pixels square for each node
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440
        for tick in range(200, 204):
            scene.publish(big.bootstrap, [scene.message_of(frame) for frame in scene.frames(fleet, [tick])])
            for _ in range(8):
                page.wait_for_timeout(100)
                assert page.evaluate(PAINTED) > 0.98 * settled
        watched.close()


def test_what_was_planned_in_dry_run_never_looks_done(browser: Browser, tmp_path: Path) -> None:
    with EmbeddedBroker(PARTITIONS) as dry, serving(dry.bootstrap, tmp_path / "work") as url:
        items = scene.scene(scene.Fleet(nodes=8), mode="dry_run", accounted=False)
        scene.publish(dry.bootstrap, [scene.message_of(item) for item in items])
        watched = Watched(browser, url, 1280, 900)
        page = watched.page
        expect(page.locator(".banner.dry")).to_contain_text("not carried out", timeout=WAIT_MS)
        expect(page.locator(".mode")).to_have_text("mode: dry run")
        expect(page.locator(".second .was-planned")).to_have_count(4, timeout=WAIT_MS)
        expect(page.locator(".was-done")).to_have_count(0)
        expect(page.locator(".feed")).not_to_contain_text("done")
        expect(page.locator(".since")).to_contain_text("derived from telemetry")
        page.goto(f"{url}decisions/{scene.decisions()[1].id}")
        expect(page.locator(".title .outcome")).to_have_text("planned, not carried out", timeout=WAIT_MS)
        expect(page.locator(".effect")).to_contain_text("not carried out")
        expect(page.locator(".banner.dry").last).to_contain_text("nothing in the fleet changed")
        watched.close()


def test_an_empty_fleet_reports_what_is_awaited(browser: Browser, tmp_path: Path) -> None:
    with EmbeddedBroker(PARTITIONS) as empty, serving(empty.bootstrap, tmp_path / "work") as url:
        watched = Watched(browser, url, 1440, 900)
        expect(watched.page.locator(".since")).to_contain_text("No accounts on flyball.insights.v1", timeout=WAIT_MS)
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


def test_what_is_put_into_the_page_runs_no_script(browser: Browser, url: str) -> None:
    page = browser.new_page()
    page.goto(url)
    expect(page.locator(".strip")).to_contain_text("GPUs", timeout=WAIT_MS)
    page.evaluate(
        """() => {
          document.body.insertAdjacentHTML('beforeend', "<img src='data:,' onerror='window.ran = 1'>");
          const script = document.createElement('script');
          script.textContent = 'window.ran = 2';
          document.body.append(script);
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
    page.close()
