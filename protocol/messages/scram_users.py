"""Users who log in by SCRAM: who there is, and new credentials (KIP-554)."""

from ..schema import Int8, Int16, Int32, Secret, String, field, request, response, struct


@request(api=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Ask for the credentials of users; null or an empty list: of all."""

    @struct
    class User:
        name: String

    users: list[User] | None


@response(to=DescribeUserScramCredentialsRequest)
class DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of each user's credentials, which are not secret."""

    @struct
    class Result:
        @struct
        class Credential:
            mechanism: Int8
            iterations: Int32

        user: String
        error_code: Int16 = 0
        error_message: String | None = None
        credential_infos: list[Credential] = field(factory=list)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: list[Result] = field(factory=list)


@request(api=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Remove credentials, and add or replace others."""

    @struct
    class Deletion:
        name: String
        mechanism: Int8

    @struct
    class Upsertion:
        """salted_password: computed by the client from the password; as secret as the password."""

        name: String
        mechanism: Int8
        iterations: Int32
        salt: Secret
        salted_password: Secret

    deletions: list[Deletion]
    upsertions: list[Upsertion]


@response(to=AlterUserScramCredentialsRequest)
class AlterUserScramCredentialsResponse:
    """An error for each user."""

    @struct
    class Result:
        user: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Result]
