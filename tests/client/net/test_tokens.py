"""The tokens of OAUTHBEARER: when the application is asked for one, and what it may return."""

import asyncio
import functools

import pytest
from client_world import run
from fencepost.client.errors import AuthenticationError, BrokerUnreachableError
from fencepost.client.net.tokens import TokenSource
from fencepost.client.security import Token
from fencepost.effects.clock import SystemClock
from few_threads import threads_left
from signed_tokens import token as signed


class Application:
    """Returns what a test says, and counts how often it is asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def answer(self):
        self.asked += 1
        found = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    async def later(self):
        await asyncio.sleep(0.01)
        return self.answer()


def tokens_of(application, *pauses_s, provider=None):
    """Return the tokens that a source gives, one after each pause."""

    async def main(world):
        source = TokenSource(provider or application.later, world.environment.clock)
        found = []
        for pause in pauses_s:
            await asyncio.sleep(pause)
            found.append(await source.token())
        return found

    return run(main)


async def test_if_no_thread_can_start_the_token_call_fails_and_a_second_call_works():
    application = Application("one")
    source = TokenSource(application.answer, SystemClock())
    with threads_left(0), pytest.raises(BrokerUnreachableError, match="no further thread"):
        await source.token()
    assert application.asked == 0
    assert await source.token() == "one"


def test_a_token_is_reused_for_four_fifths_of_its_lifetime():
    application = Application(("one", 10_000), ("two", 10_000), ("three", 1))
    assert tokens_of(application, 0, 7.9, 0.2, 7, 2) == ["one", "one", "two", "two", "three"]
    assert application.asked == 3


def test_a_token_of_unknown_lifetime_is_requested_each_time():
    application = Application("one", "two", "a.b.c", "a.!!!.c")
    assert tokens_of(application, 0, 0, 0, 0) == ["one", "two", "a.b.c", "a.!!!.c"]


def test_a_token_is_renewed_after_80_percent_of_its_exp_or_stated_lifetime():
    def life_of(make):
        async def main(world):
            application = Application(make(world.environment.clock.now_ms() / 1000 + 100))
            source = TokenSource(application.later, world.environment.clock)
            await source.token()
            await asyncio.sleep(79)
            await source.token()
            assert application.asked == 1
            await asyncio.sleep(2)
            await source.token()
            return application.asked

        return run(main)

    assert life_of(lambda end_s: signed("p256", {"sub": "alice", "exp": int(end_s)})) == 2
    assert life_of(lambda end_s: Token("opaque", end_s * 1000)) == 2


@pytest.mark.parametrize("kind", ["function", "partial", "callable", "lambda"])
def test_a_token_provider_may_be_a_function_partial_callable_object_or_lambda(kind):
    application = Application("one")

    class Callable:
        async def __call__(self):
            return application.answer()

    provider = {
        "function": application.answer,
        "partial": functools.partial(application.later),
        "callable": Callable(),
        "lambda": lambda: application.later(),
    }[kind]
    assert tokens_of(application, 0, provider=provider) == ["one"]


def test_connections_that_need_a_token_at_once_share_one_call():
    async def main(world):
        application = Application(("one", 10_000))
        source = TokenSource(application.later, world.environment.clock)
        assert await asyncio.gather(*[source.token() for _ in range(5)]) == ["one"] * 5
        assert application.asked == 1
        cancelled = asyncio.ensure_future(source.token())
        source.forget()
        waiting = asyncio.ensure_future(source.token())
        await asyncio.sleep(0.001)
        cancelled.cancel()
        assert await waiting == "one"
        assert application.asked == 2

    run(main)


@pytest.mark.parametrize(
    "answer", [ValueError("hush-hush"), None, "", b"hush", ("hush",), ("hush", "soon"), (1, 2), ("hush", 1, 2)]
)
def test_an_invalid_token_raises_an_error_that_does_not_show_it(answer):
    with pytest.raises(AuthenticationError, match="sasl_oauth_token_provider") as caught:
        tokens_of(Application(answer), 0)
    assert caught.value.hint
    assert "hush" not in str(caught.value) + repr(caught.value) + caught.value.hint


def test_after_a_token_providers_error_it_is_called_again():
    async def main(world):
        source = TokenSource(Application(ValueError(), "two").later, world.environment.clock)
        with pytest.raises(AuthenticationError):
            await source.token()
        return await source.token()

    assert run(main) == "two"
