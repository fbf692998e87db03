"""Pages of the console in a real browser: whether there is one, and going to a page."""

import pytest
from playwright.sync_api import Page, expect
from served_console import NO_CHROMIUM, ServedConsole, find_chromium

CHROMIUM = find_chromium()
NEEDS_CHROMIUM = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)]

expect.set_options(timeout=90_000)  # groups are read again after three times as long as that took


def visit(page: Page, console: ServedConsole, where: str) -> None:
    """Go to a page of the console, and wait until it is shown."""
    page.goto(f"{console.url}#/{where}")
    expect(page.locator("main")).to_have_attribute("data-shown", f"#/{where}")
