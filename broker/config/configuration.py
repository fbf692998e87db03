"""What was given, from flags, environment and file, as texts by option name: the static layer of BrokerSettings.

A flag wins over FENCEPOST_… in the environment, that over the TOML file. Kafka's spellings are accepted (hours for
ms); a name that nobody knows is refused with the nearest one that somebody does, so that a misspelt limit is never a
missing limit. Pure: environment and file contents are given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from .kafka_names import is_harmless, promises_protection
from .kafka_options import UNOBEYED
from .listener_settings import OVERRIDE
from .options import InvalidOption, Option, nearest
from .settings import BROKER_OPTIONS, BrokerSettings, Source

ENVIRONMENT_PREFIX = "FENCEPOST_"
EVERY_SETTING = "python -m fencepost.broker.config.settings_page lists every setting"
_OF_SERVE = {"FENCEPOST_CONFIG", "FENCEPOST_EPHEMERAL"}
_OF_CLIENT_COMMANDS = {"FENCEPOST_BOOTSTRAP", "FENCEPOST_USER", "FENCEPOST_PASSWORD", "FENCEPOST_CLIENT_CONFIG"}
NOT_SETTINGS = frozenset(_OF_SERVE | _OF_CLIENT_COMMANDS)


class UnknownName(InvalidOption):
    """Raised for a setting that does not exist. hint: names the nearest one that does."""

    def __init__(self, shown: str, origin: str, hint: str) -> None:
        super().__init__(f"unknown setting {shown} ({origin})", shown)
        self.hint = hint


@dataclass(slots=True)
class ConfigurationTexts:
    """The values as texts by option name, and names that are accepted but have no effect."""

    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def broker_settings(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Mapping[str, object], file_name: str = "file"
) -> tuple[BrokerSettings, list[str]]:
    """Return the settings, and a warning for each kind of setting that was ignored.

    Raises InvalidOption: a wrong value, also of what is ignored; an unknown name; or protection asked of a broker that
    has none.
    """
    given = ConfigurationTexts()
    for origin, names in (
        (file_name, _once_each(_flat(file), file_name)),
        ("environment", dict(_from_environment(environment))),
        ("flag", flags),
    ):
        _add(given, origin, names)
    settings = BrokerSettings.of({Source.STATIC_BROKER: given.texts})
    return settings, _warnings(given)


def _warnings(given: ConfigurationTexts) -> list[str]:
    if not given.ignored:
        return []
    return [f"names that only Kafka needs are ignored: {', '.join(dict.fromkeys(given.ignored))}"]


def _add(given: ConfigurationTexts, origin: str, names: Mapping[str, str]) -> None:
    """Add the values of a source of higher rank. An option's own name takes precedence over its aliases."""
    spellings = accepted_names()
    for name in sorted(names, key=lambda name: spellings[name][2] if name in spellings else 0, reverse=True):
        if name in spellings:
            _one_directory(name, names[name], origin)
            row, factor, _ = spellings[name]
            given.texts[row.name] = _in_units_of(row, name, names[name], factor)
            given.origins[row.name] = origin
        elif name.startswith(OVERRIDE) and not is_harmless(name):
            given.texts[name] = names[name]
            given.origins[name] = origin
        elif promises_protection(name, names[name]):
            raise InvalidOption(f"{name} ({origin}) asks for protection that this broker does not have", name)
        elif is_harmless(name):
            if name in UNOBEYED:
                UNOBEYED[name].parse(names[name])
            given.ignored.append(name)
        else:
            raise UnknownName(_as_spelt(name, origin), origin, _hint(name, origin))


@cache
def accepted_names() -> Mapping[str, tuple[Option, int, int]]:
    """Every accepted name: its option, the factor of its number, and its rank (0: the option's own name)."""
    found: dict[str, tuple[Option, int, int]] = {}
    for row in BROKER_OPTIONS.values():
        found[row.name] = row, 1, 0
        for rank, (alias, factor) in enumerate(row.aliases.items(), 1):
            found[alias] = row, factor, rank
    return found


def _one_directory(name: str, text: str, origin: str) -> None:
    """Refuse several directories in log.dirs, a list in Kafka. A path with a comma is set by log.dir."""
    if name == "log.dirs" and "," in text:
        number = len(text.split(","))
        raise InvalidOption(f"{name} ({origin}) names {number} directories, and a broker has one", name)


def _in_units_of(row: Option, name: str, text: str, factor: int) -> str:
    if factor == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        raise InvalidOption(f"Invalid value {text} for configuration {name}: Not a number of type INT", name) from None
    return str(number * factor if number >= 0 else number)


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (full name, value) of nested tables, so that "log.retention.ms" may be quoted, dotted or nested."""
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat(value, name + ".")
        else:
            yield name, _text(value)


def _once_each(pairs: Iterator[tuple[str, str]], origin: str) -> dict[str, str]:
    """Return the pairs as a dict. Raises InvalidOption for a name that a file gives twice, quoted and nested."""
    names: dict[str, str] = {}
    for name, text in pairs:
        if name in names:
            raise InvalidOption(f"{name} is given twice ({origin})", name)
        names[name] = text
    return names


def _text(value: object) -> str:
    """Return a value of the settings file as Kafka writes it in text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_text(entry) for entry in value)
    return str(value)


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            yield name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".").replace("_", "."), text


def _as_spelt(name: str, origin: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_") if origin == "environment" else name


def _hint(name: str, origin: str) -> str:
    found = nearest(name, list(accepted_names()))
    return f"did you mean {_as_spelt(found, origin)}?" if found else EVERY_SETTING
