"""Certificates for tests, as PEM files: of brokers, of clients, of authorities that nobody trusts, and expired ones."""

import datetime
import ssl
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization as form

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority. directory: where it writes its files."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self._made = trustme.CA(organization_name=name)
        self.file = str(directory / f"{name}.pem")
        self._made.cert_pem.write_to_path(self.file)

    def of_broker(self, name: str = "broker", *, expired: bool = False) -> tuple[str, str]:
        """Return the files of a certificate for this machine, and of its key."""
        return self._written(name, "127.0.0.1", "localhost", expired=expired)

    def of_client(self, name: str = "client", *, user: str = "alice", expired: bool = False) -> tuple[str, str]:
        """Return the files of a certificate whose subject has this common name, and of its key."""
        return self._written(name, f"{user}@example.com", common_name=user, expired=expired)

    def _written(self, name: str, *identities: str, expired: bool = False, **more: Any) -> tuple[str, str]:
        made = self._made.issue_cert(
            *identities,
            organization_name="org",
            organization_unit_name="unit",
            not_after=LONG_AGO if expired else None,
            not_before=LONG_AGO,
            **more,
        )
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        loaded = form.load_pem_private_key(made.private_key_pem.bytes(), None)
        key.write_bytes(loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
        return str(certificate), str(key)

    def trusting(self, client: tuple[str, str] | None = None) -> ssl.SSLContext:
        """Return a client's SSLContext that trusts this authority."""
        context = ssl.create_default_context(cafile=self.file)
        if client is not None:
            context.load_cert_chain(*client)
        return context


def serving(certificate: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return the settings of a broker that has this certificate."""
    return {"ssl_keystore_location": certificate[0], "ssl_key_location": certificate[1]} | more
