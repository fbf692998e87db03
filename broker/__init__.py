"""The asyncio shell around storage: connections, rounds, and the handlers of each API."""
