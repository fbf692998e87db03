"""What a listener with OAUTHBEARER needs to verify tokens: its settings, and keys that are fetched regularly.

The rule: a broker does not start without a source of keys, an issuer and an audience, because it would then accept
everybody or nobody (CVE-2026-33557). A file of keys must exist at the start; a web server may be unavailable then.
"""

from functools import partial

from ...effects.net.fetching import CannotFetch, fetch, scheme_of
from ..config.listener_settings import ListenerOptions, ListenerSettings
from ..config.options import InvalidOption
from ..security.oauth import BadKeySet, KeySet, TokenRules, TokenVerifier, read_key_set

FETCH_S = 5.0
MAX_BYTES = 1 << 20
FILE_AGAIN_MS = 10_000
URL = "sasl.oauthbearer.jwks.endpoint.url"
INSTALL = "install it: pip install 'fencepost[oauth]'"


class TokenSource:
    """Where the keys of one listener come from. verifier: verifies tokens with these keys. every_ms: how often they are
    fetched.
    """

    def __init__(self, listener: ListenerSettings) -> None:
        """Read the listener's token settings, and the keys if they are in a file. Raises InvalidOption."""
        options = listener.options
        self.url = options.sasl_oauthbearer_jwks_endpoint_url
        rules = _rules_of(listener.name, options)
        self.every_ms = options.sasl_oauthbearer_jwks_endpoint_refresh_ms
        try:
            self.verifier = TokenVerifier(rules)
            is_file = scheme_of(self.url) == "file"
            if is_file:
                self.every_ms = min(self.every_ms, FILE_AGAIN_MS)
                self.put(read_key_set(self.fetch()))
        except ImportError:
            raise InvalidOption("OAUTHBEARER needs PyJWT, which is not installed", URL, INSTALL) from None
        except (ValueError, CannotFetch, BadKeySet) as error:
            raise InvalidOption(f"{URL}: {error}", URL, "file:///PATH of a JWKS, or its https:// address") from None

    @property
    def fetch(self) -> "partial[bytes]":
        """Return a function that fetches the key set and returns its bytes. It blocks, and raises CannotFetch."""
        return partial(fetch, self.url, FETCH_S, MAX_BYTES)

    def put(self, keys: KeySet) -> None:
        """Verify tokens with these keys from now on."""
        self.verifier.keys = keys


def _rules_of(listener: str, options: ListenerOptions) -> TokenRules:
    """Return the rules by which tokens are verified. Raises InvalidOption if a setting they need is missing."""
    needed = {
        URL: options.sasl_oauthbearer_jwks_endpoint_url,
        "sasl.oauthbearer.expected.issuer": options.sasl_oauthbearer_expected_issuer,
        "sasl.oauthbearer.expected.audience": options.sasl_oauthbearer_expected_audience,
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise InvalidOption(
            f"listener {listener} offers OAUTHBEARER and has nothing to verify tokens with",
            missing[0],
            f"set {', '.join(missing)}",
        )
    return TokenRules(
        issuer=options.sasl_oauthbearer_expected_issuer,
        audiences=options.sasl_oauthbearer_expected_audience,
        claim=options.sasl_oauthbearer_sub_claim_name,
        skew_s=options.sasl_oauthbearer_clock_skew_seconds,
    )
