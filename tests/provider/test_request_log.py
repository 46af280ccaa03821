"""Requests and responses are logged byte for byte, without keys."""

from contextlib import aclosing

import anyio
import pytest
from msgspec.structs import replace

from refold.errors import ProviderError, Refused, Unreachable
from refold.provider.catalog import connect
from refold.provider.port import Delta, Done, Request, RequestSent, ResponseBytes
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest
from tests.provider.wires import (
    CONVERSATION,
    KEY,
    PATHS,
    TOOLS,
    WIRES,
    open_wire,
    request,
    spec_of,
    stream_deltas,
)

ASKED = request(*CONVERSATION, system="Be brief. ☂", tools=TOOLS, trace=True)
REPLY = Reply("Let me look. ☂", (("look", '{"where":"up ☁"}'),), thinking="Clouds?")


def trace_request(
    wire: WireName, served: Answer, request: Request
) -> tuple[list[Delta], ReceivedRequest, str]:
    async def main() -> tuple[list[Delta], ReceivedRequest, str]:
        async with open_wire(wire, served) as (provider, server):
            deltas = await stream_deltas(provider, request)
            return deltas, server.heard[0], server.url

    return anyio.run(main)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [0, 7])
def test_trace_shows_what_was_sent_and_received(wire: WireName, size: int) -> None:
    whole = answer(wire, REPLY)
    body = whole.body
    assert isinstance(body, bytes)
    cut = (
        tuple(body[start : start + size] for start in range(0, len(body), size))
        if size
        else body
    )

    deltas, request_heard, url = trace_request(
        wire, Answer(cut, headers=whole.headers), ASKED
    )

    sent_requests = [delta for delta in deltas if isinstance(delta, RequestSent)]
    came = b"".join(delta.body for delta in deltas if isinstance(delta, ResponseBytes))
    assert sent_requests == [RequestSent(f"POST {url}{PATHS[wire]}", request_heard.body)]
    assert deltas[0] == sent_requests[0]
    assert isinstance(deltas[-1], Done)
    assert body.startswith(came)
    assert body.removeprefix(came).strip() == b""  # the last event's own end may be


@pytest.mark.parametrize("wire", WIRES)
def test_traced_request_and_response_hold_no_credentials(wire: WireName) -> None:
    deltas, request_heard, _ = trace_request(wire, answer(wire, REPLY), ASKED)

    texts = [
        text
        for delta in deltas
        if isinstance(delta, RequestSent | ResponseBytes)
        for text in (
            delta.body,
            *([delta.to.encode()] if isinstance(delta, RequestSent) else []),
        )
    ]
    assert any(KEY in value for value in request_heard.headers.values())
    assert not any(KEY.encode() in text for text in texts)
    assert not any(b"uthorization" in text or b"api-key" in text for text in texts)


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_traced_unless_requested(wire: WireName) -> None:
    deltas, _, _ = trace_request(wire, answer(wire, REPLY), request(*CONVERSATION))

    assert not any(isinstance(delta, RequestSent | ResponseBytes) for delta in deltas)


@pytest.mark.parametrize("wire", WIRES)
def test_tracing_does_not_change_the_other_deltas(wire: WireName) -> None:
    served = answer(wire, REPLY)

    deltas, _, _ = trace_request(wire, served, ASKED)
    plain, _, _ = trace_request(
        wire, served, request(*CONVERSATION, system="Be brief. ☂", tools=TOOLS)
    )

    assert [
        delta for delta in deltas if not isinstance(delta, RequestSent | ResponseBytes)
    ] == plain


@pytest.mark.parametrize("wire", WIRES)
def test_request_that_cannot_be_sent_is_traced_and_refused(wire: WireName) -> None:
    spec, deltas = spec_of(wire), list[Delta]()

    async def main() -> None:
        environ = {spec.url_env: "http://127.0.0.1:9", spec.key_env: KEY}
        async with aclosing(connect(spec, environ, window=4096)) as provider:
            # Before it is given tools, Ollama is asked whether the model takes any.
            async for delta in provider.stream(replace(ASKED, tools=())):
                deltas.append(delta)

    with pytest.raises(Unreachable, match="no server listens there"):
        anyio.run(main)

    assert [type(delta) for delta in deltas] == [RequestSent]


def test_response_that_breaks_off_is_traced_up_to_the_break() -> None:
    whole = answer("anthropic", REPLY)
    assert isinstance(whole.body, bytes)
    half, deltas = whole.body[:300], list[Delta]()
    served = Answer(half, headers=whole.headers, then="cut")

    async def main() -> None:
        async with open_wire("anthropic", served) as (provider, _):
            async for delta in provider.stream(ASKED):
                deltas.append(delta)

    with pytest.raises(ProviderError):
        anyio.run(main)

    assert (
        b"".join(delta.body for delta in deltas if isinstance(delta, ResponseBytes)) == half
    )


@pytest.mark.parametrize("wire", WIRES)
def test_refusal_body_is_traced_unchanged(wire: WireName) -> None:
    refusal, deltas = (
        b'{"error": {"message":  "no \xe2\x98\x82", "type": "x"}}',
        list[Delta](),
    )

    async def main() -> None:
        async with open_wire(wire, Answer(refusal, 400)) as (provider, _):
            async for delta in provider.stream(ASKED):
                deltas.append(delta)

    with pytest.raises(Refused, match="no ☂"):
        anyio.run(main)

    assert [type(delta) for delta in deltas] == [RequestSent, ResponseBytes]
    assert deltas[1] == ResponseBytes(refusal)
