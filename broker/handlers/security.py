"""SaslHandshake and SaslAuthenticate: how a client logs in.

The rule: a listener without logins also lists these APIs, and answers them with the error that Apache Kafka gives
there. A tool then learns the reason, which it could only guess if the connection were closed. Asked of 4.3.1; KIP-43,
KIP-152.
"""

from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..requests.dispatch import Call, handles
from ..requests.services import Services

NO_SASL = "the connection uses no SASL: no such request is expected on it"


@handles(SaslHandshakeRequest, waits=False)
def sasl_handshake(broker: Services, call: Call, request: SaslHandshakeRequest) -> Any:
    """Answer SaslHandshake, in which a client chooses a mechanism. Returns the response; if the login failed, a Parked
    that gets the response later.
    """
    login = call.connection.login
    if login is not None:
        return login.handshake(request, call.version)
    broker.metrics.error("SaslHandshake", ErrorCode.ILLEGAL_SASL_STATE)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(SaslAuthenticateRequest, waits=False)
def sasl_authenticate(broker: Services, call: Call, request: SaslAuthenticateRequest) -> Any:
    """Answer SaslAuthenticate, which carries the mechanism's next message. Returns the response, or a Parked that gets
    it when a worker thread has checked the password.
    """
    login = call.connection.login
    if login is not None:
        return login.authenticate(request)
    broker.metrics.error("SaslAuthenticate", ErrorCode.ILLEGAL_SASL_STATE)
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NO_SASL, auth_bytes=b"")
