"""Users and rights of the fixtures' broker: each test runs a test file in a pytest of its own."""

import textwrap

GUARDED = """
    import pytest
    from fencepost import AclBinding

    @pytest.fixture(scope="session")
    def fp_broker_options():
        return {
            "users": {"alice": "secret", "bob": "hidden", "root": "toor"},
            "super_users": ["root"],
            "acls": [AclBinding("User:alice", each, "topic", "*") for each in ("write", "create")],
        }
"""

WITH_RIGHTS = """
    import pytest
    from confluent_kafka import Producer
    from fencepost import AclBinding
    from fencepost.client.errors import AuthorizationError

    def send(config, topic):
        failures = []
        producer = Producer({**config, "log_level": 0})
        producer.produce(topic, b"42", on_delivery=lambda error, _: failures.append(error))
        producer.flush(10)
        return failures[0] and failures[0].name()

    def test_each_user_has_its_rights(fp_broker, fp_client_config, fp_topic):
        assert send(fp_client_config("alice"), fp_topic) is None
        assert send(fp_client_config("bob"), fp_topic) == "TOPIC_AUTHORIZATION_FAILED"
        assert [record.value for record in fp_broker.records(fp_topic)] == [b"42"]
        assert fp_broker.transactions() == []

    def test_what_a_test_changes_is_restored_by_the_next(fp_broker, fp_client_config, fp_topic):
        fp_broker.remove_acls([AclBinding("User:alice", each, "topic", "*") for each in ("write", "create")])
        fp_broker.add_acls([AclBinding("User:bob", "write", "topic", fp_topic)])
        assert send(fp_client_config("alice"), fp_topic) == "TOPIC_AUTHORIZATION_FAILED"
        assert send(fp_client_config("bob"), fp_topic) is None

    def test_it_is_restored(fp_client_config, fp_topic):
        assert send(fp_client_config("alice"), fp_topic) is None
        assert send(fp_client_config("bob"), fp_topic) == "TOPIC_AUTHORIZATION_FAILED"

    @pytest.mark.fencepost(user="alice")
    async def test_the_clients_of_fixtures_log_in_as_the_user_of_the_marker(fp_producer, fp_consumer, fp_topic):
        await fp_producer.send_and_wait(fp_topic, b"1")
        with pytest.raises(AuthorizationError):
            await fp_consumer.getone()

    async def test_without_a_marker_they_may_do_everything(fp_txn_producer, fp_consumer, fp_admin, fp_topic):
        async with fp_txn_producer.transaction() as tx:
            await tx.send(fp_topic, b"1")
        assert (await fp_consumer.getone()).value == b"1"
        assert len(await fp_admin.describe_acls()) == 2

    def test_a_restart_keeps_the_rights(fp_broker, fp_client_config, fp_topic):
        fp_broker.kill()
        fp_broker.restart()
        assert send(fp_client_config("alice"), fp_topic) is None
        assert fp_broker.hw(fp_topic) == 1
"""


def test_a_broker_with_users_and_rules_serves_each_client_by_its_rights(run, pytester):
    pytester.makeconftest(textwrap.dedent(GUARDED))
    run(WITH_RIGHTS).assert_outcomes(passed=6)


def test_fp_broker_factory_accepts_users_and_acls_and_refuses_acls_without_users(run):
    run("""
        import pytest
        from fencepost import AclBinding

        def test_it(fp_broker_factory):
            broker = fp_broker_factory(users={"alice": "secret"}, acls=[])
            broker.create_topic("orders", 2)
            assert broker.topics() == {"orders": 2}
            assert broker.client_config("alice")["sasl.username"] == "alice"
            with pytest.raises(ValueError, match="need users"):
                fp_broker_factory(acls=[])
    """).assert_outcomes(passed=1)


def test_a_fencepost_marker_with_a_user_skips_the_test_with_an_external_broker(run):
    result = run(
        """
        import pytest

        @pytest.mark.fencepost(user="alice")
        async def test_it(fp_admin):
            pass
        """,
        "--fencepost-external",
        "127.0.0.1:1",
    )
    result.assert_outcomes(skipped=1)
