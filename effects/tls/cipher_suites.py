"""The cipher suites that a TLS context offers, by their IANA or OpenSSL names (`ssl.cipher.suites`).

The rule: the named suites are offered and no others, or the context is not made. Python before 3.15 cannot choose among
the suites of TLS 1.3, so either all of them must be named or none. If none of them is named, TLS 1.3 is off; if no
other suite is named, TLS 1.2 is off. Suites without a certificate or without encryption are refused. Sources: RFC 5246,
RFC 8446; the names are those of OpenSSL's ciphers(1).
"""

import re
import ssl
from collections.abc import Sequence

LEAST_BITS = 112  # of strength
WITHOUT_CERTIFICATE = ("auth-null", "auth-psk", "auth-srp")
_IANA = re.compile(r"TLS_(?P<keys>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)")


class BadCipherSuites(Exception):
    """Raised for cipher suites that cannot be offered. The text says which one, and why."""


def choose(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Let the context offer these cipher suites, preferred ones first. No names: OpenSSL's default. Raises
    BadCipherSuites.
    """
    if not names:
        return
    default = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()
    newer = [each["name"] for each in default if each["protocol"] == "TLSv1.3"]
    missing = [name for name in newer if name not in names]
    if missing and len(missing) < len(newer):
        raise BadCipherSuites(
            f"Python cannot choose among the suites of TLS 1.3: name {' and '.join(missing)} too, or none of them"
        )
    older = [_checked(name) for name in names if name not in newer]
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if missing:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise BadCipherSuites("none of them is of a version of TLS that is enabled (ssl.enabled.protocols)")


def openssl_name(name: str) -> str:
    """Return the OpenSSL name of a TLS 1.2 cipher suite, given its IANA name or its OpenSSL name."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    keys, cipher = found["keys"].replace("_", "-"), found["cipher"]
    cipher = re.sub(r"(AES|ARIA|CAMELLIA)_(128|256)", r"\1\2", cipher)
    cipher = cipher.replace("_CBC_", "_").replace("CCM_8", "CCM8").replace("_", "-")
    if cipher.startswith("CHACHA20-POLY1305"):
        cipher = cipher.removesuffix("-SHA256")
    if keys == "ECDHE-RSA" and cipher.startswith("ARIA"):
        keys = "ECDHE"
    return cipher if keys == "RSA" else f"{keys}-{cipher}"


def _checked(name: str) -> str:
    """Return the suite's OpenSSL name. Raises BadCipherSuites if it is not a TLS 1.2 suite, or too weak."""
    ours = openssl_name(name)
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if re.fullmatch(r"[A-Z0-9-]+", ours):  # one name, and not an OpenSSL rule for many suites
            probe.set_ciphers(ours)
    except ssl.SSLError:
        pass  # an unknown suite: it is not among those offered, see below
    found = [each for each in probe.get_ciphers() if each["name"] == ours]
    if not found:
        raise BadCipherSuites(f"{name!r} is no cipher suite that {ssl.OPENSSL_VERSION} offers")
    if found[0]["strength_bits"] < LEAST_BITS or found[0]["auth"] in WITHOUT_CERTIFICATE:
        raise BadCipherSuites(f"{name} does not protect what is sent")
    return ours
