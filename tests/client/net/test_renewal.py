"""Logging in again on an open connection (KIP-368): nothing is lost, whatever happens meanwhile."""

import asyncio
import logging

import pytest
from client_world import BOOTSTRAP, run
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import AuthenticationError, BrokerUnreachableError, RequestTimedOutError
from fencepost.client.net.opening import login_of, open_connection
from fencepost.client.net.versions import SPOKEN
from fencepost.client.producer.producer import Producer
from fencepost.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from fencepost.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from login_client import add_users
from scripted_server import ScriptedServer

SASL = (SPOKEN[SaslHandshakeRequest], SPOKEN[SaslAuthenticateRequest])
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
ALICE = {**LOGIN, "sasl_plain_username": "alice", "sasl_plain_password": "alice-pw"}
LIFE_MS = 10_000


class Renewing:
    """A server whose sessions last LIFE_MS. script: what a test does with a login, by its number; None: let in."""

    def __init__(self, world):
        self.server = ScriptedServer(world.net, more=SASL)
        self.server.answers |= {
            SaslHandshakeRequest: self._handshake,
            SaslAuthenticateRequest: self._authenticate,
            HeartbeatRequest: self._heartbeat,
        }
        self.world = world
        self.logins = 0
        self.script = {}
        self.is_silent = False
        self.held = []

    def _handshake(self, line, request, version, number):
        response = SaslHandshakeResponse(mechanisms=[request.mechanism])
        self._in_order(lambda: line.reply(SaslHandshakeRequest, version, number, response))

    def _in_order(self, answer):
        """Send the answer; while the server is silent, keep it until speak(), which sends all in order."""
        if self.is_silent:
            self.held.append(answer)
        else:
            answer()

    def speak(self):
        self.is_silent = False
        held, self.held = self.held, []
        for answer in held:
            answer()

    def _authenticate(self, line, request, version, number):
        self.logins += 1
        act = self.script.get(self.logins, self.let_in)
        act(line, version, number)

    def let_in(self, line, version, number, message=b""):
        response = SaslAuthenticateResponse(error_message="", auth_bytes=message, session_lifetime_ms=LIFE_MS)
        line.reply(SaslAuthenticateRequest, version, number, response)

    def refuse(self, line, version, number):
        response = SaslAuthenticateResponse(error_code=58, error_message="no: hush", auth_bytes=b"")
        line.reply(SaslAuthenticateRequest, version, number, response)

    def cut(self, line, version, number):
        line.transport.abort()

    def ignore(self, line, version, number):
        pass

    def _heartbeat(self, line, request, version, number):
        response = HeartbeatResponse(error_code=request.generation_id)
        self._in_order(lambda: line.reply(HeartbeatRequest, version, number, response))

    @property
    def order(self):
        """Return the names of the requests that came, in order, without ApiVersions."""
        return [name for name, _, _ in self.server.requests if name != "ApiVersions"]

    async def open(self, **keywords):
        settings = self.world.settings(**{**ALICE, "connect_timeout_ms": 2_000, **keywords})
        login = login_of(settings, self.world.environment)
        return await open_connection(("127.0.0.1", 9092), settings, self.world.environment, None, login=login)


def renewing(main):
    async def within(world):
        server = Renewing(world)
        await server.server.listen()
        try:
            return await main(server)
        finally:
            server.server.close()

    return run(within)


async def until(happened):
    for _ in range(10_000):
        if happened():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def ask(connection, number=0, timeout_ms=5_000):
    request = HeartbeatRequest(group_id="g", generation_id=number, member_id="m")
    return connection.send(request, 4, timeout_ms=timeout_ms)


def test_a_sasl_session_is_renewed_several_times_on_the_same_connection():
    async def main(server):
        connection = await server.open()
        await asyncio.sleep(LIFE_MS * 5 / 1000)
        assert (len(server.server.lines), connection.closed, connection.is_held) == (1, False, False)
        assert 6 <= server.logins <= 7  # each after 80 to 90 % of a session's life, by chance
        assert (await ask(connection, 3)).error_code == 3

    renewing(main)


def test_requests_sent_during_a_session_renewal_wait_until_it_has_ended():
    """They are answered over the same connection, in order."""

    async def main(server):
        connection = await server.open()
        await asyncio.sleep(LIFE_MS * 0.84 / 1000)
        server.is_silent = True
        before = [ask(connection, number, 30_000) for number in range(3)]
        await until(lambda: connection.is_held)
        after = [ask(connection, number, 30_000) for number in range(10, 13)]
        assert connection.in_flight == 7, "three, the SaslHandshake, and three that wait for its end"
        await asyncio.sleep(5)  # longer than the login itself may take
        assert not any(each.done() for each in before + after)
        assert server.order[-4:] == ["Heartbeat"] * 3 + ["SaslHandshake"]
        server.speak()
        assert [(await each).error_code for each in before + after] == [0, 1, 2, 10, 11, 12]
        assert server.order[-5:] == ["SaslHandshake", "SaslAuthenticate"] + ["Heartbeat"] * 3
        assert (len(server.server.lines), connection.in_flight) == (1, 0)

    renewing(main)


def test_renewals_of_a_login_session_lose_and_reorder_no_requests():
    async def main(server):
        connection = await server.open()
        answers = {}

        def slow(line, version, number):
            asyncio.get_running_loop().call_later(0.5, server.let_in, line, version, number)

        server.script[2] = slow

        async def ask_all():
            for number in range(2_000):
                answers[number] = ask(connection, number % 50)
                await asyncio.sleep(0.01)

        await ask_all()
        for number, answer in answers.items():
            assert (await answer).error_code == number % 50
        assert server.logins >= 3
        assert len(server.server.lines) == 1
        renewal = server.order.index("SaslAuthenticate", 2)  # after the handshake and login of the connection
        assert server.order[renewal - 1] == "SaslHandshake", "nothing comes between the two"
        assert len(server.order) == 2_000 + 2 * server.logins

    renewing(main)


@pytest.mark.parametrize("act", ["refuse", "cut", "ignore"])
def test_a_failed_session_renewal_closes_the_connection_and_fails_waiting_requests(act, caplog):
    """The waiting requests were not sent. A new connection works, and no log line has the password."""

    async def main(server):
        connection = await server.open()
        server.script[2] = getattr(server, act)
        await asyncio.sleep(LIFE_MS * 0.84 / 1000)
        lost = []
        connection.on_lost.append(lambda connection, error: lost.append(error))
        await until(lambda: connection.is_held or connection.closed)
        behind = ask(connection)
        with pytest.raises(BrokerUnreachableError) as caught:
            await behind
        assert not caught.value.sent
        assert connection.closed
        assert lost
        expected = {"refuse": AuthenticationError, "ignore": RequestTimedOutError}
        assert isinstance(lost[0], expected.get(act, ConnectionError))
        server.script.clear()
        again = await server.open()
        assert (await ask(again, 1)).error_code == 1
        again.close()

    with caplog.at_level(logging.WARNING):
        renewing(main)
    assert "hush" not in caplog.text
    assert "alice-pw" not in caplog.text


def test_a_connection_is_retired_not_closed_if_its_token_provider_fails():
    provided = [("one", LIFE_MS / 4), RuntimeError("hush")]

    async def provide():
        found = provided.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def main(server):
        tokens = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provide}
        tokens |= {"sasl_plain_username": None, "sasl_plain_password": None}
        connection = await server.open(**tokens)
        await asyncio.sleep(LIFE_MS / 1000)
        assert (connection.is_retired, connection.closed, server.logins) == (True, False, 1)
        assert (await ask(connection, 2)).error_code == 2, "what is on its way is still answered"

    renewing(main)


def test_a_closed_connection_does_not_renew_its_sasl_session():
    async def main(server):
        connection = await server.open()
        connection.close()
        other = await server.open()
        server.script[3] = server.ignore  # the renewal of `other`, in which it is closed
        await until(lambda: other.is_held)
        other.close()
        await asyncio.sleep(3 * LIFE_MS / 1000)
        assert server.logins == 3, "two when the connections were opened, and that renewal"

    renewing(main)


def test_an_unused_connection_is_closed_although_its_sasl_session_is_renewed():
    async def main(server):
        connection = await server.open(connections_max_idle_ms=3 * LIFE_MS)
        await asyncio.sleep(2.9 * LIFE_MS / 1000)
        assert (connection.closed, server.logins) == (False, 4)
        await asyncio.sleep(0.2 * LIFE_MS / 1000)
        assert (connection.closed, connection.error) == (True, None)

    renewing(main)


# ---- with our own broker -----------------------------------------------------------------------------------------


def of_a_broker(main, **settings):
    async def within(world):
        broker = await world.start_broker(
            listeners=("SASL_PLAINTEXT://127.0.0.1:9092",),
            sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
            connections_max_reauth_ms=5_000,
            **settings,
        )
        add_users(broker)
        return await main(world, broker)

    return run(within)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_keep_their_connections_over_many_renewals_of_their_login(mechanism):
    async def main(world, broker):
        login = {**ALICE, "sasl_mechanism": mechanism}
        reading = {**login, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 2_000}
        found = []
        async with (
            Producer(BOOTSTRAP, environment=world.environment, **login) as producer,
            Consumer(BOOTSTRAP, topics=["t"], environment=world.environment, **reading) as consumer,
        ):
            await producer.send("t", b"0")
            for number in range(1, 300):
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(0.1)
                if number == 50:
                    before = set(broker.server.connections)
            while len(found) < 300:
                fetched = await consumer.getmany()
                found += [int(record.value) for records in fetched.values() for record in records]
            assert set(broker.server.connections) >= before, "each connection has lived on"
        assert found == list(range(300))

    of_a_broker(main)


def test_a_client_with_removed_credentials_fails_once_its_login_session_ends():
    from fencepost.broker.security.credentials import Mechanism, credential_removed

    async def main(world, broker):
        async with Admin(BOOTSTRAP, environment=world.environment, **ALICE) as admin:
            await admin.list_topics()
            broker.security_log.commit([credential_removed("alice", each) for each in Mechanism])
            await admin.list_topics()

            async def ask_on():
                for _ in range(60):
                    await asyncio.sleep(0.1)
                    await admin.list_topics()

            with pytest.raises(AuthenticationError, match="does not accept"):
                await ask_on()

    of_a_broker(main)


# ---- cancelled ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_login_cancelled_at_any_await_leaves_no_connection_open(mechanism):
    async def provide():
        await asyncio.sleep(0.01)
        return "token", 60_000

    def run_until(turn):
        """Cancel a login after this many turns of the loop. Returns whether it was still going on then."""

        async def main(world):
            server = Renewing(world)
            await server.server.listen()
            if mechanism == "SCRAM-SHA-256":
                server.script = dict.fromkeys(range(1, 100), server.refuse)
            login = ALICE if mechanism != "OAUTHBEARER" else LOGIN | {"sasl_oauth_token_provider": provide}
            opening = asyncio.ensure_future(server.open(**{**login, "sasl_mechanism": mechanism}))
            turns, once, cancelled = 0, world.loop._run_once, False

            def counted():
                nonlocal turns, cancelled
                once()
                turns += 1
                if turns == turn:
                    cancelled = opening.cancel()

            world.loop._run_once = counted
            (result,) = await asyncio.gather(opening, return_exceptions=True)
            del world.loop._run_once
            await asyncio.sleep(1)
            if cancelled:
                # A refusal that has arrived in the same turn may be raised instead of the cancellation.
                assert isinstance(result, asyncio.CancelledError | AuthenticationError), result
                assert server.server.ended == len(server.server.lines)
            elif not isinstance(result, BaseException):
                result.close()
            server.server.close()
            return cancelled

        return run(main)

    turn = 1
    while run_until(turn):
        turn += 1
    assert turn > 5
