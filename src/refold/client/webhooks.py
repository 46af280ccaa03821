"""Webhooks of schedules: stores their secrets, and decides whether a request may start a run.

A secret is stored like an API key, in a file for the user alone; the file of the schedules
has only the webhook's name. The sender signs the time and the body with the secret.
Checking a request takes as long for an unknown name as for a wrong signature.
`schedules.webhook_calls` refuses repeated requests, `client.due_schedules` starts the run,
and `server.webhook_routes` has the route.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import anyio
from anyio import to_thread
from msgspec import Struct

from refold.app.session_schedules import open_book
from refold.config import credentials
from refold.config.paths import Paths, paths
from refold.errors import BadInput, RefoldError
from refold.journal.schedules.schedule_book import ScheduleBook
from refold.journal.schedules.webhook_calls import WINDOW_SECONDS, CallRefusal, HookCalled

_WEBHOOKS_FILE = "webhooks.toml"
_SECRET_BYTES = 32
_MAX_CONCURRENT_CHECKS = 2  # few, because the sender is not authenticated yet
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_STAMP_PATTERN = re.compile(r"[0-9]{1,12}")
_SIGNATURE_PATTERN = re.compile(r"sha256=[0-9a-f]{64}")
HookRefusal: TypeAlias = Literal["unknown", "out of order"] | CallRefusal


class SignedCall(Struct, frozen=True):
    """A request to a webhook, as it was received and before any check."""

    name: str
    stamp: str
    signature: str
    body: bytes


class Webhooks:
    """Checks and records calls of the webhooks of one server.

    `on_call` is called after each recorded call.
    """

    def __init__(self, environ: Mapping[str, str], on_call: Callable[[], None]) -> None:
        self._environ = environ
        self._on_call = on_call
        self._stand_in = secrets.token_hex(_SECRET_BYTES)
        self._slots = anyio.CapacityLimiter(_MAX_CONCURRENT_CHECKS)

    async def call(self, request: SignedCall) -> HookCalled | HookRefusal:
        """Record the call, so that its run is due, or return the reason for refusing it."""
        try:
            result = await to_thread.run_sync(
                self._record_call, request, limiter=self._slots
            )
        # The error names files, which the sender must not learn.
        except (RefoldError, OSError):
            return "out of order"
        if isinstance(result, HookCalled):
            self._on_call()
        return result

    def _record_call(self, request: SignedCall) -> HookCalled | HookRefusal:
        """Check the signature and the time of a call, and record it, or return why not."""
        places = paths(self._environ)
        now = time.time()
        secrets_by_name = credentials.read(places.config / _WEBHOOKS_FILE)
        book = open_book(places, self._environ, secrets_by_name.values())
        schedule = book.find_by_webhook(request.name)
        secret = secrets_by_name.get(request.name, "")
        # A signature is checked in any case, so that an unknown name takes as long.
        is_known = schedule is not None and bool(secret)
        checked_secret = secret if is_known else self._stand_in
        is_valid = _is_signature_valid(checked_secret, request)
        if schedule is None or not (is_known and is_valid):
            return "unknown"
        signed_at = float(request.stamp)
        if abs(now - signed_at) > WINDOW_SECONDS:
            return "too old"
        # A repeated request has the same signature. Only its hash is stored.
        proof = hashlib.sha256(request.signature.encode()).hexdigest()
        body = request.body.decode(errors="replace")
        # `book.call` sets the number.
        call = HookCalled(
            schedule.id, number=0, now=now, signed=signed_at, proof=proof, body=body
        )
        recorded = book.call(request.name, call)  # None if the schedule was just stopped
        return recorded or "unknown"


def check(name: str, book: ScheduleBook, id_: int = 0) -> None:
    """Raise `BadInput` if the schedule `id_` cannot have a webhook of this name."""
    if not _NAME_PATTERN.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot be the name of a webhook: write at most 64 of a-z, 0-9 and -, and no "
            "- in front"
        )
    if (other := book.find_by_webhook(name)) is not None and other.id != id_:
        raise BadInput(
            f"the webhook {name!r} is that of schedule {other.id}: choose another name"
        )


def make_webhook(paths: Paths, book: ScheduleBook, id_: int, name: str) -> str:
    """Add a webhook to the schedule, and return its new secret, which is never shown again.

    Raises `BadInput` if the schedule cannot have a webhook of this name.
    """
    check(name, book, id_)
    before = book.find(id_).webhook
    book.set_webhook(id_, name)
    secret = secrets.token_hex(_SECRET_BYTES)
    credentials.store(paths.config / _WEBHOOKS_FILE, name, secret)
    if before != name:
        forget(paths, before)
    return secret


def forget(paths: Paths, name: str) -> None:
    """Delete the secret of the webhook `name`; do nothing if `name` is "".

    Raises `BadInput` if the file with the secrets cannot be written.
    """
    if name:
        credentials.remove(paths.config / _WEBHOOKS_FILE, name)


def _is_signature_valid(secret: str, request: SignedCall) -> bool:
    """Whether the request is signed with this secret."""
    signed = request.stamp.encode("latin-1", "replace") + b"." + request.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    signature = request.signature.encode("latin-1", "replace")
    if not hmac.compare_digest(f"sha256={expected}".encode(), signature):
        return False
    # The replaced characters above could make an invalid text equal to a valid one.
    has_valid_stamp = _STAMP_PATTERN.fullmatch(request.stamp) is not None
    return has_valid_stamp and _SIGNATURE_PATTERN.fullmatch(request.signature) is not None
