"""Targets: settings of a broker from flags and files, and of topics and clients over the wire.

The rule: a text parses to a value or raises InvalidOption with the reason. A value's text parses to that value.
"""

import tomllib
from collections.abc import Iterator
from functools import partial

from fencepost.broker.config.configuration import broker_settings
from fencepost.broker.config.options import InvalidOption, Option, text_of
from fencepost.broker.config.settings import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerSettings, Source, TopicSettings
from fuzz.target import REFUSED, Target, outcome

_BROKER = BrokerSettings()


def _given(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def look_at_flags(data: bytes) -> None:
    texts = _given(data)
    found = outcome(lambda: broker_settings(texts, {}, {}), InvalidOption)
    outcome(lambda: broker_settings({}, texts, {}), InvalidOption)
    if found is not REFUSED:
        settings, _ = found
        given = settings.layers[Source.STATIC_BROKER]
        again = BrokerSettings.of({Source.STATIC_BROKER: given})
        assert again == settings
        for name in given:
            if name in BROKER_OPTIONS:
                _is_spelt(BROKER_OPTIONS[name], given[name])


def look_at_file(data: bytes) -> None:
    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError):  # the command line reports these as usage errors
        return
    outcome(lambda: broker_settings({}, {}, table), InvalidOption)


def look_at_topic_settings(data: bytes) -> None:
    """Settings as in CreateTopics and AlterConfigs: the name of any option with any text as its value."""
    for name, text in _given(data).items():
        for options in (BROKER_OPTIONS, TOPIC_OPTIONS):
            if name in options:
                _is_spelt(options[name], text)
    overrides = {name: text for name, text in _given(data).items() if name in TOPIC_OPTIONS}
    settings = outcome(lambda: TopicSettings.of(overrides, _BROKER), InvalidOption)
    if settings is not REFUSED:
        outcome(settings.check, InvalidOption)


def _is_spelt(option: Option, text: str) -> None:
    value = outcome(partial(option.parse_dynamic, text), InvalidOption)
    if value is not REFUSED:
        assert option.parse(text_of(value)) == value


def _settings_of_brokers() -> Iterator[bytes]:
    yield b"\n".join(f"{name}={text_of(row.default)}".encode() for name, row in BROKER_OPTIONS.items())[:4000]
    yield b"listeners=PLAINTEXT://127.0.0.1:9092\nlog.retention.hours=5\nlog.dirs=/a"
    yield b"FENCEPOST_LOG_DIR=/a\nFENCEPOST_LISTENERS=127.0.0.1:0"
    yield b"super.users=User:a;User:b\nauthorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield b"listeners=A://:9092,B://[::1]:9093\nlistener.security.protocol.map=A:PLAINTEXT,B:SSL"
    for name, row in BROKER_OPTIONS.items():
        yield f"{name}={text_of(row.default)}".encode()


def _files() -> Iterator[bytes]:
    yield b'listeners = ["127.0.0.1:9092"]\nlog.retention.ms = 5\n"log.dir" = "/a"\n[log]\nsegment.bytes = 1048576\n'
    yield b"[log.retention]\nhours = 3\n"
    yield b"unclean = [[1, 2], {a = 1}]\nwhen = 2020-01-01T00:00:00Z\nnumber = 1e400\n"


def _settings_of_topics() -> Iterator[bytes]:
    for name, row in TOPIC_OPTIONS.items():
        yield f"{name}={text_of(row.default)}".encode()
    yield b"min.compaction.lag.ms=5\nmax.compaction.lag.ms=4\ncleanup.policy=compact,delete"


TARGETS = [
    Target("broker-settings", look_at_flags, _settings_of_brokers, at_most_bytes=4096, lines=400_000, memory=4_000_000),
    Target("settings-file", look_at_file, _files, lines=200_000, memory=4_000_000),
    Target("topic-settings", look_at_topic_settings, _settings_of_topics, lines=50_000, memory=4_000_000),
]
