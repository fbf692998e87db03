"""The user's name for a client certificate: its subject as Kafka writes it, mapped by ssl.principal.mapping.rules.

Pure.

The rules: a subject is written as RFC 2253 and Java's X500Principal.getName() do, with the last part first:
`CN=a,OU=b,O=c`. The first of ssl.principal.mapping.rules whose pattern matches the whole subject gives the name. If
none matches, the client is refused. Certificates that get here were signed by a trusted authority; one that cannot be
parsed is refused nevertheless.

Sources: RFC 5280, RFC 2253, KIP-371 (SslPrincipalMapper); names compared with Java's.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)  # Java reads all of these as UTF-8, and shows others in hexadecimal
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_ESCAPED = ',=+<>#;"\\'


class BadCertificate(Exception):
    """Raised for a certificate that does not parse."""


class _Part(NamedTuple):
    """One element of DER: its tag, its content, and the whole element with tag and length."""

    tag: int
    body: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate, such as `CN=alice,O=acme`. Raises BadCertificate."""
    parts = [_relative_name(part.body) for part in _parts(_fields(certificate)[4].body)]
    return ",".join(reversed(parts))


def expires_ms(certificate: bytes) -> int:
    """Return when the certificate expires, as wall time in ms. Raises BadCertificate."""
    try:
        tag, body, _ = list(_parts(_fields(certificate)[3].body))[1]
        text = body.decode("ascii")
        if tag == 0x17:  # a year of two digits, from 1950 on
            text = ("19" if int(text[:2]) >= 50 else "20") + text
        return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, IndexError) as error:
        raise BadCertificate("its validity does not parse") from error


def _fields(certificate: bytes) -> list[_Part]:
    """Return the fields of a certificate without its version: serial number, algorithm, issuer, validity, subject, …
    Raises BadCertificate.
    """
    try:
        (whole,) = _parts(certificate)
        fields = list(_parts(next(iter(_parts(whole.body))).body))
    except (ValueError, StopIteration, RuntimeError) as error:
        raise BadCertificate("it is no certificate") from error
    fields = fields[1:] if fields and fields[0].tag == _VERSION else fields
    if len(fields) < 6:
        raise BadCertificate("it lacks fields")
    return fields


def _parts(data: bytes) -> Iterator[_Part]:
    """Yield the consecutive elements of DER data. Raises BadCertificate."""
    at = 0
    while at < len(data):
        header = data[at : at + 2]
        if len(header) < 2 or header[0] & 0x1F == 0x1F:
            raise BadCertificate("an element lacks its tag of one byte or its length")
        length, begin = header[1], at + 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                raise BadCertificate("a part whose length is not definite")
            length, begin = int.from_bytes(data[begin : begin + size], "big"), begin + size
        if begin + length > len(data):
            raise BadCertificate("a part longer than what it is in")
        yield _Part(header[0], data[begin : begin + length], data[at : begin + length])
        at = begin + length


def _relative_name(body: bytes) -> str:
    """Return one relative distinguished name of a subject; several attributes are joined by +."""
    return "+".join(_attribute(part.body) for part in _parts(body))


def _attribute(body: bytes) -> str:
    """Return one attribute of a subject as `CN=alice`. Raises BadCertificate."""
    try:
        kind, value = _parts(body)
    except ValueError as error:
        raise BadCertificate("an attribute that is no pair") from error
    oid = _oid(kind.body)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    try:
        return f"{keyword}={_escape(value.body.decode())}"
    except UnicodeDecodeError as error:
        raise BadCertificate("a text that is no UTF-8") from error


def _oid(body: bytes) -> str:
    """Decode an object identifier into its dotted form. Raises BadCertificate."""
    numbers: list[int] = []
    number = 0
    for byte in body:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise BadCertificate("an attribute has no type")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - first * 40, *numbers[1:])))


def _escape(text: str) -> str:
    """Escape a text for a subject as RFC 2253 requires, also blanks at its ends."""
    escaped = "".join("\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = escaped.strip(" \r")
    begin = escaped.index(inner) if inner else len(escaped)
    end = begin + len(inner)
    return "".join(f"\\{char}" if not begin <= at < end else char for at, char in enumerate(escaped))


# ---- ssl.principal.mapping.rules ---------------------------------------------------------------------------------

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_RULES = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")


class MappingRule(NamedTuple):
    """A rule that maps a subject to a user's name.

    pattern: None for DEFAULT, which maps a subject to itself. case: L for lower case, U for upper case, or empty.
    """

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """Return the name that the rule gives to this subject; None if the rule does not match it."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = re.sub(r"\$(\d)", lambda group: found[int(group[1])] or "", self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Parse rules `RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas. Raises ValueError."""
    rules: list[MappingRule] = []
    at, text = 0, text.strip() or "DEFAULT"
    while at < len(text):
        found = _RULES.match(text, at)
        if found is None:
            raise ValueError(f"{text[at:]!r} is neither RULE:pattern/replacement/[LU] nor DEFAULT")
        at = found.end()
        is_default, pattern, replacement, case = found.groups()
        rules.append(MappingRule() if is_default else _rule(pattern, replacement, case))
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    """Return the rule with this pattern, replacement and case. Raises ValueError for an invalid pattern, or a
    replacement that names a group which the pattern lacks.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error}") from None
    for group in re.findall(r"\$(\d)", replacement):
        if int(group) > compiled.groups:
            raise ValueError(f"{replacement!r} names group {group} of {pattern!r}, which has {compiled.groups}")
    return MappingRule(compiled, replacement, case)


def name_of(subject: str, rules: tuple[MappingRule, ...]) -> str | None:
    """Return the user's name for a certificate with this subject; None if no rule matches."""
    for rule in rules:
        name = rule.name_of(subject)
        if name is not None:
            return name
    return None
