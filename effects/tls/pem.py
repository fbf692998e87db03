"""Loads a client's certificate from PEM texts into an SSLContext, which Python can only do from files.

The rule: where the system has files in memory (Linux), a key is never on a disk; elsewhere it is for a moment in a file
that only this user can read.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


def load_certificate(context: ssl.SSLContext, certificate: str, key: str | None, password: str | None) -> None:
    """Load a certificate into the context. key: None if the certificate's text contains it.

    password: of the key. Raises OSError, ssl.SSLError, ValueError.
    """
    with _file(certificate if key is None else f"{certificate.rstrip()}\n{key}") as path:
        context.load_cert_chain(path, None, password or "")  # "": never ask whoever sits at the terminal


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Yield a path from which the text can be read, for the time of the block."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("pem", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
    else:
        fd, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(os.dup(fd), "w") as file:
            file.write(text)
        yield path
    finally:
        os.close(fd)
        if not path.startswith("/proc/"):
            os.unlink(path)
