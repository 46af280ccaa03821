"""A model for lessons: a server on loopback that gives the answers of a script.

It speaks Chat Completions, as most servers of models do, with and without streaming, and
refuses what they refuse. The requests it received are the evidence of a check. It uses the
standard library only, as the programs of the course do. `testing.wire_server` is the one
for tests of refold.
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
_PIECE_CHARS = 12

# A request or a message as JSON has it.
Json: TypeAlias = dict[str, Any]


class RequestedCall(Struct, frozen=True):
    """A call that the model makes. `arguments` are those of a Python function."""

    tool: str
    arguments: Mapping[str, object]


class ModelReply(Struct, frozen=True):
    """One answer of the model: text, calls, or both."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()


Reporting: TypeAlias = Callable[[], None]


class ModelServer:
    """`url` is the base of its addresses, `requests` the bodies in the order of their arrival.

    `refusals` are the reasons why it refused others. In a streamed answer, `after_first_piece` is
    called when the first piece has been sent.
    """

    def __init__(self, replies: Sequence[ModelReply]) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self.replies: list[ModelReply] = []
        self.refusals: list[str] = []
        self.after_first_piece: Reporting = lambda: None
        self._script = iter(replies)
        self._lock = Lock()

    def answer(self, request: Json) -> tuple[str, ModelReply]:
        """The id of the next answer, and the answer."""
        with self._lock:
            self.requests.append(request)
            reply = next(self._script, ModelReply(_END_OF_SCRIPT))
            self.replies.append(reply)
            return f"answer-{len(self.requests)}", reply


@contextmanager
def model_server(*replies: ModelReply) -> Generator[ModelServer]:
    """Serve on a free port of loopback until the block ends."""
    model = ModelServer(replies)

    class Endpoint(_ChatEndpoint):
        served = model

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.daemon_threads = True
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()


class _ChatEndpoint(BaseHTTPRequestHandler):
    served: ModelServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        problem, request = self._read_request()
        if not problem:
            problem = problem_of(request)
        if problem:
            self.served.refusals.append(problem)
            self._send_json(400, {"error": {"message": problem, "type": "invalid_request"}})
            return
        id_, reply = self.served.answer(request)
        usage = {"prompt_tokens": _count_tokens(request), "completion_tokens": 12}
        try:
            if request.get("stream"):
                self._stream(id_, reply, usage)
            else:
                choice = {
                    "index": 0,
                    "message": _message(id_, reply),
                    "finish_reason": _end(reply),
                }
                self._send_json(200, {"id": id_, "choices": [choice], "usage": usage})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the program has exited

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the program's output is what the reader sees."""

    def _read_request(self) -> tuple[str, Json]:
        """What is wrong with it, and the body."""
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
        return (
            ("", cast("Json", body))
            if isinstance(body, dict)
            else ("the body is not an object", {})
        )

    def _send_json(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, id_: str, reply: ModelReply, usage: Json) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number, delta in enumerate(_deltas(id_, reply)):
            self._send_event({"id": id_, "choices": [{"index": 0, "delta": delta}]})
            if number == 0:
                self.served.after_first_piece()
        end: Json = {"index": 0, "delta": {}, "finish_reason": _end(reply)}
        self._send_event({"id": id_, "choices": [end], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send_event(self, document: object) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()


def problem_of(request: Json) -> str:
    """What a real server would refuse about a request; "" if nothing."""
    messages = request.get("messages")
    if not isinstance(request.get("model"), str):
        return "the request needs a 'model', such as \"scripted\""
    if not isinstance(messages, list) or not messages:
        return "the request needs 'messages', a list with at least one message"
    open_calls: dict[str, str] = {}
    for number, message in enumerate(cast("list[object]", messages)):
        problem = _message_problem(message, open_calls)
        if problem:
            return f"messages[{number}]: {problem}"
    if open_calls:
        return f"the call {next(iter(open_calls))!r} has no result: send a message with role 'tool'"
    return ""


def _message_problem(message: object, open_calls: dict[str, str]) -> str:
    """`open_calls` are calls without a result, by id; it is brought up to date."""
    if not isinstance(message, dict):
        return f"a message is an object with 'role' and 'content', not {message!r}"
    fields = cast("Json", message)
    role, content = fields.get("role"), fields.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        return f"the role is {role!r}: use 'system', 'user', 'assistant' or 'tool'"
    if role == "tool":
        id_ = str(fields.get("tool_call_id", ""))
        if open_calls.pop(id_, None) is None:
            return f"it is the result of the call {id_!r}, but no call with this id waits for one"
    elif open_calls:
        return f"the result of the call {next(iter(open_calls))!r} must come first"
    calls = cast("list[Json]", fields.get("tool_calls") or [])
    if role == "assistant":
        open_calls.update((str(call.get("id")), "") for call in calls)
    if not isinstance(content, str) and not (content is None and calls):
        return f"'content' is {content!r}, but it must be text"
    return ""


def _message(id_: str, reply: ModelReply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_call(id_, n, call) for n, call in enumerate(reply.calls)]
    return message


def _call(id_: str, number: int, call: RequestedCall) -> Json:
    function = {"name": call.tool, "arguments": json.dumps(dict(call.arguments))}
    return {"id": f"{id_}-call-{number + 1}", "type": "function", "function": function}


def _deltas(id_: str, reply: ModelReply) -> Iterator[Json]:
    """The pieces of a streamed answer; arguments of a call come in two."""
    for start in range(0, len(reply.text), _PIECE_CHARS):
        yield {"content": reply.text[start : start + _PIECE_CHARS]}
    for number, call in enumerate(reply.calls):
        whole = _call(id_, number, call)
        text = whole["function"]["arguments"]
        middle = len(text) // 2
        whole["function"]["arguments"] = text[:middle]
        yield {"tool_calls": [{"index": number, **whole}]}
        yield {"tool_calls": [{"index": number, "function": {"arguments": text[middle:]}}]}


def _end(reply: ModelReply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _count_tokens(request: Json) -> int:
    """About as many as a model would count."""
    return len(json.dumps(request["messages"])) // 4
