"""Webhooks of schedules: their secrets, and whether a request may start a run.

A secret is kept as API keys are, in a file for the user alone; the file of the schedules has only
the name. The sender, who has the secret, signs the time and the body. An unknown name costs
the same work as a wrong signature. `schedules.hook_calls` refuses repeated requests,
`client.due_schedules` starts the run, and `server.hooks` has the address.
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

from refold.config import credentials
from refold.config.paths import Paths, paths
from refold.config.secret_values import masks_of
from refold.errors import BadInput, RefoldError
from refold.journal.schedules.hook_calls import WINDOW_SECONDS, CallRefusal, HookCalled
from refold.journal.schedules.schedule_book import ScheduleBook

_WEBHOOKS_FILE = "webhooks.toml"
_SECRET_BYTES = 32
_MAX_CONCURRENT_CHECKS = 2  # checked at once: their sender is not known yet
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_STAMP_PATTERN = re.compile(r"[0-9]{1,12}")
_SIGNATURE_PATTERN = re.compile(r"sha256=[0-9a-f]{64}")
HookRefusal: TypeAlias = Literal["unknown", "out of order"] | CallRefusal


class SignedCall(Struct, frozen=True):
    """A request as received, unchecked."""

    name: str
    stamp: str
    signature: str
    body: bytes


class Webhooks:
    """The webhooks of one server. `called` is called after each recorded call."""

    def __init__(self, environ: Mapping[str, str], on_call: Callable[[], None]) -> None:
        self._environ, self._called = environ, on_call
        self._stand_in = secrets.token_hex(_SECRET_BYTES)
        self._slots = anyio.CapacityLimiter(_MAX_CONCURRENT_CHECKS)

    async def call(self, request: SignedCall) -> HookCalled | HookRefusal:
        """Record the call, so that its run is due, or return why not."""
        try:
            result = await to_thread.run_sync(
                self._record_call, request, limiter=self._slots
            )
        except (RefoldError, OSError):  # it names files, which strangers must not learn
            return "out of order"
        if isinstance(result, HookCalled):
            self._called()
        return result

    def _record_call(self, request: SignedCall) -> HookCalled | HookRefusal:
        places, now = paths(self._environ), time.time()
        stored = credentials.read(places.config / _WEBHOOKS_FILE)
        masks = masks_of(self._environ, places)
        masks.learn(*stored.values())
        book = ScheduleBook(places.data, masks.mask_event)
        schedule, secret = book.find_by_webhook(request.name), stored.get(request.name, "")
        known = schedule is not None and bool(secret)
        right = _is_signature_valid(secret if known else self._stand_in, request)
        if schedule is None or not (known and right):
            return "unknown"
        signed = float(request.stamp)
        if abs(now - signed) > WINDOW_SECONDS:
            return "too old"
        proof = hashlib.sha256(request.signature.encode()).hexdigest()
        body = request.body.decode(errors="replace")
        call = HookCalled(schedule.id, 0, now, signed, proof, body)
        return book.call(request.name, call) or "unknown"


def check(name: str, book: ScheduleBook, id_: int = 0) -> None:
    """Raise `BadInput` if the schedule cannot have a webhook of this name."""
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
    """Add a webhook to the schedule. Returns its new secret, which is never shown again.

    Raises `BadInput`.
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
    """Delete the secret of a removed webhook. Raises `BadInput`."""
    if name:
        credentials.remove(paths.config / _WEBHOOKS_FILE, name)


def _is_signature_valid(secret: str, request: SignedCall) -> bool:
    """Whether the request is signed with this secret."""
    signed = request.stamp.encode("latin-1", "replace") + b"." + request.body
    wanted = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    signature = request.signature.encode("latin-1", "replace")
    same = hmac.compare_digest(f"sha256={wanted}".encode(), signature)
    shaped = _STAMP_PATTERN.fullmatch(request.stamp) and _SIGNATURE_PATTERN.fullmatch(
        request.signature
    )
    return same and bool(shaped)
