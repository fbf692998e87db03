"""Django in a test's process: configured once, with the settings of a database by its URL."""

import django
from django.conf import settings

if not settings.configured:
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    django.setup()


def settings_of(url: str, **more: object) -> dict[str, object]:
    """Return what DATABASES has for this URL. more: further settings."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        options = {"init_command": "pragma synchronous = extra", "timeout": 0.1}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options, **more}
    user, _, rest = url.removeprefix("postgresql://").partition("@")
    host, _, name = rest.partition("/")
    host, _, port = host.partition(":")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": user,
        "HOST": host,
        "PORT": port,
        **more,
    }
