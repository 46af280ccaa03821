"""Serves a scripted model on loopback: an HTTP server that answers requests from a script.

The server speaks Chat Completions, as most model servers do, with and without streaming, and
refuses requests that real servers refuse. A lesson's check examines the requests that it
received. It uses only the standard library, as the programs of the course do.
`testing.wire_server` is the server for tests of refold.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, TypeAlias, cast

from msgspec import Struct

_END_OF_SCRIPT = "(The script of this lesson ends here: a real model would continue.)"
_MAX_BODY_BYTES = 4_000_000
_PIECE_CHARS = 12  # of a streamed answer
_ANSWER_TOKENS = 12  # of each answer, whatever its length: lessons name their sum
_POLL_SECONDS = 0.02  # after which the server notices that it must end

# A request or a message as decoded JSON.
Json: TypeAlias = dict[str, Any]


class RequestedCall(Struct, frozen=True):
    """A tool call in an answer of the model.

    `arguments` are the arguments of the tool's function.
    """

    tool: str
    arguments: Mapping[str, object]


class ModelReply(Struct, frozen=True):
    """One answer of the model: a text, tool calls, or both."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()


class ModelServer:
    """The scripted model: its answers, and the requests that it received.

    `url` is its base address. `requests` are the bodies of accepted requests in order,
    `replies` their answers, `usages` the tokens of each answer, and `refusals` the reasons why
    other requests were refused. In a streamed answer, `after_first_piece` is called when the
    first piece has been sent.
    """

    def __init__(self, script: Sequence[ModelReply]) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self.replies: list[ModelReply] = []
        self.usages: list[dict[str, int]] = []
        self.refusals: list[str] = []
        self.after_first_piece: Callable[[], None] = lambda: None
        self._script = iter(script)
        self._lock = Lock()

    def answer(self, request: Json) -> tuple[str, ModelReply]:
        """Store an accepted request, and choose the next answer of the script for it.

        Return the id of the answer, and the answer itself.
        """
        with self._lock:
            self.requests.append(request)
            reply = next(self._script, ModelReply(_END_OF_SCRIPT))
            self.replies.append(reply)
            return f"answer-{len(self.requests)}", reply


@contextmanager
def model_server(*replies: ModelReply) -> Generator[ModelServer]:
    """Serve these answers on a free port of loopback, until the block ends."""
    model = ModelServer(replies)

    class Endpoint(_ChatEndpoint):
        served = model

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.daemon_threads = True
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()


class _ChatEndpoint(BaseHTTPRequestHandler):
    served: ModelServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request with the next reply of the script, or refuse it with the reason."""
        problem, request = self._read_request()
        if not problem:
            problem = problem_of(request)
        if problem:
            self.served.refusals.append(problem)
            self._send_json(400, {"error": {"message": problem, "type": "invalid_request"}})
            return
        id_, reply = self.served.answer(request)
        usage = {
            "prompt_tokens": _count_tokens(request),
            "completion_tokens": _ANSWER_TOKENS,
        }
        self.served.usages.append(usage)
        try:
            if request.get("stream"):
                self._stream(id_, reply, usage)
            else:
                choice = {
                    "index": 0,
                    "message": _message(id_, reply),
                    "finish_reason": _finish_reason(reply),
                }
                self._send_json(200, {"id": id_, "choices": [choice], "usage": usage})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the program has exited

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the reader should see only the program's output."""

    def _read_request(self) -> tuple[str, Json]:
        """Return the problem of a request, and its body.

        The problem of a valid request is "". The body of an invalid request is {}.
        """
        if self.path.rstrip("/") != "/v1/chat/completions":
            return f"there is no {self.path!r} here: POST to MODEL_URL/chat/completions", {}
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            return f"the header Content-Length is {length!r}, not the size of the body", {}
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            return f"the body is not JSON: {error}", {}
        if not isinstance(body, dict):
            return "the body is not an object", {}
        return "", cast("Json", body)

    def _send_json(self, status: int, document: object) -> None:
        """Send a complete response with this status and document."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, id_: str, reply: ModelReply, usage: Json) -> None:
        """Send each piece of the answer as an event, then the usage, and then "[DONE]"."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number, delta in enumerate(_deltas(id_, reply)):
            self._send_event({"id": id_, "choices": [{"index": 0, "delta": delta}]})
            if number == 0:
                self.served.after_first_piece()
        end: Json = {"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}
        self._send_event({"id": id_, "choices": [end], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send_event(self, document: object) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()


def problem_of(request: Json) -> str:
    """Return why a real server would refuse the request; "" if it would accept it."""
    messages = cast("object", request.get("messages"))
    if not isinstance(request.get("model"), str):
        return "the request needs a 'model', such as \"scripted\""
    if not isinstance(messages, list) or not messages:
        reason = _none_reason(cast("object", messages))
        return f"the request needs 'messages', a list with at least one message{reason}"
    for number, tool in enumerate(cast("list[object]", request.get("tools") or [])):
        match tool:
            case {"type": "function", "function": {"name": str()}}:
                pass
            case _:
                return f"tools[{number}] is {tool!r}: describe a tool with 'type' and 'function'"
    open_calls: dict[str, None] = {}
    for number, message in enumerate(cast("list[object]", messages)):
        problem = _message_problem(message, open_calls)
        if problem:
            return f"messages[{number}]: {problem}"
    if open_calls:
        return f"the call {next(iter(open_calls))!r} has no result: send a message with role 'tool'"
    return ""


def _message_problem(message: object, open_calls: dict[str, None]) -> str:
    """Return what is wrong with a message of a request; "" if it is valid.

    `open_calls` has the ids of calls without a result, as keys in their order; this function
    adds and removes ids.
    """
    if not isinstance(message, dict):
        return f"a message is an object with 'role' and 'content', not {message!r}"
    fields = cast("Json", message)
    role, content = fields.get("role"), fields.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        return f"the role is {role!r}: use 'system', 'user', 'assistant' or 'tool'"
    if role == "tool":
        id_ = str(fields.get("tool_call_id", ""))
        if id_ not in open_calls:
            return f"it is the result of the call {id_!r}, but no call with this id waits for one"
        del open_calls[id_]
    elif open_calls:
        return f"the result of the call {next(iter(open_calls))!r} must come first"
    calls = cast("list[Json]", fields.get("tool_calls") or [])
    if role == "assistant":
        open_calls.update(dict.fromkeys(str(call.get("id")) for call in calls))
    has_only_calls = content is None and bool(calls)
    if not isinstance(content, str) and not has_only_calls:
        return f"'content' is {content!r}, but it must be text{_none_reason(content)}"
    return ""


def _none_reason(content: object) -> str:
    return " (a function without `return` gives None)" if content is None else ""


def _message(id_: str, reply: ModelReply) -> Json:
    """Return the answer as a message of the API; its content is None if it has no text."""
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_call(id_, n, call) for n, call in enumerate(reply.calls)]
    return message


def _call(id_: str, number: int, call: RequestedCall) -> Json:
    function = {"name": call.tool, "arguments": json.dumps(dict(call.arguments))}
    return {"id": f"{id_}-call-{number + 1}", "type": "function", "function": function}


def _deltas(id_: str, reply: ModelReply) -> Iterator[Json]:
    """Yield the pieces of a streamed answer. The arguments of each call are in two pieces."""
    for start in range(0, len(reply.text), _PIECE_CHARS):
        yield {"content": reply.text[start : start + _PIECE_CHARS]}
    for number, call in enumerate(reply.calls):
        piece = _call(id_, number, call)
        arguments = piece["function"]["arguments"]
        middle = len(arguments) // 2
        piece["function"]["arguments"] = arguments[:middle]
        yield {"tool_calls": [{"index": number, **piece}]}
        # the second piece has neither id nor name, as in the API
        rest = {"arguments": arguments[middle:]}
        yield {"tool_calls": [{"index": number, "function": rest}]}


def _finish_reason(reply: ModelReply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _count_tokens(request: Json) -> int:
    """Return an estimate of the number of tokens of a request."""
    return len(json.dumps(request["messages"])) // 4
