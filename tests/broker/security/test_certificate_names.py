"""Subjects of certificates as Java writes them, and the names that rules make of them."""

import datetime
from base64 import b64decode

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from fencepost.broker.security.certificate_names import (
    BadCertificate,
    expires_ms,
    mapping_rules,
    name_of,
    subject_of,
)
from hypothesis import given
from hypothesis import strategies as st

END = datetime.datetime(2061, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


def der_of(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


CERTIFICATE = der_of(
    trustme.CA()
    .issue_cert(
        "alice@example.com", common_name="alice", organization_name="o", organization_unit_name="u, v", not_after=END
    )
    .cert_chain_pems[0]
    .bytes()
)


def with_name(der_of_name: bytes) -> bytes:
    """Return DER bytes that are a certificate only as far as a reader of its subject looks; the subject is
    `der_of_name`.
    """

    def wrapped(tag: int, body: bytes) -> bytes:
        assert len(body) < 65_536
        return bytes([tag, 0x82]) + len(body).to_bytes(2, "big") + body

    plain = wrapped(0x30, b"")
    fields = wrapped(0xA0, b"\x02\x01\x02") + b"\x02\x01\x01" + plain * 3 + der_of_name + plain * 2
    return wrapped(0x30, wrapped(0x30, fields))


def test_a_certificate_subject_is_written_with_its_last_part_first():
    assert subject_of(CERTIFICATE) == r"CN=alice,OU=u\, v,O=o"


def test_a_certificates_expiry_is_read_in_both_time_formats():
    assert expires_ms(CERTIFICATE) == END.timestamp() * 1000
    early = trustme.CA().issue_cert("a", not_after=END.replace(year=2031)).cert_chain_pems[0].bytes()
    assert expires_ms(der_of(early)) == END.replace(year=2031).timestamp() * 1000


# What X500Principal.getName() of Java 21 gives for names in DER.
JAVA = [
    ("MBExDzANBgNVBAMMBiAgYSAgIA==", r"CN=\ \ a\ \ \ "),
    ("MBMxETAPBgNVBAMMCCxhPSs8Pjsi", r"CN=\,a\=\+\<\>\;" + '\\"'),
    ("MBUxEzARBgkqhkiG9w0BCQEWBGFAYi4=", "1.2.840.113549.1.9.1=#16046140622e"),
    ("MBkxFzALBgNVBAsMBHVuaXQwCAYDVQQDDAFh", "OU=unit+CN=a"),
]


@pytest.mark.parametrize(("name", "written"), JAVA)
def test_a_certificate_name_is_escaped_as_in_java(name, written):
    assert subject_of(with_name(b64decode(name))) == written


@given(st.binary(max_size=60), st.integers(0, len(CERTIFICATE)))
def test_broken_certificates_are_parsed_or_raise_bad_certificate(noise, at):
    for broken in (noise, CERTIFICATE[:at], CERTIFICATE[:at] + noise + CERTIFICATE[at + len(noise) :]):
        for read in (subject_of, expires_ms):
            try:
                read(broken)
            except BadCertificate:
                pass


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a", "CN=a"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=x", "serviceuser"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=a,OU=Other", None),
        (r"RULE:^CN=(.*?), ?OU=(.*?),.*$/$1@$2/L , DEFAULT", "CN=Ad,OU=B,O=c", "ad@b"),
        (r"RULE:^CN=([^,]*).*$/$1/U,DEFAULT", "CN=adminUser,O=c", "ADMINUSER"),
        (r"RULE:^OU=(.*)$/$1/L,DEFAULT", "CN=a", "CN=a"),
        (r"RULE:CN=a\/b/c\/d/", "CN=a/b", r"c\/d"),
        (r"RULE:CN=a/x/", "CN=ab", None),
    ],
)
def test_the_first_matching_mapping_rule_gives_the_user_name(rules, subject, name):
    assert name_of(subject, mapping_rules(rules)) == name


@pytest.mark.parametrize(
    "text",
    ["RULE:a/b", "RULE:a/b/X", "OTHER", "DEFAULT DEFAULT", "RULE:(/b/", "RULE:a/$1/", "RULE:a/b/ DEFAULT", "RULE:///"],
)
def test_malformed_mapping_rules_are_refused(text):
    with pytest.raises(ValueError):
        mapping_rules(text)
