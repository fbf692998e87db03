"""SaslHandshake and SaslAuthenticate: what a broker answers that has no authentication.

The rule: they are listed and answered as Apache Kafka does on a listener without SASL, so that a tool learns why,
and need not guess from a closed connection. Asked of 4.3.1; KIP-43.
"""

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
def sasl_handshake(broker: Services, call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """No mechanism may be used."""
    broker.metrics.error(ErrorCode.ILLEGAL_SASL_STATE)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(SaslAuthenticateRequest, waits=False)
def sasl_authenticate(broker: Services, call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Nobody has to say who he is."""
    broker.metrics.error(ErrorCode.ILLEGAL_SASL_STATE)
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NO_SASL, auth_bytes=b"")
