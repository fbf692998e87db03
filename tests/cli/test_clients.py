"""`fencepost clients`: who is connected; a broker other than fencepost has no API for it."""

from capped_broker import cap
from served_broker import ServedBroker
from terminal import Terminal


def test_connected_clients_are_listed_with_their_bytes_and_requests() -> None:
    with ServedBroker() as broker:
        terminal = Terminal(broker)
        terminal.run("topic create orders")
        producer = terminal.open_transaction("orders-1", "orders", "a")
        output = terminal.run("clients").splitlines()
        assert output[0].split()[:4] == ["CLIENT-ID", "SOFTWARE", "HOST", "LISTENER"]
        rows = {each["client_id"]: each for each in terminal.objects("clients")}
        assert rows["fencepost-cli"]["software"].startswith("fencepost")
        library = rows["rdkafka"]
        assert "rdkafka" in library["software"]
        assert library["requests"] > 0 < library["bytes_in"]
        producer.abort_transaction()


def test_listing_clients_of_a_kafka_broker_exits_with_1_and_a_hint() -> None:
    with ServedBroker() as broker:
        broker.inside(lambda inside: cap(inside, "4.3"))
        code, cause, hint = Terminal(broker).refused("clients")
    assert (code, "does not tell who is connected" in cause, "only a fencepost broker" in hint) == (1, True, True)
