"""The broker: asyncio connections, durable writes in rounds, and the handlers of each API, around the storage."""
