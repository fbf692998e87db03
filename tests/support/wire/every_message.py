"""Makes tests, one for each API, out of a check of one message class in one version; a failure names the version."""

from collections.abc import Callable, Iterable

import pytest
from fencepost.protocol.apis import APIS, Api
from fencepost.protocol.schema import schema_of
from hypothesis import settings

Check = Callable[[type, int], None]


def messages_of(api: Api) -> list[tuple[type, int]]:
    """Return (class, version) of the API's request and response, for each version that is declared."""
    return [(cls, version) for cls in (api.request, api.response) for version in api.declared]


def is_looked_at(api: Api, version: int) -> bool:
    """Return whether this version is tested: `make check` tests only the oldest and the newest."""
    return settings.default is not settings.get_profile("check") or version in (min(api.declared), max(api.declared))


def turning_points(api: Api) -> set[int]:
    """Return the oldest and the newest version, and the first with the flexible encoding."""
    return {
        min(api.declared),
        max(api.declared),
        *[v for v in api.declared if v in schema_of(api.request).flexible][:1],
    }


def of_every_message(
    apis: Iterable[Api] = tuple(APIS.values()), others_are_long: bool = False
) -> Callable[[Check], Callable[..., None]]:
    """Return a decorator that makes a check of (class, version) a test of each API. Each class and version is a
    subtest: if one fails, the others still run.

    others_are_long: test the versions that are no turning points only in long runs.
    """
    cases = []
    for api in apis:
        first = turning_points(api) if others_are_long else set(api.declared)
        cases.append(pytest.param(api, first, id=api.name))
        if others := set(api.declared) - first:
            cases.append(pytest.param(api, others, id=f"{api.name}-other versions", marks=pytest.mark.long))

    def as_test(check: Check) -> Callable[..., None]:
        @pytest.mark.parametrize(("api", "versions"), cases)
        def test(api: Api, versions: set[int], subtests: pytest.Subtests) -> None:
            for cls, version in messages_of(api):
                if version in versions and is_looked_at(api, version):
                    with subtests.test(f"{cls.__name__} v{version}"):
                        check(cls, version)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return as_test
