"""The SDK: a Kafka client for asyncio; its complex parts are pure state machines. Users import it from `fencepost`."""
