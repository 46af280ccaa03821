"""The file format of model responses: JSON lines, read by `--script` and `--replay`.

A line is a response. A person writes its text and calls, and a recording writes its deltas:

    {"text": "I look first.", "calls": [{"tool": "read_file", "arguments": {"path": "a"}}]}
    {"answered": 1, "deltas": [{"delta": "text", "text": "Yes."}, {"delta": "done", ...}]}

`Response` has the keys. Empty lines and lines that begin with # are skipped. A cassette also
has the requests. `answered` is the number of the request that a response belongs to:

    {"cassette": 1}
    {"asked": 1, "as": 0, "same": 0, "messages": [...], "request": {"system": "...", ...}}
    {"answered": 1, ...}
    {"asked": 2, "as": 1, "same": 3, "messages": [...]}

A call starts with the first `same` messages of call `as` (the previous one of the same
session) and adds its own `messages`; `request` has only the fields that changed since.
So a file grows linearly with its session. Sequence numbers of messages, `trace` and the
MCP servers of `hosted`, with their tokens, are not part of a request. JSON that is only passed
through is stored as a string, byte for byte; an image is stored as its digest. A call that was
stopped has `"stopped": true`, or no answer at all.

Scripts, cassettes and exported sessions have this one format, so a recording can be edited by
hand and played as a script. There are two flags, because `--replay` compares the requests, and
keeps the name, the price and the abilities of the recorded model; `--script` is a model of its
own, and plays its responses whatever is asked. `refold replay` reads journals, because only
journals have what the loop and the policies did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from refold.errors import (
    BadInput,
    BadRequest,
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    ToolRefused,
    Unreachable,
    reason_of,
)
from refold.provider.named_file import read_whole
from refold.provider.port import (
    CallDelta,
    Delta,
    HostedResult,
    Pictures,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.growing import Log
from refold.values.messages import StoredMessage
from refold.values.text import clean

FORMAT_VERSION = 1
MAX_FILE_BYTES = 256 * 1024 * 1024  # enough for days of work
KEYS_HINT = (
    "a line has text, thinking, calls, stop, pause, pace, for and error; a call has tool and "
    "arguments"
)

Plain: TypeAlias = Any  # what JSON can represent

_ERROR_CLASSES = (
    BadRequest,
    ToolRefused,
    TooLong,
    Refused,
    Overloaded,
    Unreachable,
    ProviderError,
)
ERRORS_BY_NAME: dict[str, type[ProviderError]] = {
    kind.__name__: kind for kind in _ERROR_CLASSES
}


class RecordedError(Struct, frozen=True, forbid_unknown_fields=True):
    """The error that ended a response. `kind` is the name of a class in `ERRORS_BY_NAME`."""

    kind: str
    words: str
    retry_after: float | None = None

    def as_error(self) -> ProviderError:
        """Return the error that was recorded."""
        if self.kind == "Overloaded":
            return Overloaded(self.words, retry_after=self.retry_after)
        return ERRORS_BY_NAME[self.kind](self.words)


def error_of(error: ProviderError) -> RecordedError:
    """Return the error as it is recorded."""
    kind = next(
        name for name, class_ in ERRORS_BY_NAME.items() if isinstance(error, class_)
    )
    retry_after = error.retry_after if isinstance(error, Overloaded) else None
    return RecordedError(kind, str(error), retry_after)


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    arguments: Raw = Raw(b"{}")


class Response(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A response, as a person wrote it or with all its `deltas`; and its `error`, if any.

    `pause` is the time in seconds between two pieces. With `pace`, pieces come every `pace`
    seconds, even if the reader is late. `conversation` (the key `for`) is the beginning of the
    conversation to which the response belongs. `answered` is the number of the request.
    `stopped` means that the request was stopped after these deltas.
    """

    answered: int = 0
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop | None = None
    pause: float = 0.0
    pace: float = 0.0
    conversation: str = field(default="", name="for")
    deltas: tuple[Delta, ...] | None = None
    error: RecordedError | None = None
    stopped: bool = False


class RecordedRequest(Struct, frozen=True):
    """A request in plain JSON values, as it is recorded and compared.

    `fields` has all fields of the request except its messages. If the request was read from a
    file, `line` is the line of the request, and `answered_at` the line of its response.
    Requests on the lines between these two lines were made at the same time.
    """

    fields: dict[str, Plain]
    messages: Log[Plain]
    number: int = 0
    line: int = 0
    answered_at: int = 0


class ResponseFile(Struct, frozen=True):
    """The content of a script or cassette. `version` is 0 for a script, which has no requests.

    `broken_at` is the number of a line that was cut off, or 0.
    """

    version: int
    requests: tuple[RecordedRequest, ...]
    responses: tuple[Response, ...]
    broken_at: int = 0


class _Head(Struct):
    """The keys that tell which kind a line is: a header, a request, or else a response."""

    cassette: int = 0
    asked: int = 0


class _RequestLine(Struct, forbid_unknown_fields=True):
    asked: int
    base: int = field(name="as")
    same: int
    messages: list[Plain]
    request: dict[str, Plain] = {}


def read(file: Path, name: Literal["script", "cassette"]) -> ResponseFile:
    """Read all lines of `file`. Raises `BadInput`, which names the file and the line."""
    try:
        content = read_whole(file, MAX_FILE_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise BadInput(f"the {name} {file} cannot be read: {reason_of(error)}") from error
    *lines, last_part = content.split(b"\n")  # `last_part` follows the last line end
    version = _parse_version(lines[0] if lines else b"")
    _check_version(version, file, name)
    # A person may leave out the last newline; a recording without it was cut off there.
    whole_lines = lines[1:] if version else [*lines, last_part]
    requests: dict[int, RecordedRequest] = {}
    responses: list[Response] = []
    for line_number, line in enumerate(whole_lines, start=2 if version else 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            if msgspec.json.decode(line, type=_Head).asked:
                request = _parse_request(line, line_number, requests)
                requests[request.number] = request
                continue
            response = _parse_response(line)
            responses.append(response)
            if response.answered:
                answered_request = requests[response.answered]
                requests[response.answered] = replace(
                    answered_request, answered_at=line_number
                )
        # `KeyError`: the line refers to the number of a request that does not exist
        except (ValueError, KeyError, RecursionError) as error:
            hint = "record it again" if version else KEYS_HINT
            raise BadInput(f"{file}, line {line_number}: {error}; {hint}") from error
    last_line = len(lines) + 1
    # A call without an answer may have run at the same time as all later calls.
    ended_requests = (
        request if request.answered_at else replace(request, answered_at=last_line)
        for request in requests.values()
    )
    broken_at = last_line if version and last_part else 0
    return ResponseFile(version, tuple(ended_requests), tuple(responses), broken_at)


def _parse_version(line: bytes) -> int:
    """Return the version if a line is the header of a cassette, otherwise 0."""
    try:
        return msgspec.json.decode(line, type=_Head).cassette
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def _check_version(version: int, file: Path, name: Literal["script", "cassette"]) -> None:
    """Raise `BadInput` for an unknown version, and for a cassette without a version (0)."""
    if name == "cassette" and not version:
        raise BadInput(
            f'{file} is not a cassette: its first line should be {{"cassette": {FORMAT_VERSION}}}; '
            "--script takes responses without requests"
        )
    if version not in (0, FORMAT_VERSION):
        raise BadInput(
            f"the cassette {file} is of version {version!r}, and this refold reads "
            f"version {FORMAT_VERSION}: record it again"
        )


def _parse_request(
    line: bytes, line_number: int, requests: Mapping[int, RecordedRequest]
) -> RecordedRequest:
    """Return the whole request. `line` has only the changes from an earlier request.

    `requests` has the earlier requests by their numbers. The key `same` of the line is the
    number of messages that both requests begin with.
    """
    change = msgspec.json.decode(line, type=_RequestLine)
    before = requests[change.base] if change.base else RecordedRequest({}, Log())
    messages = before.messages
    if change.same < len(messages):
        messages = Log(messages[: change.same])
    for message in change.messages:
        messages = messages.plus(message)
    fields = {**before.fields, **change.request}
    return RecordedRequest(fields, messages, number=change.asked, line=line_number)


def _parse_response(line: bytes) -> Response:
    """Decode a response. Raises `ValueError` if the kind of its error is unknown."""
    response = msgspec.json.decode(line, type=Response)
    if response.error is not None and response.error.kind not in ERRORS_BY_NAME:
        raise ValueError(f"{response.error.kind!r} is none of {', '.join(ERRORS_BY_NAME)}")
    if response.deltas is None:  # it was written, not recorded
        return response
    return replace(response, deltas=tuple(map(_with_data, response.deltas)))


def _with_data(delta: Delta) -> Delta:
    """Return a delta whose `data` is the JSON that a recording stores as a string."""
    if isinstance(delta, ThinkingDelta | CallDelta | HostedResult) and bytes(delta.data):
        stored_json = msgspec.json.decode(delta.data, type=str)
        return replace(delta, data=Raw(stored_json.encode()))
    return delta


Mask: TypeAlias = Callable[[bytes], bytes]


def no_mask(data: bytes) -> bytes:
    return data


def to_line(value: Response | dict[str, Plain], mask: Mask = no_mask) -> bytes:
    """Encode one line, with its line end.

    Deltas are joined first, so that `mask` gets whole texts.
    """
    if isinstance(value, Response):
        value = fields_of(replace(value, deltas=join_deltas(value.deltas or ())), mask)
    return msgspec.json.encode(value) + b"\n"


def join_deltas(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """Merge adjacent deltas that one delta can replace, in their order."""
    joined: list[Delta] = []
    for delta in deltas:
        merged = _merge_deltas(joined[-1], delta) if joined else None
        if merged is None:
            joined.append(delta)
        else:
            joined[-1] = merged
    return tuple(joined)


def _merge_deltas(first: Delta, second: Delta) -> Delta | None:
    """Return one delta that means the same as two, or None if they cannot be merged."""
    match first, second:
        case TextDelta(before), TextDelta(after):
            return TextDelta(before + after)
        case ThinkingDelta(before, wire, data), ThinkingDelta(after) if not (
            bytes(data) or wire
        ):
            return replace(second, text=before + after)  # only the last one may have data
        case (
            CallDelta(index=index, arguments=before, wire="", data=data),
            CallDelta(
                index=next_index, arguments=after, id="", name="", wire="", data=next_data
            ),
        ) if index == next_index and not bytes(data) and not bytes(next_data):
            return replace(first, arguments=before + after)
        case _:
            return None


class PlainRequests:
    """Converts requests to plain values, in order to record or compare them.

    A request repeats nearly everything that its session sent before. So the last request of
    each session is stored, and only new messages are converted: the total cost is linear in the
    number of messages, not quadratic.
    """

    def __init__(self, mask: Mask = no_mask) -> None:
        self._mask = mask
        # The messages of each session's last request, and that request in plain values.
        self._last: dict[str, tuple[Log[StoredMessage], RecordedRequest]] = {}
        self._digests: dict[str, tuple[bytes, str]] = {}

    def plain(self, request: Request) -> RecordedRequest:
        """Convert the request, and store it as the last one of its session."""
        converted, _, _ = self._convert_new(request, number=0)
        return converted

    def change(self, number: int, request: Request) -> dict[str, Plain]:
        """Return the line for a request: its changes from the last request of its session.

        `number` is the number of the call. The request is stored as the session's last one.
        """
        converted, last, equal_count = self._convert_new(request, number)
        line: dict[str, Plain] = {"asked": number, "as": last.number, "same": equal_count}
        line["messages"] = list(converted.messages[equal_count:])
        changed_fields = {
            name: value
            for name, value in converted.fields.items()
            if name not in last.fields or value != last.fields[name]
        }
        if changed_fields:
            line["request"] = changed_fields
        return line

    def share_messages(
        self, session: str, replayed: RecordedRequest, recorded: RecordedRequest
    ) -> None:
        """Let `replayed`, the last request of the session, use the message objects of `recorded`.

        The messages of both are equal, and identical objects compare in constant time. So for the
        session's next request only the new messages are compared.
        """
        messages, _ = self._last[session]
        self._last[session] = messages, replace(replayed, messages=recorded.messages)

    def _convert_new(
        self, request: Request, number: int
    ) -> tuple[RecordedRequest, RecordedRequest, int]:
        """Convert a request, and store it as the last one of its session.

        Return the converted request, the last request before it (empty if there is none), and
        the number of messages with which both begin.
        """
        last_messages, last_request = self._last.get(request.session) or (
            Log[StoredMessage](),
            RecordedRequest({}, Log()),
        )
        equal_count = _common_length(last_messages, request.messages)
        plain_messages = last_request.messages
        if equal_count < len(plain_messages):
            plain_messages = Log(plain_messages[:equal_count])
        for stored in request.messages[equal_count:]:
            plain_messages = plain_messages.plus(to_plain(stored.message, self._mask))
        this_request = RecordedRequest(self._fields(request), plain_messages, number)
        self._last[request.session] = request.messages, this_request
        return this_request, last_request, equal_count

    def _fields(self, request: Request) -> dict[str, Plain]:
        """Return the fields of a request that are recorded, except its messages."""
        special = ("messages", "pictures", "trace", "hosted")
        names = (name for name in Request.__struct_fields__ if name not in special)
        plain = {name: to_plain(getattr(request, name), self._mask) for name in names}
        return {**plain, "pictures": self._picture_digests(request.pictures)}

    def _picture_digests(self, pictures: Pictures) -> dict[str, str]:
        """Return the digest of each image by its name. Digests of known images are cached."""
        digests: dict[str, str] = {}
        for name, data in sorted(pictures.items()):
            known_data, digest = self._digests.get(name, (None, ""))
            if known_data is not data:
                digest = f"sha256:{sha256(data).hexdigest()}"
                self._digests[name] = data, digest
            digests[mask_text(name, self._mask)] = digest
        return digests


def to_plain(value: object, mask: Mask = no_mask) -> Plain:
    """Convert `value` to JSON types, and apply `mask` to its texts.

    Fields of a struct with their default values are omitted.
    """
    match value:
        case Struct():
            config = value.__struct_config__
            tag = {} if config.tag is None else {str(config.tag_field): config.tag}
            return {**tag, **fields_of(value, mask)}
        case Raw():
            return mask(bytes(value)).decode("utf-8", "replace")
        case str():
            return mask_text(value, mask)
        case tuple() | list():
            return [to_plain(item, mask) for item in cast("Sequence[object]", value)]
        case Mapping():
            mapping = cast("Mapping[str, object]", value)
            return {mask_text(k, mask): to_plain(v, mask) for k, v in mapping.items()}
        case _:
            return value


def fields_of(value: Struct, mask: Mask = no_mask) -> dict[str, Plain]:
    """Return the fields of a struct that differ from their defaults, as JSON values."""
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    required_count = len(names) - len(defaults)  # fields without a default come first
    fields: dict[str, Plain] = {}
    for index, (name, encoded_name) in enumerate(
        zip(names, value.__struct_encode_fields__, strict=True)
    ):
        field_value = getattr(value, name)
        is_required = index < required_count
        if is_required or field_value != defaults[index - required_count]:
            fields[encoded_name] = (
                field_value if name in _UNMASKED_FIELDS else to_plain(field_value, mask)
            )
    return fields


def mask_text(text: str, mask: Mask) -> str:
    """Return the text as it may be written, without secrets."""
    text = clean(text)
    return text if mask is no_mask else mask(text.encode()).decode("utf-8", "replace")


# These fields have fixed words. A secret that equals one of the words must not mask it.
_UNMASKED_FIELDS = frozenset({"role", "stop", "wire", "tool_choice", "effort", "kind"})


def _common_length(before: Log[StoredMessage], now: Log[StoredMessage]) -> int:
    """Return how many messages at the beginning of both conversations are equal."""
    equal_count = 0
    for old, new in zip(before, now, strict=False):
        # Identity is tested first, because most messages are the same objects.
        if old.message is not new.message and old.message != new.message:
            break
        equal_count += 1
    return equal_count
