"""SaslHandshake, SaslAuthenticate and access control lists: what a broker answers that has no authentication.

The rule: they are listed and answered as Apache Kafka does on a listener without SASL and without an authorizer, so
that a tool learns why, and need not guess from a closed connection. Asked of 4.3.1; KIP-43, KIP-140.
"""

from ...protocol.errors import ErrorCode
from ...protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ...protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..requests.dispatch import Call, handles
from ..requests.services import Services

NO_AUTHORIZER = "No Authorizer is configured."
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


@handles(DescribeAclsRequest, waits=False)
def describe_acls(broker: Services, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There are none, and nobody would ask them."""
    broker.metrics.error(ErrorCode.SECURITY_DISABLED)
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


@handles(CreateAclsRequest, waits=False)
def create_acls(broker: Services, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """None is made: it would protect nothing."""
    broker.metrics.error(ErrorCode.SECURITY_DISABLED)
    refused = CreateAclsResponse.Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


@handles(DeleteAclsRequest, waits=False)
def delete_acls(broker: Services, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """There are none."""
    broker.metrics.error(ErrorCode.SECURITY_DISABLED)
    refused = DeleteAclsResponse.FilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
