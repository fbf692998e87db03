"""TLS of listeners (`listener.py`); `pem.py` loads a client's certificate, and is imported only if there is one."""

from .listener import BadTlsFiles as BadTlsFiles
from .listener import Handshake as Handshake
from .listener import TlsAcceptor as TlsAcceptor
from .listener import TlsAdmission as TlsAdmission
from .listener import TlsFiles as TlsFiles
from .listener import first_certificate as first_certificate
from .listener import peer_certificate as peer_certificate
from .listener import server_context as server_context
from .listener import stamp as stamp
