"""Pages opened in headless Chromium; skipped, with a reason, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# --no-sandbox for root in a container, the others so that the browser itself sends nothing.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")
MARKS = ", ".join(
    f"svg .mark-{kind}" for kind in ("rect path", "symbol path", "line path", "rule line")
)
POINTED = "svg .mark-symbol > path, svg .mark-rect > path"
MOST_TRIED = 10  # marks that the mouse is moved to
LOOKS = 5  # for what a mark tells, some milliseconds apart: machines may be busy
READY = "html[data-ready=yes]"
CUT = """() => [...document.querySelectorAll("figure.drawn-here svg text")].filter(text => {
    const own = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();
    const shown = getComputedStyle(text).opacity > 0;
    return shown && (own.right > all.right + 1 || own.left < all.left - 1);
}).map(text => text.textContent)"""  # words of charts that do not fit into them
SQUEEZED = """() => [...document.querySelectorAll(".stacks")].filter(
    place => place.scrollWidth > place.clientWidth).map(place => place.ariaLabel)"""
PATIENCE = 60_000  # milliseconds: machines may be busy


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


class Opened:
    """A page in the browser, and what it said and asked for while it opened."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light", width: int = 1200) -> None:
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(READY, timeout=PATIENCE)

    def close(self) -> None:
        self.context.close()


def check_opens(browser: Any, path: Path, scheme: str, width: int) -> None:
    """No word on the console, no request, every chart drawn, nothing wider than the window or cut
    off, and axe-core finds nothing to mend."""
    from axe_playwright_python.sync_playwright import Axe

    opened = Opened(browser, path, scheme, width)
    page = opened.page
    assert not opened.said
    outside = [url for url in opened.asked if not url.startswith(("data:", path.as_uri()))]
    assert not outside
    figures = page.locator("figure.drawn-here")
    assert figures.count() == page.locator("figure.drawn-here[data-drawn=yes]").count() > 0
    for place in range(figures.count()):
        drawn = figures.nth(place)
        assert drawn.locator(MARKS).count() > 0, drawn.get_attribute("id")
        told = drawn.locator("[role='graphics-document']").first.get_attribute("aria-label")
        assert drawn.locator("h3").inner_text() in told
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.evaluate(CUT)
    assert not page.evaluate(SQUEEZED)  # tables whose cells stand below each other on a phone
    results = Axe().run(page)
    assert not results.response["violations"], results.generate_report()
    opened.close()


def check_answers(browser: Any, path: Path) -> None:
    """The mouse is told a value, series go off, data is listed, a table sorts, the theme turns."""
    opened = Opened(browser, path)
    page = opened.page
    for figure in page.locator("figure.drawn-here").all():
        figure.scroll_into_view_if_needed()
        assert hovered(page, figure), figure.get_attribute("id")
    for button in page.locator(".legend button").all()[:1]:
        figure = page.locator(f"#{button.locator('xpath=ancestor::ul').get_attribute('data-of')}")
        marks = "svg [role='graphics-symbol']"
        shown = figure.locator(marks).count()
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        fewer = "([marks, most]) => document.querySelectorAll(marks).length < most"
        within = f"#{figure.get_attribute('id')} {marks}"
        page.wait_for_function(fewer, arg=[within, shown], timeout=PATIENCE)
    details = page.locator("figure details.data").first
    details.locator("summary").click()
    details.locator("tbody tr").first.wait_for(timeout=PATIENCE)  # made when it is opened
    with page.expect_download() as download:
        details.locator("button").click()
    listed = Path(download.value.path()).read_text().splitlines()
    assert len(listed) > details.locator("tbody tr").count()  # with a line of heads
    for table in page.locator("table.sorts").all():
        check_sorts(table)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert not opened.said
    opened.close()


def hovered(page: Any, figure: Any) -> bool:
    """Whether some mark of a chart tells a value."""
    marks = figure.locator(POINTED)
    for place in range(min(marks.count(), MOST_TRIED)):
        box = marks.nth(place).bounding_box()
        if box is None:
            continue
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tooltip = page.locator("#vg-tooltip-element.visible")
        for _ in range(LOOKS):
            if tooltip.count() and tooltip.inner_text().strip():
                return True
            page.wait_for_timeout(50)
    return False


def check_sorts(table: Any) -> None:
    """By each column, up and down."""
    for place, head in enumerate(table.locator("th").all()):
        orders = []
        for _ in range(2):
            head.locator("button").click()
            cells = table.locator(f"tbody td:nth-child({place + 1})")
            values = cells.evaluate_all("all => all.map(td => td.dataset.value ?? td.textContent)")
            orders.append((head.get_attribute("aria-sort"), values))
        (up, rising), (down, falling) = orders
        assert (up, down) == ("ascending", "descending")
        if all(value.replace(".", "", 1).replace("-", "", 1).isdigit() for value in rising):
            assert [float(own) for own in rising] == sorted(float(own) for own in rising)
            assert [float(own) for own in falling] == sorted(map(float, rising), reverse=True)
        else:
            assert sorted(rising) == sorted(falling)
