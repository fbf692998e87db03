"""Who a client is: the mechanism it chooses, and the mechanism's own messages inside Kafka's (KIP-43, KIP-152)."""

from ..schema import Int16, Int64, Secret, String, field, request, response


@request(api=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """Choose a SASL mechanism. From version 1 on its messages are sent in SaslAuthenticate."""

    mechanism: String


@response(to=SaslHandshakeRequest)
class SaslHandshakeResponse:
    """An error if the mechanism is not enabled, and the enabled mechanisms."""

    error_code: Int16 = 0
    mechanisms: list[String]


@request(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """A message of the SASL mechanism."""

    auth_bytes: Secret


@response(to=SaslAuthenticateRequest)
class SaslAuthenticateResponse:
    """The mechanism's answer, and for how long the session is valid."""

    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Secret
    session_lifetime_ms: Int64 = field("1+", default=0)
