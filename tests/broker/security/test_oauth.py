"""Which tokens count, and which do not: every forgery that the papers name, and each claim that is wrong."""

import hmac
import json

import pytest
from cryptography.hazmat.primitives import serialization
from fencepost.broker.security.oauth import LONGEST_HEADER, BadKeySet, TokenRules, TokenVerifier, read_key_set
from fencepost.broker.security.sasl import Identity, TokenRefused
from hypothesis import given
from hypothesis import strategies as st
from signed_tokens import AUDIENCE, CLAIMS, ISSUER, NOW_S, encoded, forged, jwk, key_set, private_key, token

NOW_MS = NOW_S * 1000
RULES = TokenRules(ISSUER, (AUDIENCE, "other"), skew_s=30)
KEYS = ("rsa-1", "rsa-2", "p256-1", "p384-1", "ed25519-1")


def verifier(*keys, rules=RULES, asked=None):
    """Return a verifier with these keys, or with all of KEYS. asked: a list that gets an entry whenever new keys are
    asked for.
    """
    made = TokenVerifier(rules, lambda: None if asked is None else asked.append(1))
    made.keys = read_key_set(key_set(*(keys or [jwk(name) for name in KEYS])))
    return made


def refused(text, verifying=None, now_ms=NOW_MS):
    """Check that the token is refused, and not quoted in the error. Return the reason."""
    with pytest.raises(TokenRefused) as raised:
        (verifying or verifier()).verify(text, now_ms)
    shown = str(raised.value)
    assert not any(part in shown for part in text.split(".") if len(part) > 8), "it quotes the token"
    return shown


# ---- accepted tokens ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_a_token_signed_by_any_key_of_the_set_gives_its_user_and_expiry(name):
    assert verifier().verify(token(name), NOW_MS) == Identity("alice", (NOW_S + 600 + 30) * 1000)


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS512"])
def test_an_rsa_key_verifies_all_rsa_algorithms_or_only_the_one_its_jwk_names(algorithm):
    text = token("rsa-1", algorithm=algorithm)
    assert verifier().verify(text, NOW_MS).name == "alice"
    assert verifier(jwk("rsa-1", alg=algorithm)).verify(text, NOW_MS).name == "alice"
    assert refused(text, verifier(jwk("rsa-1", alg="RS256"))) == "its algorithm is none of its key's"


def test_the_claim_with_the_user_name_is_configurable():
    rules = TokenRules(ISSUER, (AUDIENCE,), claim="preferred_username")
    text = token("rsa-1", {"preferred_username": "bob"})
    assert verifier(rules=rules).verify(text, NOW_MS).name == "bob"
    assert refused(token("rsa-1"), verifier(rules=rules)) == "it does not name a valid user"


@pytest.mark.parametrize("audience", [AUDIENCE, "other", ["x", AUDIENCE], [1, None, "other"]])
def test_a_token_is_accepted_if_one_of_its_audiences_is_an_accepted_one(audience):
    assert verifier().verify(token("rsa-1", {"aud": audience}), NOW_MS).name == "alice"


def test_a_token_without_a_key_id_is_verified_by_the_only_key():
    text = token("rsa-1", kid=None)
    assert verifier(jwk("rsa-1")).verify(text, NOW_MS).name == "alice"
    assert verifier(jwk("rsa-1", kid=None)).verify(text, NOW_MS).name == "alice"
    assert refused(text) == "it names no key that is known"


# ---- forgeries ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 1, ["RS256"], "RS256 ", "rs256"])
@pytest.mark.parametrize("signature", [b"", b"x" * 256])
def test_a_token_without_a_signature_or_of_no_algorithm_is_refused(algorithm, signature):
    assert refused(forged({"alg": algorithm, "kid": "rsa-1"}, signature=signature))


@pytest.mark.parametrize("digest", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "der", "json"])
def test_a_public_key_used_as_hmac_secret_is_refused(digest, form):
    public = private_key("rsa-1").public_key()
    encodings = {"pem": serialization.Encoding.PEM, "der": serialization.Encoding.DER}
    if form == "json":
        secret = json.dumps(jwk("rsa-1")).encode()
    else:
        secret = public.public_bytes(encodings[form], serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': digest, 'kid': 'rsa-1'})}.{encoded(CLAIMS)}"
    signature = hmac.digest(secret, signed.encode(), f"sha{digest[2:]}")
    assert refused(f"{signed}.{encoded(signature)}") == "its algorithm is none of its key's"


@pytest.mark.parametrize("name", KEYS)
def test_a_token_signed_by_another_key_under_a_known_key_id_is_refused(name):
    for other in KEYS:
        if other != name:
            assert refused(token(other, kid=name))


@pytest.mark.slow
def test_a_key_embedded_in_the_token_is_not_trusted():
    evil = jwk("rsa-evil", kid="rsa-1")
    for headers in ({"jwk": evil}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example"}):
        assert refused(token("rsa-evil", kid="rsa-1", **headers)) == "it does not verify (InvalidSignatureError)"
        assert refused(token("rsa-evil", **headers)) == "it names no key that is known"


@pytest.mark.parametrize("name", ["unknown", "", "../../rsa-1", "rsa-1\0", "RSA-1", "' or 1=1"])
def test_a_token_with_an_unknown_key_id_is_refused_and_keys_are_refetched(name):
    asked: list[int] = []
    assert refused(token("rsa-1", kid=name), verifier(asked=asked)) == "it names no key that is known"
    assert asked == [1]


def test_a_token_header_with_more_than_longest_header_bytes_is_refused():
    long = forged({"alg": "RS256", "kid": "rsa-1", "more": ["x"] * LONGEST_HEADER})
    assert refused(long) == f"its header has more than {LONGEST_HEADER} bytes"


@pytest.mark.parametrize("headers", [{"crit": ["exp"]}, {"crit": []}, {"b64": False, "crit": ["b64"]}, {"b64": True}])
def test_a_token_with_critical_extensions_is_refused(headers):
    _, claims, signature = token("rsa-1").split(".")
    assert refused(f"{encoded({'alg': 'RS256', 'kid': 'rsa-1'} | headers)}.{claims}.{signature}")


def test_a_signature_of_zeros_is_refused_on_any_curve():
    for name, size in (("p256-1", 64), ("p384-1", 96), ("ed25519-1", 64)):
        algorithm = token(name).split(".")[0]
        assert refused(f"{algorithm}.{encoded(CLAIMS)}.{encoded(bytes(size))}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rsa-1", "p256-1", "ed25519-1"])
def test_a_token_with_any_character_but_the_last_changed_is_refused(name):
    """The last character is left out because it has unused bits."""
    text, verifying = token(name), verifier()
    for place in range(0, len(text) - 1, max(1, len(text) // 120)):
        for change in {"A", "B", "_", "."} - {text[place]}:
            with pytest.raises(TokenRefused):
                verifying.verify(text[:place] + change + text[place + 1 :], NOW_MS)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "...", "a.b.c", "a.b.c.d.e", "ä.b.c", "{}.{}."),
        *(forged(header) for header in ([], "RS256", {}, b"[" * 10_000, b"\xff", {"alg": "RS256", "kid": ["rsa-1"]})),
        forged({"alg": "RS256", "kid": "rsa-1"}, b"[" * 10_000),
    ],
)
def test_text_that_is_not_a_token_is_refused(text):
    assert refused(text)


@pytest.mark.slow
@given(st.text(alphabet='abcXYZ0_-.{}"', max_size=60) | st.text(max_size=30))
def test_random_texts_are_refused_as_tokens(text):
    with pytest.raises(TokenRefused):
        verifier(jwk("p256-1")).verify(text, NOW_MS)


# ---- claims ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"iss": ""}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "someone"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": [None, 1, [AUDIENCE]]}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": AUDIENCE.upper()}, "another audience"),
        ({"exp": None}, "no end"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": 0}, "expired"),
        ({"exp": -1}, "not a time"),
        ({"exp": "9999999999"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": [NOW_S + 600]}, "not a time"),
        ({"exp": float("nan")}, "not a time"),
        ({"exp": float("inf")}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"exp": 10**400}, "not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": "soon"}, "not a time"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"iat": float("nan")}, "not a time"),
        ({"sub": None}, "name a valid user"),
        ({"sub": ""}, "name a valid user"),
        ({"sub": 7}, "name a valid user"),
        ({"sub": ["alice"]}, "name a valid user"),
        ({"sub": "ali\nce"}, "name a valid user"),
        ({"sub": "ali\0ce"}, "name a valid user"),
        ({"sub": "\ud800"}, "name a valid user"),
        ({"sub": "a" * 1001}, "name a valid user"),
    ],
)
def test_a_correctly_signed_token_with_a_wrong_or_missing_claim_is_refused(claims, why):
    assert why in refused(token("rsa-1", claims))


def test_token_times_are_accepted_within_the_configured_clock_skew():
    for claims in ({"exp": NOW_S - 29}, {"nbf": NOW_S + 30}, {"iat": NOW_S + 30}, {"exp": NOW_S + 0.5}):
        assert verifier().verify(token("rsa-1", claims), NOW_MS).name == "alice"
    assert "expired" in refused(token("rsa-1"), now_ms=(NOW_S + 600 + 30) * 1000)


@pytest.mark.parametrize("claims", [b"", b"null", b"[]", b'"alice"', b"{", b"\xff", b"[" * 50_000])
def test_a_signed_payload_that_is_not_a_json_object_is_refused(claims):
    import jwt

    text = jwt.PyJWS().encode(claims, private_key("rsa-1"), "RS256", {"kid": "rsa-1"})
    assert refused(text)


# ---- sets of keys ------------------------------------------------------------------------------------------------


def test_tokens_are_refused_before_a_key_set_was_read():
    assert refused(token("rsa-1"), TokenVerifier(RULES)) == "it names no key that is known"


USELESS = {
    "a shared secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"},
    "for encryption": jwk("rsa-1", use="enc"),
    "for signing": jwk("rsa-1", key_ops=["sign"]),
    "a weak one": jwk("rsa-weak"),
    "one that could sign": jwk("rsa-1", d="AQAB"),
    "of an algorithm of another kind": jwk("rsa-1", alg="ES256"),
    "of a shared algorithm": jwk("rsa-1", alg="HS256"),
    "of no algorithm": jwk("rsa-1", alg="none"),
    "without its number": jwk("rsa-1", n=None),
    "not a point of the curve": jwk("p256-1", x="AAAA"),
    "of an unknown curve": jwk("p256-1", crv="secp256k1"),
    "of an unknown kind": {"kty": "XYZ", "kid": "x"},
    "of a list for a kind": {"kty": ["RSA"], "kid": "x"},
    "without a kind": {"kid": "x"},
    "with a number for an id": jwk("rsa-1", kid=5),
    "with a list for an id": jwk("rsa-1", kid=["rsa-1"]),
    "with a number for its purposes": jwk("rsa-1", key_ops=5),
    "with a text for its purposes": jwk("rsa-1", key_ops="verify"),
    "no object": 7,
}


@pytest.mark.parametrize("what", USELESS)
def test_keys_that_cannot_verify_tokens_are_ignored(what):
    with pytest.raises(BadKeySet, match="no key that can verify tokens"):
        read_key_set(key_set(USELESS[what]))
    assert set(read_key_set(key_set(USELESS[what], jwk("p256-1")))) == {"p256-1"}


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"null", b'{"keys": 1}', b'{"keys": {}}', b"\xff", b"[" * 100_000, key_set(*[{}] * 101)]
)
def test_text_that_is_not_a_key_set_is_refused(text):
    with pytest.raises(BadKeySet, match="not a JSON object"):
        read_key_set(text)


def test_a_key_set_with_duplicate_or_missing_key_ids_is_refused():
    for keys in ([jwk("rsa-1"), jwk("rsa-2", kid="rsa-1")], [jwk("rsa-1"), jwk("rsa-2", kid=None)]):
        with pytest.raises(BadKeySet):
            read_key_set(key_set(*keys))


def test_the_repr_of_a_key_set_shows_no_key():
    assert "0x" not in repr(read_key_set(key_set(jwk("rsa-1"))))
