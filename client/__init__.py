"""The SDK: a Kafka client on asyncio, whose hard parts are pure state machines. Users import it from `fencepost`."""
