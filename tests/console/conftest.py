"""A browser for the tests of pages. A test fails if its page logs an error or sends a request to another server."""

from collections.abc import Iterator

import pytest
from browsing import CHROMIUM
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 860})
    opened.set_default_timeout(90_000)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page. The test fails if the page logs an error or opens a dialog, or if it sends a request to anything but the
    console.
    """
    complaints: list[str] = []
    opened = context.new_page()
    opened.on("console", lambda each: _note(each, complaints))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: _refuse(dialog, complaints))
    opened.on("request", lambda request: None if "127.0.0.1" in request.url else complaints.append(request.url))
    yield opened
    assert complaints == []


def _note(message: ConsoleMessage, complaints: list[str]) -> None:
    """Add an error or warning that the page has logged to the complaints. Chromium itself logs an answer with status
    409 as an error; pages expect such answers, so it does not count.
    """
    if message.type in ("error", "warning") and "status of 409" not in message.text:
        complaints.append(message.text)


def _refuse(dialog: Dialog, complaints: list[str]) -> None:
    complaints.append(dialog.message)
    dialog.dismiss()
