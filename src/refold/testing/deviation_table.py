"""How real servers deviate from their protocols; `deviations` returns the table.

Each deviation was reported for a gateway, a local server or a model. `wire_answers` writes
answers that follow the protocol; `deviating_server` uses this table at random.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from refold.testing.providers import Reply
from refold.testing.wire_answers import (
    SSE,
    WireName,
    answer,
    anthropic_events,
    gemini_events,
    ollama_events,
    openai_events,
    responses_events,
    sse,
)
from refold.testing.wire_server import Answer

# How a client handles a deviation. "accepted": it uses the answer; "asked again": it sends
# another request. Otherwise a call with wrong arguments does not run, and its result says why.
Outcome: TypeAlias = Literal["accepted", "asked again", "told"]
Event: TypeAlias = dict[str, Any]

JSON = {"content-type": "application/json"}
DONE = b"data: [DONE]\n\n"
OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'


class Deviation(Struct, frozen=True):
    """A deviation from the protocol of one wire. With `calls`, the answer must have a tool
    call.
    """

    name: str
    wire: WireName
    outcome: Outcome
    make: Callable[[Reply], Answer]
    calls: bool = False


def deviations(wire: WireName | None = None) -> tuple[Deviation, ...]:
    """Return the deviations of a wire, or those of all wires if it is None."""
    return tuple(
        deviation for deviation in _DEVIATION_TABLE if wire in (None, deviation.wire)
    )


def cut_in_the_middle(wire: WireName, reply: Reply) -> Answer:
    """Return an answer that sends its first half and then breaks the connection."""
    whole = answer(wire, reply)
    assert isinstance(whole.body, bytes)
    return Answer(whole.body[: len(whole.body) // 2], headers=whole.headers, then="cut")


def _chat(
    change: Callable[[list[Event]], list[Event]], *, end: bytes = DONE
) -> Callable[[Reply], Answer]:
    """Return a function that sends a chat completion with changed events, and then `end`."""

    def make(reply: Reply) -> Answer:
        events = change([*openai_events(reply)])
        return Answer(b"".join(map(sse, events)) + end, headers=SSE)

    return make


def _replace_reason(reason: object) -> Callable[[list[Event]], list[Event]]:
    """Return a function that replaces the finish reason with `reason`."""

    def change_event(event: Event) -> Event:
        choices = event["choices"]
        if not any(choice["finish_reason"] for choice in choices):
            return event
        changed = [{**choice, "finish_reason": reason} for choice in choices]
        return {**event, "choices": changed}

    return lambda events: [*map(change_event, events)]


def _send_old_call_field(reply: Reply) -> Answer:
    """Send the first call in the field `function_call` of older versions, which has only one."""
    ((name, arguments), *_) = reply.calls
    without_calls = msgspec.structs.replace(reply, calls=(), stop="calls")
    *before, end, usage = openai_events(without_calls)
    pieces = ({"name": name, "arguments": ""}, {"arguments": arguments})
    deltas = [{"index": 0, "delta": {"function_call": piece}} for piece in pieces]
    ended = {**end, "choices": [{**end["choices"][0], "finish_reason": "function_call"}]}
    calls = [{**end, "choices": [delta]} for delta in deltas]
    body = b"".join(sse(event) for event in (*before, *calls, ended, usage))
    return Answer(body + DONE, headers=SSE)


def _arguments(write: Callable[[str], object]) -> Callable[[Reply], Answer]:
    """Return a function that sends each call whole, with the arguments from `write`."""

    def make(reply: Reply) -> Answer:
        without_calls = msgspec.structs.replace(reply, calls=(), stop="calls")
        plain = [*openai_events(without_calls)]
        about = {k: v for k, v in plain[0].items() if k != "choices"}
        calls = [
            {"index": n, "id": f"c{n}", "type": "function",
             "function": {"name": name, "arguments": write(arguments)}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]  # fmt: skip
        choice = {"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}
        events = [*plain[:-2], {**about, "choices": [choice]}, *plain[-2:]]
        return Answer(b"".join(map(sse, events)) + DONE, headers=SSE)

    return make


def _pieces_of_calls(
    change: Callable[[int, Event], Event],
) -> Callable[[Reply], Answer]:
    """Return a function that replaces each piece of a call with `change(number, piece)`."""

    def make(reply: Reply) -> Answer:
        events, n = list[Event](), 0
        for event in openai_events(reply):
            for choice in event["choices"]:
                if calls := choice["delta"].get("tool_calls"):
                    choice["delta"]["tool_calls"] = [change(n, call) for call in calls]
                    n += 1
            events.append(event)
        return Answer(b"".join(map(sse, events)) + DONE, headers=SSE)

    return make


def _rename_call(name: str) -> Callable[[int, Event], Event]:  # {} in `name`: the old name
    def change(_n: int, call: Event) -> Event:
        function = call["function"]
        if "name" not in function:  # a later piece of the call
            return call
        return {**call, "function": {**function, "name": name.format(function["name"])}}

    return change


def _send_message_so_far(events: list[Event]) -> list[Event]:
    """Send with each piece the whole message up to that piece."""
    text, output = "", list[Event]()
    for event in events:
        choices = list[Event]()
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            choices.append({**choice, "message": {"role": "assistant", "content": text}})
        output.append({**event, "choices": choices})
    return output


def _send_name_last(reply: Reply) -> Answer:
    """Send the name of a tool after the arguments."""
    events = list[Event]()
    for event in openai_events(reply):
        names = list[Event]()
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                if name := call["function"].pop("name", ""):
                    names.append({"index": call["index"], "function": {"name": name}})
        events.append(event)
        if names:
            choice = {"index": 0, "delta": {"tool_calls": names}, "finish_reason": None}
            events.append({**event, "choices": [choice]})
    return Answer(b"".join(map(sse, events)) + DONE, headers=SSE)


def _repeat_whole_message(events: list[Event]) -> list[Event]:
    """Send the complete message once more after its pieces."""
    deltas = [c["delta"] for e in events for c in e["choices"]]
    text = "".join(delta.get("content") or "" for delta in deltas)
    message = {"role": "assistant", "content": text}
    last = {"index": 0, "message": message, "finish_reason": "stop"}
    return [*events, {"id": "c-1", "choices": [last]}]


def _send_content_in_parts(events: list[Event]) -> list[Event]:
    """Send the content in parts, as Mistral's thinking models do."""

    def parts(delta: Event) -> Event:
        if words := delta.get("reasoning_content"):
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": words}]}
            return {"content": [thinking]}
        if words := delta.get("content"):
            return {"content": [{"type": "text", "text": words}]}
        return delta

    return [
        {**e, "choices": [{**c, "delta": parts(c["delta"])} for c in e["choices"]]}
        for e in events
    ]


def _with_nulls(reply: Reply) -> Answer:
    """Send all optional fields of a block, with null for those that it does not have."""
    nulls = {"text": None, "thinking": None, "signature": None, "citations": None}
    events = [
        {**chunk, "content_block": {**nulls, **chunk["content_block"]}}
        if chunk["type"] == "content_block_start"
        else chunk
        for chunk in anthropic_events(reply)
    ]
    return Answer(b"".join(map(sse, events)), headers=SSE)


def _delay_stops(reply: Reply) -> Answer:
    """Send the ends of all blocks only after the last block."""
    events = [*anthropic_events(reply)]
    stops = [chunk for chunk in events if chunk["type"] == "content_block_stop"]
    others = [chunk for chunk in events if chunk["type"] != "content_block_stop"]
    *blocks, message_delta, message_stop = others
    delayed = (*blocks, *stops, message_delta, message_stop)
    return Answer(b"".join(map(sse, delayed)), headers=SSE)


def _stop_early(reply: Reply) -> Answer:
    """Send the end of each call right after its start, before its arguments."""
    events = list[Event]()
    for chunk in anthropic_events(reply):
        begins = chunk["type"] == "content_block_start"
        stop = {"type": "content_block_stop", "index": chunk.get("index")}
        is_late = chunk == stop and "partial_json" in events[-1].get("delta", {})
        if not is_late:
            events.append(chunk)
        if begins and chunk["content_block"]["type"] == "tool_use":
            events.append(stop)
    return Answer(b"".join(map(sse, events)), headers=SSE)


def _merge_parts(reply: Reply) -> Answer:
    """Send Gemini's text and a call in one part."""
    part: Event = {"text": reply.text}
    for name, arguments in reply.calls:
        part["functionCall"] = {"name": name, "args": msgspec.Raw(arguments.encode())}
    content = {"role": "model", "parts": [part]}
    return Answer(
        sse({"candidates": [{"content": content, "finishReason": "STOP"}]}), headers=SSE
    )


def _response_done(reply: Reply) -> Answer:
    events = [
        {**chunk, "type": "response.done"}
        if chunk["type"] == "response.completed"
        else chunk
        for chunk in responses_events(reply)
    ]
    return Answer(b"".join(map(sse, events)), headers=SSE)


def _without_done(reply: Reply) -> Answer:
    """Omit the field `done`, so that only the finish reason shows that the answer ends."""
    events = [{k: v for k, v in e.items() if k != "done"} for e in ollama_events(reply)]
    lines = (msgspec.json.encode(chunk) + b"\n" for chunk in events)
    return Answer(b"".join(lines), headers={"content-type": "application/x-ndjson"})


def _with_html_type(reply: Reply) -> Answer:
    body = answer(_CHAT_WIRE, reply).body
    return Answer(body, headers={"content-type": "text/html; charset=utf-8"})


def _bare_error(reply: Reply) -> Answer:
    return Answer(
        sse({"object": "error", "message": "Internal error", "code": 500}), headers=SSE
    )


def _cut_character(body: bytes) -> bytes:
    """Return the body after an extra event, whose text ends within a character."""
    odd = sse({"choices": [{"index": 0, "delta": {"reasoning_content": "XX"}}]})
    return odd.replace(b"XX", b"\xe2\x82") + body


def _chat_body(reply: Reply) -> Answer:
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for n, (name, arguments) in enumerate(reply.calls)
    ]
    message = {"role": "assistant", "content": reply.text, "tool_calls": calls}
    *_, last = openai_events(reply)
    choice = {"index": 0, "message": message, "finish_reason": None}
    return _json({**last, "object": "chat.completion", "choices": [choice]})


def _chat_lines(reply: Reply) -> Answer:
    events = openai_events(reply)
    return Answer(b"\n".join(map(msgspec.json.encode, events)), headers=JSON)


def _thinking_between(opener: str, closer: str) -> Callable[[Reply], Answer]:
    def make(reply: Reply) -> Answer:
        text = f"{opener}{reply.thinking or 'Hm.'}{closer}\n\n{reply.text}"
        changed = msgspec.structs.replace(reply, text=text, thinking="")
        return answer("openai-chat", changed)

    return make


def _cut_after(wire: WireName, marker: bytes) -> Callable[[Reply], Answer]:
    """Return a function that breaks the connection after the event with `marker`."""

    def make(reply: Reply) -> Answer:
        whole = answer(wire, reply)
        assert isinstance(whole.body, bytes)
        marker_start = whole.body.index(marker)
        end = whole.body.index(b"\n\n", marker_start) + len(b"\n\n")
        return Answer(whole.body[:end], headers=whole.headers, then="cut")

    return make


def _put_in_frame(
    wire: WireName, frame: Callable[[bytes], bytes | tuple[bytes, ...]]
) -> Callable[[Reply], Answer]:
    """Return a function that sends an answer with the body `frame(body)`."""

    def make(reply: Reply) -> Answer:
        whole = answer(wire, reply)
        assert isinstance(whole.body, bytes)
        return Answer(frame(whole.body), headers=whole.headers)

    return make


def _break_with(wire: WireName, event: bytes) -> Callable[[Reply], Answer]:
    """Return a function that sends half of the answer, then `event`, and then nothing."""

    def make(reply: Reply) -> Answer:
        whole = answer(wire, reply)
        assert isinstance(whole.body, bytes)
        events = whole.body.split(b"\n\n")
        half = b"\n\n".join(events[: max(len(events) // 2, 3)])
        return Answer(half + b"\n\n" + event + b"\n\n", headers=whole.headers)

    return make


def _drop_events(
    wire: WireName, *types: str, end: bytes = b""
) -> Callable[[Reply], Answer]:
    """Return a function that omits the events of these types, and then sends `end`."""
    events = anthropic_events if wire == "anthropic" else responses_events

    def make(reply: Reply) -> Answer:
        remaining = [chunk for chunk in events(reply) if chunk["type"] not in types]
        return Answer(b"".join(map(sse, remaining)) + end, headers=SSE)

    return make


def _ping_forever(reply: Reply) -> Answer:
    body = _drop_events("anthropic", "message_stop")(reply).body
    assert isinstance(body, bytes)
    ping = sse({"type": "ping"})
    return Answer((body, ping, ping), headers=SSE, then="hang")


def _anthropic_body(reply: Reply) -> Answer:
    blocks: list[Event] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [
        {
            "type": "tool_use",
            "id": f"t{n}",
            "name": name,
            "input": msgspec.Raw(arguments.encode()),
        }
        for n, (name, arguments) in enumerate(reply.calls)
    ]
    *_, delta, _stop = anthropic_events(reply)
    reason = delta["delta"]["stop_reason"]
    usage = {"input_tokens": 10, "output_tokens": 5}
    body = {"type": "message", "role": "assistant", "model": "claude-1", "content": blocks}
    return _json({**body, "stop_reason": reason, "usage": usage})


def _responses_body(reply: Reply) -> Answer:
    *_, last = responses_events(reply)
    return _json(last["response"])


def _gemini_body(reply: Reply) -> Answer:
    return _json([*gemini_events(reply)])


def _json(body: object) -> Answer:
    return Answer(msgspec.json.encode(body), headers=JSON)


def _empty_answer(wire: WireName) -> Callable[[Reply], Answer]:
    return lambda reply: answer(wire, Reply(usage=reply.usage))


def _with_line_break(arguments: str) -> str:
    """Return the arguments with an unescaped line break at the start of their first string."""
    return arguments.replace('":"', '":"\n', 1).replace('": "', '": "\n', 1)


def _decode_object(arguments: str) -> object:
    return msgspec.json.decode(arguments)


def _without_comma(arguments: str) -> str:
    return f"{arguments.rstrip().removesuffix('}')},}}"


_OVERLOAD_BODIES: Mapping[WireName, bytes] = {
    "anthropic": b"event: error\ndata: " + OVERLOADED,
    "openai-chat": b'data: {"error":{"message":"Overloaded","code":529}}',
    "openai-responses": b'data: {"type":"error","code":"server_is_overloaded","message":"no"}',
    "gemini": b'data: {"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}',
}
_ALL_WIRES = (*_OVERLOAD_BODIES,)
_CHAT_WIRE = "openai-chat"

_DEVIATION_TABLE: tuple[Deviation, ...] = (
    Deviation("no reason for the end", _CHAT_WIRE, "accepted", _chat(_replace_reason(None))),
    Deviation("an empty reason for the end", _CHAT_WIRE, "accepted", _chat(_replace_reason(""))),
    Deviation("an unknown reason for the end", _CHAT_WIRE, "accepted", _chat(_replace_reason("eos"))),
    Deviation("the last usage is the end", _CHAT_WIRE, "accepted", _chat(_replace_reason(None), end=b"")),
    Deviation("no [DONE]", _CHAT_WIRE, "accepted", _chat(list, end=b"")),
    Deviation("cut behind the reason for the end", _CHAT_WIRE, "accepted", _cut_after(_CHAT_WIRE, b'finish_reason":"')),
    Deviation("cut behind the reason for the end", "anthropic", "accepted", _cut_after("anthropic", b'stop_reason":"')),
    Deviation("cut behind the reason for the end", "gemini", "accepted", _cut_after("gemini", b'finishReason":"')),
    Deviation("no message_stop", "anthropic", "accepted", _drop_events("anthropic", "message_stop")),
    Deviation("nothing but pings behind the end", "anthropic", "accepted", _ping_forever),
    Deviation("[DONE] instead of response.completed", "openai-responses", "accepted", _drop_events("openai-responses", "response.completed", end=DONE)),
    Deviation("arguments in their last event only", "openai-responses", "accepted", _drop_events("openai-responses", "response.function_call_arguments.delta")),
    Deviation("a JSON body", _CHAT_WIRE, "accepted", _chat_body),
    Deviation("a JSON body", "anthropic", "accepted", _anthropic_body),
    Deviation("a JSON body", "openai-responses", "accepted", _responses_body),
    Deviation("a JSON body", "gemini", "accepted", _gemini_body),
    Deviation("lines of JSON", _CHAT_WIRE, "accepted", _chat_lines),
    Deviation("events of null", _CHAT_WIRE, "accepted", _put_in_frame(_CHAT_WIRE, lambda body: body.replace(b"\n\n", b"\n\ndata: null\n\n"))),
    Deviation("choices are null", _CHAT_WIRE, "accepted", _chat(lambda es: [{**es[0], "choices": None}, *es])),
    Deviation("deltas are null", _CHAT_WIRE, "accepted", _chat(lambda es: [{**es[0], "choices": [{"index": 0, "delta": None}]}, *es])),
    Deviation("counts are null", _CHAT_WIRE, "accepted", _chat(lambda es: [*es[:-1], {**es[-1], "usage": {"prompt_tokens": None}}])),
    Deviation("the older kind of call", _CHAT_WIRE, "accepted", _send_old_call_field, calls=True),
    Deviation("arguments are an object", _CHAT_WIRE, "accepted", _arguments(_decode_object), calls=True),
    Deviation("arguments are encoded twice", _CHAT_WIRE, "accepted", _arguments(lambda a: msgspec.json.encode(a).decode()), calls=True),
    Deviation("a line break in a string", _CHAT_WIRE, "accepted", _arguments(_with_line_break), calls=True),
    Deviation("a trailing comma", _CHAT_WIRE, "accepted", _arguments(_without_comma), calls=True),
    Deviation("thinking between tags", _CHAT_WIRE, "accepted", _thinking_between("<think>", "</think>")),
    Deviation("thinking between other tags", _CHAT_WIRE, "accepted", _thinking_between("[THINK]", "[/THINK]")),
    Deviation("a closing tag that nothing opened", _CHAT_WIRE, "accepted", lambda r: answer(_CHAT_WIRE, Reply(f"</think>\n\n{r.text}", r.calls, r.thinking, r.stop, r.usage))),
    Deviation("stop behind a call", _CHAT_WIRE, "accepted", _chat(_replace_reason("stop")), calls=True),
    Deviation("the whole message behind its pieces", _CHAT_WIRE, "accepted", _chat(_repeat_whole_message)),
    Deviation("the message beside each piece", _CHAT_WIRE, "accepted", _chat(_send_message_so_far)),
    Deviation("the name of a tool behind its call", _CHAT_WIRE, "accepted", _send_name_last, calls=True),
    Deviation("another id for each piece of a call", _CHAT_WIRE, "accepted", _pieces_of_calls(lambda n, call: {**call, "id": f"c{n}"}), calls=True),
    Deviation("an index that is text", _CHAT_WIRE, "accepted", _pieces_of_calls(lambda _, call: {**call, "index": str(call["index"])}), calls=True),
    Deviation("a mark behind the name of a tool", _CHAT_WIRE, "accepted", _pieces_of_calls(_rename_call("{}<|channel|>commentary")), calls=True),
    Deviation("blanks around the name of a tool", _CHAT_WIRE, "accepted", _pieces_of_calls(_rename_call(" {}\n")), calls=True),
    Deviation("an empty object before the arguments", _CHAT_WIRE, "accepted", _arguments(lambda a: "{}" + a), calls=True),
    Deviation("arguments twice", _CHAT_WIRE, "accepted", _arguments(lambda a: a + a), calls=True),
    Deviation("content in parts", _CHAT_WIRE, "accepted", _chat(_send_content_in_parts)),
    Deviation("usage with each chunk", _CHAT_WIRE, "accepted", _chat(lambda es: [{**e, "usage": {"prompt_tokens": 9, "completion_tokens": n}} for n, e in enumerate(es)])),
    Deviation("counts are text", _CHAT_WIRE, "accepted", _chat(lambda es: [*es[:-1], {**es[-1], "usage": {"prompt_tokens": "9", "completion_tokens": 5.0}}])),
    Deviation("no lines between events", _CHAT_WIRE, "accepted", _put_in_frame(_CHAT_WIRE, lambda body: body.replace(b"\n\n", b"\n") + b"\n")),
    Deviation("a blank behind [DONE]", _CHAT_WIRE, "accepted", _chat(_replace_reason(None), end=b"data: [DONE] \n\n")),
    Deviation("half a character", _CHAT_WIRE, "accepted", _put_in_frame(_CHAT_WIRE, _cut_character)),
    Deviation("called a web page", _CHAT_WIRE, "accepted", _with_html_type),
    Deviation("no content_block_stop", "anthropic", "accepted", _drop_events("anthropic", "content_block_stop")),
    Deviation("blocks that end late", "anthropic", "accepted", _delay_stops),
    Deviation("calls that end early", "anthropic", "accepted", _stop_early, calls=True),
    Deviation("nulls in blocks", "anthropic", "accepted", _with_nulls),
    Deviation("[DONE] behind the end", "anthropic", "accepted", _drop_events("anthropic", end=DONE)),
    Deviation("words and a call in one part", "gemini", "accepted", _merge_parts),
    Deviation("response.done", "openai-responses", "accepted", _response_done),
    Deviation("a reason for the end without done", "ollama", "accepted", _without_done),
    Deviation("items that do not begin", "openai-responses", "accepted", _drop_events("openai-responses", "response.output_item.added")),
    *(Deviation("events without data", w, "accepted", _put_in_frame(w, lambda body: body.replace(b"\n\n", b"\n\ndata:\n\n"))) for w in _ALL_WIRES),
    *(Deviation("line ends of Windows", w, "accepted", _put_in_frame(w, lambda body: body.replace(b"\n", b"\r\n"))) for w in _ALL_WIRES),
    *(Deviation("no space behind the colon", w, "accepted", _put_in_frame(w, lambda body: body.replace(b"data: ", b"data:"))) for w in _ALL_WIRES),
    *(Deviation("control events", w, "accepted", _put_in_frame(w, lambda body: b"\xef\xbb\xbf: hi\n\nretry: 1000\n\nid: 3\n\n" + body)) for w in _ALL_WIRES),
    *(Deviation("single bytes", w, "accepted", _put_in_frame(w, lambda body: tuple(body[n : n + 1] for n in range(len(body))))) for w in _ALL_WIRES),
    *(Deviation("an empty answer", w, "asked again", _empty_answer(w)) for w in (*_ALL_WIRES, "ollama")),
    *(Deviation("cut in the middle", w, "asked again", lambda r, w=w: cut_in_the_middle(w, r)) for w in (*_ALL_WIRES, "ollama")),
    *(Deviation("overloaded in the middle", w, "asked again", _break_with(w, event)) for w, event in _OVERLOAD_BODIES.items()),
    *(Deviation("an event that cannot be read", w, "asked again", _break_with(w, b"data: Internal Server Error")) for w in _ALL_WIRES),
    Deviation("an error outside of error", _CHAT_WIRE, "asked again", _bare_error),
    Deviation("its source has failed", _CHAT_WIRE, "asked again", _chat(_replace_reason("error"))),
    Deviation("stopped by the server", _CHAT_WIRE, "asked again", _chat(_replace_reason("abort"))),
    Deviation("a call was filtered", _CHAT_WIRE, "asked again", _chat(_replace_reason("function_call_filter: MALFORMED_FUNCTION_CALL"))),
    Deviation("arguments are cut", _CHAT_WIRE, "told", _arguments(lambda a: a[:-2]), calls=True),
    Deviation("noise behind the arguments", _CHAT_WIRE, "told", _arguments(lambda a: a + "\n</tool_call>"), calls=True),
    Deviation("single quotes", _CHAT_WIRE, "told", _arguments(lambda a: a.replace('"', "'")), calls=True),
)  # fmt: skip
