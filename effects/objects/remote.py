"""The object stores S3, GCS and Azure, by `obstore` (the extra `fencepost[store]`).

The rule: obstore repeats nothing. If it did, a create whose answer was lost would find its own object and raise
AlreadyExists; S3 also answers 409, which is AlreadyExists, when there is no object. So a call is made once, and after
every answer except success the caller finds out what happened. Each call has a deadline (deadlines.py), because one
that neither returned nor failed would stop everything. A deadline belongs to a client of obstore, so there is a client
for each.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from .aws_profiles import profile
from .deadlines import DEADLINES_S, Deadlines
from .interface import Content, Exists, Found, Missing, Refused, Unclear

T = TypeVar("T")
CONNECT_S = 4
IDLE_S = 3  # an idle connection is closed after this time, because it may be lost without notice
LISTED_AT_ONCE = 1000
_PLAIN = "http://"
_UNSIGNED = "AWS_UNSIGNED_PAYLOAD"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_NO_BUCKET = ("NoSuchBucket", "InvalidBucketName", "ContainerNotFound")
_NO_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; AWS_ENDPOINT_URL",
    "gs": "GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class RemoteObjects:
    """An object store in a bucket, or below a prefix in it."""

    def __init__(self, scheme: str, bucket: str, prefix: str, endpoint: str = "") -> None:
        """Find keys and endpoint, without a request. endpoint: of S3, instead of the one in environment or profile.

        Raises Refused if they are invalid.
        """
        self._scheme = scheme
        self._bucket = bucket
        self._below = f"{prefix}/" if prefix else ""  # what the bucket's names of these objects begin with
        with self._converted(""):
            # A client of obstore for each deadline.
            self._stores = [_open(scheme, bucket, endpoint, deadline_s) for deadline_s in DEADLINES_S]
        self._deadlines = Deadlines()

    @property
    def where(self) -> str:
        return f"{self._scheme}://{self._bucket}/{self._below}".rstrip("/")

    def create(self, name: str, content: Content) -> None:
        """Create an object if none has its name. Raises Exists."""

        def put(store: Any) -> None:
            """Send the object with the condition that nothing has its name."""
            body = iter(content) if isinstance(content, list) else content  # buffers are sent without a copy
            obstore.put(store, self._below + name, body, mode="create", use_multipart=False)

        self._call("create", name, put, _size_of(content))

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it."""
        self._call(
            "put",
            name,
            lambda store: obstore.put(store, self._below + name, content, use_multipart=False),
            len(content),
        )

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all). Raises Missing."""
        if length == 0:
            return b""

        def get(store: Any) -> bytes:
            """Ask for the object, or a range of it."""
            if length is None and not start:
                return bytes(obstore.get(store, self._below + name).bytes())
            if length is None:
                options: Any = {"range": {"offset": start}}
                return bytes(obstore.get(store, self._below + name, options=options).bytes())
            return bytes(obstore.get_range(store, self._below + name, start=start, length=length))

        return self._call("read", name, get, length or 0)

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return the objects whose names begin with `prefix` and come after `after`, in the store's order."""

        def list_pages(store: Any) -> list[Found]:
            """Ask for one page after the other. Each page has the deadline of the call."""
            found: list[Found] = []
            offset = self._below + after if after else None
            for page in obstore.list(store, prefix=self._below + prefix, offset=offset, chunk_size=LISTED_AT_ONCE):
                found += (Found(each["path"][len(self._below) :], each["size"]) for each in page)
            return found

        return self._call("list", prefix, list_pages)

    def delete(self, name: str) -> None:
        """Remove an object. Does nothing if it does not exist."""

        def remove(store: Any) -> None:
            """Delete the object. It need not exist."""
            try:
                obstore.delete(store, self._below + name)
            except FileNotFoundError as error:
                if _no_bucket(str(error)):
                    raise

        self._call("delete", name, remove)

    def _call(self, what: str, name: str, make: Callable[[Any], T], size_bytes: int = 0) -> T:
        """Make a call with the deadline that it has now, and note whether it has timed out. make: gets a client.

        what: the kind of call. size_bytes: as in Deadlines.level(). Raises Exists, Missing, Unclear, Refused.
        """
        key = f"{what} {name}"
        level = self._deadlines.level(key, size_bytes)
        began_s = time.monotonic()
        try:
            with self._converted("" if what == "list" else name):
                result = make(self._stores[level])
        except Unclear:
            self._deadlines.ended(key, timed_out=time.monotonic() - began_s >= DEADLINES_S[level])
            raise
        except (Exists, Missing, Refused):
            self._deadlines.ended(key, timed_out=False)
            raise
        self._deadlines.ended(key, timed_out=False)
        return result

    @contextmanager
    def _converted(self, name: str) -> Iterator[None]:
        """Convert obstore's errors in the block to those of the interface, by the server's answer in their text."""
        try:
            yield
        except FileNotFoundError as error:
            if _no_bucket(str(error)):
                raise self._refused(name, str(error)) from None
            raise Missing(name, "there is no such object") from None
        except AlreadyExistsError:
            raise Exists(name, "an object has this name") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise self._refused(name, str(error)) from None
        except (BaseError, ValueError, OSError) as error:
            text = str(error)
            if _no_bucket(text) or _status(text) in ("401", "403"):
                raise self._refused(name, text) from None
            raise Unclear(name, _brief(text)) from None

    def _refused(self, name: str, text: str) -> Refused:
        """Return the error, with a hint, for a call that the server did not allow. text: its answer."""
        if _no_bucket(text):
            cause = f"{self._scheme}://{self._bucket}: there is no such bucket"
            return Refused("", cause, "make it first; look for a mistake in the URL, the endpoint and the region")
        where = f"{self.where}/{name}" if name else self.where
        keys = _ENVIRONMENT[self._scheme]
        code = _CODE.search(text)
        if code and code[1] in _NO_KEYS:
            return Refused("", f"{where}: the store does not take these keys ({code[1]})", f"look at {keys}")
        hint = f"these keys ({keys}) need the rights to list, read, write and delete there"
        return Refused("", f"{where}: the store does not allow it ({_brief(text)})", hint)


def s3_endpoint(environment: Mapping[str, str]) -> str:
    """Return the endpoint that is set for S3 in the environment or the profile; "" for Amazon's."""
    set_here = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    return set_here or profile(environment).get("endpoint", "")


def _size_of(content: Content) -> int:
    """Return how many bytes an object has."""
    return sum(map(len, content)) if isinstance(content, list) else len(content)


def _open(scheme: str, bucket: str, endpoint: str, deadline_s: float) -> Any:
    """Return obstore's store for this bucket, without retries and with a deadline for each request."""
    retries: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=deadline_s)}
    client: Any = {"timeout": f"{deadline_s}s", "connect_timeout": f"{CONNECT_S}s", "pool_idle_timeout": f"{IDLE_S}s"}
    if scheme == "gs":
        return GCSStore(bucket, client_options=client, retry_config=retries)
    if scheme == "az":
        if os.environ.get("AZURE_STORAGE_ENDPOINT", "").startswith(_PLAIN):
            client["allow_http"] = True
        return AzureStore(bucket, client_options=client, retry_config=retries)
    config: Any = s3_config(os.environ, endpoint)
    if (endpoint or s3_endpoint(os.environ)).startswith(_PLAIN):
        client["allow_http"] = True
    return S3Store(bucket, config=config or None, client_options=client, retry_config=retries)


def s3_config(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return the settings of S3 that are not in the environment. endpoint: used instead of the endpoint in environment
    or profile; "": none is given.

    Over TLS the body of a PUT is not signed: signing takes more CPU time than the rest of a PUT, and TLS protects the
    body already. AWS_UNSIGNED_PAYLOAD in the environment overrides that.
    """
    config = {**profile(environment)}
    if endpoint:
        config["endpoint"] = endpoint
    if not (endpoint or s3_endpoint(environment)).startswith(_PLAIN) and _UNSIGNED not in environment:
        config["unsigned_payload"] = "true"
    return config


def _no_bucket(text: str) -> bool:
    """Return whether the server's answer says that the bucket does not exist."""
    code = _CODE.search(text)
    return code is not None and code[1] in _NO_BUCKET


def _status(text: str) -> str:
    """Return the HTTP status in the text of an error; "" if there is none."""
    found = _STATUS.search(text)
    return found[1] if found else ""


def _brief(text: str) -> str:
    """Return an error in one line: the server's status, code and message, else the first line without the URL."""
    status, code, message = _status(text), _CODE.search(text), _MESSAGE.search(text)
    if status:
        said = ": ".join(each[1] for each in (code, message) if each and each[1])
        return f"the server answered {status}{f', {said}' if said else ''}"
    line = text.split("\n", 1)[0]
    return line.rpartition(" - ")[2] or line
