"""The SDK and the command line log in to our own broker, by every mechanism, with TLS and without."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import signed_tokens
from certificates import Authority, serving
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import AuthenticationError, AuthorizationError
from fencepost.client.producer.producer import Producer
from login_client import add_users
from served_broker import ServedBroker

CLEAR, TLS, MUTUAL = range(3)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def a_token() -> str:
    claims = {**signed_tokens.CLAIMS, "iat": int(time.time()), "exp": int(time.time()) + 600}
    return signed_tokens.token("p256", claims)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ServedBroker]:
    keys = authority.directory / "jwks.json"
    keys.write_bytes(signed_tokens.key_set(signed_tokens.jwk("p256")))
    with ServedBroker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0", "SASL_SSL://127.0.0.1:0", "SSL://127.0.0.1:0"),
        sasl_enabled_mechanisms=MECHANISMS,
        sasl_oauthbearer_jwks_endpoint_url=f"file://{keys}",
        sasl_oauthbearer_expected_issuer=signed_tokens.ISSUER,
        sasl_oauthbearer_expected_audience=(signed_tokens.AUDIENCE,),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:alice;User:CN=alice,OU=unit,O=org",
        **serving(authority.of_broker(), ssl_client_auth="requested", ssl_truststore_location=authority.file),
    ) as served:
        served.inside(add_users)
        yield served


def text(path: str) -> str:
    return Path(path).read_text()


def address(broker: ServedBroker, listener: int) -> str:
    return f"127.0.0.1:{broker.broker.addresses[listener][1]}"


def login(mechanism: str, user: str = "alice") -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return found | {"sasl_oauth_token_provider": a_token}
    return found | {"sasl_plain_username": user, "sasl_plain_password": f"{user}-pw"}


async def copied(servers: str, topic: str, **how: Any) -> list[bytes]:
    """Create the topic, write a record in a transaction, and return the values that a consumer reads."""
    async with Admin(servers, **how) as admin:
        await admin.create_topics(topic)
    async with Producer(servers, transactional_id=f"tx-{topic}", **how) as producer:
        async with producer.transaction() as tx:
            await tx.send(topic, b"one")
        async with Consumer(servers, topics=[topic], auto_offset_reset="earliest", **how) as consumer:
            return [
                record.value for records in (await consumer.getmany(timeout_ms=10_000)).values() for record in records
            ]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_logs_in_by_every_mechanism(broker: ServedBroker, mechanism: str) -> None:
    assert await copied(address(broker, CLEAR), f"clear-{mechanism}", **login(mechanism)) == [b"one"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_a_client_logs_in_over_tls_with_the_authoritys_certificate_given_as_text(
    broker: ServedBroker, authority: Authority, mechanism: str
) -> None:
    how = login(mechanism) | {"security_protocol": "SASL_SSL", "ssl_ca_pem": text(authority.file)}
    assert await copied(address(broker, TLS), f"tls-{mechanism}", **how) == [b"one"]


async def test_a_client_certificate_authenticates_and_requests_without_one_are_refused(
    broker: ServedBroker, authority: Authority
) -> None:
    certificate, key = authority.of_client()
    how = {
        "security_protocol": "SSL",
        "ssl_ca_pem": text(authority.file),
        "ssl_certificate_pem": text(certificate),
        "ssl_key_pem": text(key),
    }
    assert await copied(address(broker, MUTUAL), "mutual", **how) == [b"one"]
    del how["ssl_certificate_pem"], how["ssl_key_pem"]
    async with Admin(address(broker, MUTUAL), **how) as nobody:
        with pytest.raises(AuthorizationError):
            await nobody.describe_acls()


async def test_a_user_without_acls_can_log_in_but_create_topics_is_not_authorized(broker: ServedBroker) -> None:
    async with Admin(address(broker, CLEAR), **login("PLAIN", "bob")) as bob:
        with pytest.raises(AuthorizationError):
            await bob.create_topics("of-bob")


@pytest.mark.slow
@pytest.mark.parametrize("claims", [{"aud": "another"}, {"exp": 1_000_000_000}, {"iss": "another"}])
async def test_a_token_that_is_not_for_this_broker_is_refused(broker: ServedBroker, claims: dict[str, Any]) -> None:
    claims = {**signed_tokens.CLAIMS, "iat": int(time.time()), "exp": int(time.time()) + 600, **claims}
    refused = {**login("OAUTHBEARER"), "sasl_oauth_token_provider": lambda: signed_tokens.token("p256", claims)}
    with pytest.raises(AuthenticationError, match="does not accept the token"):
        async with Admin(address(broker, CLEAR), **refused):
            pass


@pytest.mark.slow
def test_the_command_line_logs_in_over_tls_and_by_certificate(broker: ServedBroker, authority: Authority) -> None:
    certificate, key = authority.of_client()

    def run(line: str, given: bytes = b"") -> tuple[int, str]:
        result = CliRunner().invoke(main, line.split(), input=given)
        return result.exit_code, result.output

    by_password = f"-b {address(broker, TLS)} --user alice --password-stdin --tls-ca {authority.file}"
    assert run(f"acl add --allow bob --operation read --topic of-bob {by_password}", b"alice-pw\n") == (
        0,
        "allow User:bob read topic of-bob\n",
    )
    by_certificate = f"-b {address(broker, MUTUAL)} --tls-ca {authority.file} --tls-cert {certificate} --tls-key {key}"
    assert run(f"acl list {by_certificate}")[1].splitlines()[1].split()[:4] == ["allow", "User:bob", "*", "read"]
    file = authority.directory / "client.properties"
    properties = {
        "bootstrap.servers": address(broker, MUTUAL),
        "security.protocol": "SSL",
        "ssl.truststore.location": authority.file,
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    assert run(f"acl rm --allow bob --client-config {file}")[0] == 0
    code, reported = run(f"acl list -b {address(broker, MUTUAL)} --tls-ca {authority.file}")
    assert (code, reported.count("\n")) == (6, 2)  # exit code 6: a login is needed, or refused; an error and a hint
    code, reported = run(f"acl list -b {address(broker, MUTUAL)} --tls")
    assert (code, "--tls-ca" in reported) == (6, True)


@pytest.mark.slow
def test_a_blocking_admin_logs_in_with_a_token_provider_that_is_not_async(broker: ServedBroker) -> None:
    program = f"""
import fencepost.sync as fp
with fp.Admin({address(broker, CLEAR)!r}, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
              sasl_oauth_token_provider=lambda: {a_token()!r}) as admin:
    admin.list_topics()
    print("listed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"listed\n"), done.stderr
