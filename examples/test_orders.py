"""Tests of a small program with a real broker: `pytest test_orders.py`, with nothing to start and no Docker."""

from confluent_kafka import Producer


class Shop:
    """The program under test: it writes orders to a topic."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def place(self, number: int) -> None:
        """Write one order and wait for its acknowledgement."""
        self._producer.produce("orders", str(number).encode())
        self._producer.flush()


def test_a_placed_order_is_in_the_topic(fp_bootstrap, fp_broker):
    Shop(fp_bootstrap).place(1)
    assert [record.value for record in fp_broker.records("orders")][-1:] == [b"1"]


def test_an_order_whose_acknowledgement_was_lost_is_written_only_once(fp_bootstrap, fp_broker, fp_faults):
    fp_faults.disconnect("Produce", when="after_write").once()
    Shop(fp_bootstrap).place(2)
    assert [record.value for record in fp_broker.records("orders")].count(b"2") == 1


def test_an_acknowledged_order_survives_a_power_cut(fp_bootstrap, fp_broker):
    Shop(fp_bootstrap).place(3)
    fp_broker.kill()
    fp_broker.restart()
    assert b"3" in [record.value for record in fp_broker.records("orders")]
