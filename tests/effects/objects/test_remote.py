"""How the answers of an S3 server are converted. A test server gives the answers that a test sets."""

import pytest
from fencepost.effects.objects import BadUrl, Exists, Missing, Refused, Unclear, is_url, open_objects, remote
from fencepost.effects.objects.aws_profiles import profile
from fencepost.effects.objects.remote import s3_config
from odd_store import CUT, SILENT, OddStore, error_body


@pytest.fixture
def store(monkeypatch, tmp_path):
    odd = OddStore()
    monkeypatch.setenv("AWS_ENDPOINT_URL", odd.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    yield odd
    odd.close()


@pytest.fixture
def objects(store):
    return open_objects("s3://bucket/some/prefix")


def test_a_create_is_conditional_on_the_name_being_unused(store, objects):
    store.answers = [(200, b"")]
    objects.create("a/1", b"x")
    assert store.asked == [("PUT", "/bucket/some/prefix/a/1", "*")]  # the value of If-None-Match


@pytest.mark.parametrize(
    ("endpoint", "environment", "unsigned"),
    [
        ("", {}, "true"),
        ("https://store:9000", {}, "true"),
        ("http://store:9000", {}, None),
        ("", {"AWS_ENDPOINT_URL": "http://store:9000"}, None),
        ("", {"AWS_UNSIGNED_PAYLOAD": "false"}, None),
    ],
)
def test_bodies_are_unsigned_over_tls_unless_the_environment_decides(endpoint, environment, unsigned, tmp_path):
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(tmp_path / "none"))
    assert s3_config({**files, **environment}, endpoint).get("unsigned_payload") == unsigned


ANSWERS = [
    (412, error_body("PreconditionFailed"), Exists),
    (409, error_body("ConditionalRequestConflict"), Exists),
    (403, error_body("AccessDenied", "no"), Refused),
    (403, error_body("InvalidAccessKeyId"), Refused),
    (401, b"", Refused),
    (404, error_body("NoSuchBucket"), Refused),
    (400, error_body("InvalidBucketName"), Refused),
    (500, b"", Unclear),
    (503, error_body("SlowDown"), Unclear),
    (CUT, b"", None),
]


@pytest.mark.parametrize(("status", "body", "error"), ANSWERS[:-1])
def test_each_failed_answer_to_a_create_raises_its_error_without_a_retry(store, objects, status, body, error):
    store.answers = [(status, body)]
    with pytest.raises(error):
        objects.create("a/1", b"x")
    assert len(store.asked) == 1


@pytest.mark.parametrize(("status", "body", "error"), [*ANSWERS[2:-1], (404, error_body("NoSuchKey"), Missing)])
def test_each_failed_http_answer_to_a_read_raises_the_error_listed_for_it(store, objects, status, body, error):
    store.answers = [(status, body)]
    with pytest.raises(error):
        objects.read("a/1")


def test_a_read_answer_cut_in_its_body_raises_unclear(store, objects):
    store.answers = [(CUT, b"half")]
    with pytest.raises(Unclear):
        objects.read("a/1")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (403, error_body("AccessDenied"), Refused), (404, error_body("NoSuchBucket"), Refused), (500, b"", Unclear),
    ],
)  # fmt: skip
def test_each_failed_answer_to_a_listing_or_delete_raises_the_error_listed_for_it(store, objects, status, body, error):
    store.answers = [(status, body)] * 2
    with pytest.raises(error):
        objects.list("a/")
    with pytest.raises(error):
        objects.delete("a/1")


def test_a_refused_error_has_a_one_line_cause_and_hint_without_secrets(store, objects):
    store.answers = [
        (404, error_body("NoSuchBucket")), (403, error_body("AccessDenied", "Access Denied")),
        (403, error_body("SignatureDoesNotMatch")),
    ]  # fmt: skip
    said = []
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            objects.create("a", b"")
        said.append(str(refused.value))
        assert "\n" not in str(refused.value) + refused.value.hint
        assert "secret" not in str(refused.value)
    assert said == [
        "s3://bucket: there is no such bucket",
        "s3://bucket/some/prefix/a: the store does not allow it (the server answered 403, AccessDenied: Access Denied)",
        "s3://bucket/some/prefix/a: the store does not take these keys (SignatureDoesNotMatch)",
    ]


def test_a_create_on_an_unreachable_server_raises_unclear(store, objects):
    store.close()
    with pytest.raises(Unclear) as unclear:
        objects.create("a", b"")
    assert "\n" not in str(unclear.value)


@pytest.fixture
def short_deadlines(monkeypatch):
    """Set a first deadline of 0.3 s, and later ones that are longer than any test."""
    monkeypatch.setattr(remote, "DEADLINES_S", (0.3, 600.0, 600.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda objects: objects.create("a/1", b"x"),
        lambda objects: objects.put("a/1", b"x"),
        lambda objects: objects.read("a/1"),
        lambda objects: objects.read("a/1", 0, 128),
        lambda objects: objects.list("a/"),
        lambda objects: objects.delete("a/1"),
    ],
)
def test_a_small_call_on_a_silent_connection_raises_unclear_at_the_deadline(short_deadlines, store, call):
    store.answers = [(SILENT, b"")]
    with pytest.raises(Unclear):
        call(open_objects("s3://bucket/some/prefix"))


def test_a_call_that_has_timed_out_is_given_more_time_when_it_is_repeated(short_deadlines, store):
    objects = open_objects("s3://bucket/some/prefix")
    store.answers = [(SILENT, b""), (200, b"")]
    with pytest.raises(Unclear):
        objects.create("a/1", b"x")
    store.delay_s = 1.0
    objects.create("a/1", b"x")
    assert len(store.asked) == 2


def test_deleting_an_object_succeeds_whether_or_not_it_exists(store, objects):
    # S3 gives this answer in both cases.
    store.answers = [(200, b"<DeleteResult><Deleted><Key>some/prefix/a/1</Key></Deleted></DeleteResult>")]
    objects.delete("a/1")
    assert len(store.asked) == 1


def test_a_delete_refused_inside_a_200_answer_raises_an_error(store, objects):
    refused = b"<Error><Key>some/prefix/a/1</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    store.answers = [(200, b"<DeleteResult>" + refused + b"</DeleteResult>")]
    with pytest.raises(Unclear, match="AccessDenied"):
        objects.delete("a/1")


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://x/y", "no store of objects"),
        ("file://x/y", "not absolute"),
        ("file:x", "not absolute"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", "more than a name"),
        ("s3://bucket/x?y", "more than a name"),
    ],
)
def test_an_invalid_store_url_is_refused_with_an_example(url, cause):
    with pytest.raises(BadUrl, match=cause) as bad:
        open_objects(url)
    assert bad.value.hint


def test_is_url_is_true_only_for_text_with_a_scheme():
    assert not is_url("backups/monday")
    assert not is_url("/backups/a:b")
    assert is_url("s3://bucket")


# ---- the files in ~/.aws ---------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        "[other]\naws_access_key_id = C\naws_secret_access_key = D%\naws_session_token = T\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = eu-1\n[profile other]\nendpoint_url = https://here:1\n")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_keys_come_from_the_profile_named_by_aws_profile(files):
    assert profile(files) == {"access_key_id": "A", "secret_access_key": "B", "region": "eu-1"}
    assert profile(files | {"AWS_PROFILE": "other"}) == {
        "access_key_id": "C", "secret_access_key": "D%", "session_token": "T", "endpoint": "https://here:1",
    }  # fmt: skip
    assert profile(files | {"AWS_PROFILE": "none"}) == {}


def test_profile_returns_no_setting_that_an_environment_variable_replaces(files):
    said = {"AWS_ACCESS_KEY_ID": "E", "AWS_REGION": "us-1", "AWS_ENDPOINT_URL": "https://there"}
    assert profile(files | said) == {}
    assert profile(files | said | {"AWS_PROFILE": "other"}) == {}


def test_aws_profile_files_that_do_not_parse_count_as_empty(files, tmp_path):
    (tmp_path / "credentials").write_bytes(b"\xff[[[")
    (tmp_path / "config").write_text("no section")
    assert profile(files) == {}
