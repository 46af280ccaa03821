"""The route of webhooks: a signed request starts a run of a schedule.

`client.webhooks` decides which requests are accepted; `guard` has checked everything but
the signature. This module reads the headers, and chooses the status of a refusal.
"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Header, Request, Response
from msgspec import Struct

from refold.client.webhooks import HookRefusal, SignedCall, Webhooks
from refold.server.api import Api, json_response
from refold.server.guard import Rejected

HOOKS_PREFIX = "/hooks/"
# The status and the reason in the response to a refused call.
_REFUSAL_RESPONSES: Mapping[HookRefusal, tuple[int, str]] = {
    "unknown": (401, "there is no such webhook, or the signature is wrong"),
    "too old": (
        401,
        "the timestamp is not within five minutes of the clock of this server",
    ),
    "repeated": (409, "this request was received before: sign a new one"),
    "out of order": (503, "the webhooks of this server cannot be read or written"),
    "too many": (429, "this webhook was called too often: try again later"),
}


class HookTaken(Struct, frozen=True):
    """The response to an accepted call.

    `run` is the number of the run, counted over all calls of the webhook's schedule.
    """

    schedule: int
    run: int


def add_hooks(api: Api, webhooks: Webhooks) -> None:
    @api.route("POST", f"{HOOKS_PREFIX}{{name}}", HookTaken, status=202, body=object)
    async def call_hook(  # pyright: ignore[reportUnusedFunction] - a route
        name: str,
        request: Request,
        x_refold_timestamp: Annotated[str, Header()] = "",
        x_refold_signature: Annotated[str, Header()] = "",
    ) -> Response:
        """Start a run of a schedule with a webhook. A signature takes the place of the
        token.
        """
        body = await request.body()
        signed = SignedCall(name, x_refold_timestamp, x_refold_signature, body)
        answer = await webhooks.call(signed)
        if isinstance(answer, str):  # a `HookRefusal`
            raise Rejected(*_REFUSAL_RESPONSES[answer])
        return json_response(HookTaken(answer.id, answer.number), 202)
