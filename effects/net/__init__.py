"""Net: TCP, listening and connecting (`tcp.py`). `fetching.py` reads a URL; it is imported only where it is needed."""

from .tcp import HAS_LEFT as HAS_LEFT
from .tcp import Elsewhere as Elsewhere
from .tcp import Listener as Listener
from .tcp import Net as Net
from .tcp import ProtocolFactory as ProtocolFactory
from .tcp import SystemNet as SystemNet
from .tcp import Writable as Writable
from .tcp import descriptor_of as descriptor_of
from .tcp import has_left as has_left
from .tcp import idle_socket as idle_socket
from .tcp import resolve as resolve
from .tcp import send_now as send_now
