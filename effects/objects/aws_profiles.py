"""Keys and endpoint from the files of AWS's tools in `~/.aws`, if they are not in the environment.

The rule: the environment takes precedence. Only keys that are written in a file are read; a profile that needs a login
(SSO, roles) is not supported. Source: the AWS CLI's documentation of its configuration files.
"""

import configparser
import os
from collections.abc import Mapping

_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_PLACES = {"region": "region", "endpoint_url": "endpoint"}


def profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the AWS profile that are not in the environment, by obstore's names.

    The profile is AWS_PROFILE, else `default`.
    """
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    found: dict[str, str] = {}
    keys = _section(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials", name)
    section = "default" if name == "default" else f"profile {name}"
    config = _section(environment.get("AWS_CONFIG_FILE") or "~/.aws/config", section)
    if "AWS_ACCESS_KEY_ID" not in environment:
        found |= {ours: text for theirs, ours in _KEYS.items() if (text := keys.get(theirs) or config.get(theirs))}
    found |= {ours: text for theirs, ours in _PLACES.items() if (text := config.get(theirs) or keys.get(theirs))}
    if environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        found.pop("region", None)
    if environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT_URL_S3"):
        found.pop("endpoint", None)
    return found


def _section(path: str, name: str) -> Mapping[str, str]:
    """Return one section of an INI file; empty if the file or the section is missing or cannot be read."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(path))
        return dict(parser[name]) if parser.has_section(name) else {}
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}
