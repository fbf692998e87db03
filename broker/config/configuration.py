"""Collects the settings given by flags, environment and file, as texts by option name: the static layer of
BrokerSettings.

A flag wins over FENCEPOST_… in the environment, and the environment over the TOML file. Kafka's other spellings are
accepted (hours for ms). An unknown name is refused, and the error names the most similar known one, so that a misspelt
limit is never silently missing. Pure: environment and file contents are given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from .kafka_names import is_harmless, promises_protection
from .kafka_options import NO_EFFECT
from .listener_settings import OVERRIDE
from .options import InvalidOption, Option, nearest
from .settings import BROKER_OPTIONS, BrokerSettings, Source

ENVIRONMENT_PREFIX = "FENCEPOST_"
EVERY_SETTING = "python -m fencepost.broker.config.settings_page lists every setting"
_OF_SERVE = {"FENCEPOST_CONFIG", "FENCEPOST_EPHEMERAL"}
_OF_CLIENT_COMMANDS = {"FENCEPOST_BOOTSTRAP", "FENCEPOST_USER", "FENCEPOST_PASSWORD", "FENCEPOST_CLIENT_CONFIG"}
NOT_SETTINGS = frozenset(_OF_SERVE | _OF_CLIENT_COMMANDS)


class UnknownName(InvalidOption):
    """Raised for a setting that does not exist. hint: the most similar name that does."""

    def __init__(self, shown: str, origin: str, hint: str) -> None:
        """shown: the name, as it was given. origin: where it was given, such as "environment"."""
        super().__init__(f"unknown setting {shown} ({origin})", shown)
        self.hint = hint


@dataclass(slots=True)
class ConfigurationTexts:
    """The values as texts by option name, where each was given, and names that are accepted but have no effect."""

    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def broker_settings(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Mapping[str, object], file_name: str = "file"
) -> tuple[BrokerSettings, list[str]]:
    """Return the settings from all three sources, and the warnings: one that lists all ignored names, or none.

    A flag wins over the environment, and the environment over the file. file_name: for error texts. Raises
    InvalidOption for an invalid value, even of an ignored setting; for an unknown name; and for a setting that asks for
    protection, such as TLS, which this broker does not have.
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
    """Return the warnings about ignored settings; [] if none is ignored."""
    if not given.ignored:
        return []
    return [f"names that only Kafka needs are ignored: {', '.join(dict.fromkeys(given.ignored))}"]


def _add(given: ConfigurationTexts, origin: str, names: Mapping[str, str]) -> None:
    """Add the values of one source to `given`, in place of values from earlier sources. If a source gives an option
    both by its own name and by an alias, the own name wins.

    origin: the source, for error texts. names: the texts, by the names given. Raises InvalidOption.
    """
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
            if name in NO_EFFECT:
                NO_EFFECT[name].parse(names[name])
            given.ignored.append(name)
        else:
            raise UnknownName(_as_spelt(name, origin), origin, _hint(name, origin))


@cache
def accepted_names() -> Mapping[str, tuple[Option, int, int]]:
    """Return every accepted name of a setting, with its (option, factor, rank).

    The factor converts a number given under this name to the option's unit, such as hours to ms. The rank is 0 for the
    option's own name, and 1, 2, … for its aliases; the name with the lowest rank wins.
    """
    found: dict[str, tuple[Option, int, int]] = {}
    for row in BROKER_OPTIONS.values():
        found[row.name] = row, 1, 0
        for rank, (alias, factor) in enumerate(row.aliases.items(), 1):
            found[alias] = row, factor, rank
    return found


def _one_directory(name: str, text: str, origin: str) -> None:
    """Raise InvalidOption if log.dirs, which is a list in Kafka, names several directories. A log.dir with a comma is
    valid: one directory.
    """
    if name == "log.dirs" and "," in text:
        number = len(text.split(","))
        raise InvalidOption(f"{name} ({origin}) names {number} directories, and a broker has one", name)


def _in_units_of(row: Option, name: str, text: str, factor: int) -> str:
    """Convert a number to the option's unit, by the factor of the name under which it was given. Negative numbers are
    returned unchanged, since they stand for "no limit".

    Raises InvalidOption if the text is not a number.
    """
    if factor == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        raise InvalidOption(f"Invalid value {text} for configuration {name}: Not a number of type INT", name) from None
    return str(number * factor if number >= 0 else number)


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (full name, value as text) of each value in nested tables. The setting log.retention.ms may be one key
    "log.retention.ms", or nested tables.
    """
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat(value, name + ".")
        else:
            yield name, _text(value)


def _once_each(pairs: Iterator[tuple[str, str]], origin: str) -> dict[str, str]:
    """Return the pairs as a dict. Raises InvalidOption if a name occurs twice, for example quoted and nested."""
    names: dict[str, str] = {}
    for name, text in pairs:
        if name in names:
            raise InvalidOption(f"{name} is given twice ({origin})", name)
        names[name] = text
    return names


def _text(value: object) -> str:
    """Return a value of the settings file as text, in Kafka's form: true, false, or a list with commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_text(entry) for entry in value)
    return str(value)


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the settings in environment variables: FENCEPOST_LOG_DIR is log.dir."""
    for name, text in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            yield name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".").replace("_", "."), text


def _as_spelt(name: str, origin: str) -> str:
    """Return a setting's name as it is written in this source. In the environment it has capital letters and a
    prefix.
    """
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_") if origin == "environment" else name


def _hint(name: str, origin: str) -> str:
    """Return a hint for an unknown name: the most similar name, or where all names are listed."""
    found = nearest(name, list(accepted_names()))
    return f"did you mean {_as_spelt(found, origin)}?" if found else EVERY_SETTING
