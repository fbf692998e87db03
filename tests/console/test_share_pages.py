"""A share group in the console's pages, in a real browser."""

from axe_playwright_python.sync_playwright import Axe
from browsing import NEEDS_CHROMIUM, visit
from console_story import Story
from pending_shares import LIMIT, pending
from playwright.sync_api import Page, expect
from served_broker import ServedBroker
from served_console import ServedConsole
from terminal import Terminal

pytestmark = NEEDS_CHROMIUM


def test_a_share_groups_page_names_the_transaction_that_fills_its_window(page: Page) -> None:
    with ServedBroker(group_share_partition_max_record_locks=LIMIT) as broker, ServedConsole(broker.port) as console:
        terminal = Terminal(broker)
        Story(terminal.bootstrap).create(jobs=1)
        terminal.plain("jobs", *map(str, range(LIMIT + 20)))
        with pending(terminal.bootstrap, "worker-1", "jobs", "packing"):
            visit(page, console, "")
            card = page.locator("#alarms .stuck", has_text="Group packing gets nothing new")
            expect(card).to_contain_text(
                "Its window is full, and its first records are pending in transaction worker-1"
            )
            visit(page, console, "groups")
            row = page.locator("tbody tr", has_text="packing")
            expect(row).to_contain_text("share, simple")
            expect(row.locator("td").nth(3)).to_have_text("1")  # its number of members
            expect(row.locator("td").nth(5)).to_have_text(str(LIMIT + 20))  # its lag
            expect(row).to_contain_text("1 of 1 partitions")
            row.get_by_role("link", name="packing").click()
            expect(page.locator("h1")).to_have_text("packing")
            at = page.locator("tbody tr", has_text="jobs-0")
            expect(at).to_contain_text(f" of {LIMIT}")
            expect(at).to_contain_text("window full")
            expect(page.locator(".card")).to_contain_text("jobs-0")  # its member reads it
            assert not [each for each in Axe().run(page).response["violations"] if each["impact"] == "critical"]
            at.get_by_role("link", name="worker-1").click()
            expect(page.locator("h1")).to_have_text("worker-1")
            page.go_back()
        expect(at).not_to_contain_text("window full")  # the transaction is committed
