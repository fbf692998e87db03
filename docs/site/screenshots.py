"""Makes the pictures of the console in README and docs: its pages in a real browser, light and dark, into docs/images.

python docs/site/screenshots.py or `make screenshots`; needs Chromium: on the PATH, or FENCEPOST_CHROMIUM
"""

import asyncio
import io
import json
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fencepost.console.serving.server import Console, ConsoleSettings
from PIL import Image
from playwright.async_api import async_playwright

import fencepost as fp

IMAGES = Path(__file__).resolve().parents[1] / "images"
SIZE = {"width": 1240, "height": 800}
COLOURS = 160  # of a picture: it looks the same and is a third of the size
PAGES = {
    "console": "",
    "timeline": "topics/orders/timeline?span=200",
    "messages": "topics/orders/messages?partition=0&offset={stuck}",
}


class Undone(Exception):
    """Raised to abort a transaction."""


async def tell(servers: str) -> None:
    """Create topics and write a shop's transactions for the pictures: most commit, some abort."""
    rng = random.Random(7)
    async with fp.Admin(servers) as admin:
        await admin.create_topics([fp.NewTopic("orders", 3), fp.NewTopic("payments", 2), fp.NewTopic("mails", 1)])
    async with fp.Producer(servers) as notes:
        for number in range(14):
            async with fp.Producer(servers, transactional_id=f"checkout-{number % 5}") as shop:
                await write(shop, number, rng, fails=number % 5 == 3)
            if number % 4 == 0:
                await notes.send("orders", f"stock counted at {8 + number}:00".encode(), partition=number % 3)
                await notes.flush()


async def write(shop: fp.Producer, number: int, rng: random.Random, *, fails: bool) -> None:
    """Write orders and a payment in one transaction. number: of the transaction. fails: it is aborted."""
    try:
        async with shop.transaction() as tx:
            for partition in range(3):
                for each in range(rng.randint(1, 4)):
                    order = number * 100 + partition * 10 + each
                    value = json.dumps(
                        {"order": order, "customer": rng.choice(["Ada", "Grace", "Alan"]), "total": rng.randint(5, 90)}
                    )
                    await tx.send("orders", value.encode(), key=f"order-{order}".encode(), partition=partition)
                await shop.flush()
            await tx.send("payments", b"paid", partition=number % 2)
            if fails:
                raise Undone
    except Undone:
        pass


@asynccontextmanager
async def stuck(servers: str) -> AsyncIterator[int]:
    """Hold a transaction open during the block, with a group that waits for it and later transactions after it. Yields
    the offset of its first record.
    """
    rng = random.Random(3)
    async with (
        fp.Producer(servers, transactional_id="nightly-report", transaction_timeout_ms=60_000) as report,
        fp.Consumer(servers, topics=["orders"], group_id="billing", auto_offset_reset="earliest") as billing,
    ):
        try:
            async with report.transaction() as tx:
                for partition in (0, 2):
                    for each in range(5):
                        await tx.send("orders", f"subtotal {each}".encode(), partition=partition)
                await report.flush()
                for number in range(20, 23):
                    async with fp.Producer(servers, transactional_id=f"checkout-{number % 5}") as shop:
                        await write(shop, number, rng, fails=number == 21)
                async with fp.Admin(servers) as admin:
                    (first,) = (await admin.ends([fp.TopicPartition("orders", 0)], -1, "read_committed")).values()
                    async for _ in billing.batches(max_records=500):
                        await billing.commit()
                        behind = (await admin.list_group_offsets("billing")).get(fp.TopicPartition("orders", 0))
                        if behind is not None and behind.offset >= first:
                            break
                yield first
                raise Undone
        except Undone:
            pass


async def shoot(url: str, offset: int, chromium: str) -> None:
    """Save a picture of each page, light and dark. url: of the console. offset: from stuck(). chromium: the browser's
    path.
    """
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium)
        for scheme in ("light", "dark"):
            context = await browser.new_context(color_scheme=scheme, viewport=SIZE)
            page = await context.new_page()
            for name, where in PAGES.items():
                where = where.format(stuck=offset - 6)
                await page.goto(f"{url}#/{where}")
                await page.locator(f'main[data-shown="#/{where}"]').wait_for()
                await page.wait_for_timeout(1500)
                save(await page.screenshot(), IMAGES / f"{name}.{scheme}.png")
        await browser.close()


def save(picture: bytes, path: Path) -> None:
    """Save a picture as a PNG with few colours, and print its size."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


async def main() -> None:
    """Start a broker with a shop's data and a console, and save pictures of its pages."""
    chromium = os.environ.get("FENCEPOST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no chromium on the PATH, and FENCEPOST_CHROMIUM names none")
    async with fp.Broker() as broker:
        servers = broker.bootstrap_servers
        await tell(servers)
        async with stuck(servers) as offset:
            settings = ConsoleSettings("127.0.0.1", 0, servers, fp.__version__, changes_allowed=True)
            console = Console(settings, lambda: fp.Admin(servers))
            await console.start()
            try:
                await shoot(console.url, offset, chromium)
            finally:
                await console.close()


if __name__ == "__main__":
    asyncio.run(main())
