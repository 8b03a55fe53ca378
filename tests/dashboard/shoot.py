"""Take a screenshot of a running dashboard: ``python tests/dashboard/shoot.py URL OUT.png [--width 1440]``."""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium() -> str | None:
    """Path of the system's Chromium, or ``None``."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def settle(page: Page) -> None:
    """Wait until the charts are drawn and decisions are listed; a page that stays empty is shown as it is."""
    page.wait_for_selector(".chart canvas", state="attached", timeout=15_000)
    page.wait_for_timeout(3_000)


def shoot(
    url: str, out: Path, *, width: int, height: int, full: bool, wait_s: float = 0.0, theme: str = "dark"
) -> None:
    """Write a PNG of the page, at two device pixels per CSS pixel on a phone and one elsewhere."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=2 if width < 600 else 1,
            color_scheme="light" if theme == "light" else "dark",
        )
        page.goto(url)
        settle(page)
        page.wait_for_timeout(1000 * wait_s)
        page.screenshot(path=str(out), full_page=full)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--viewport-only", action="store_true", help="only what is visible without scrolling")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait before the shot")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    given = parser.parse_args()
    shoot(
        given.url,
        given.out,
        width=given.width,
        height=given.height,
        full=not given.viewport_only,
        wait_s=given.wait,
        theme=given.theme,
    )
