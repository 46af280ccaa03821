"""Maps a provider's refusal to a `ProviderError`, by its status and its wording.

The functions are pure. The error is one sentence that names the provider, quotes its message
and says what to change. `http` reads the bytes, and `retry` tries again.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from refold.errors import BadRequest, Overloaded, ProviderError, Refused, TooLong
from refold.values.printable_names import shorten
from refold.values.text import MIN_SECRET_CHARS, clean

_MAX_SUGGESTIONS = 3  # names of models that are similar to an unknown one
_MAX_SIMILAR_SPELLINGS = 12
_TEMPORARY_STATUSES = frozenset(
    {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
)
# these last for minutes rather than moments
_OVERLOAD_STATUSES = frozenset({429, 503, 529})
_NEVER_TOO_LONG_STATUSES = frozenset({401, 402, 403, 404, 429})
_BAD_REQUEST_STATUSES = frozenset({400, 422})
# Error codes for a request that is too long: OpenAI and similar APIs, llama.cpp, Anthropic,
# Cohere and others.
_TOO_LONG_CODE_PATTERN = (
    r"context_length_exceeded|context_window_exceeded|exceed_context_size|request_too_large"
    r"|input_too_long|prompt_too_long|input_tokens_exceeded"
    r"|contextwindowexceeded|context_overflow|tokens_limit_reached|payload_too_large"
)
# Phrases for servers that send no code: each server has its own.
_TOO_LONG_PATTERN = (
    r"\b(prompt|input|request|conversation|messages?)( [a-z]+)? (is|are) too (long|large)"
    r"|(prompt|input|request) too (long|large)"
    r"|context[ _-]?(length|window|limit|size|overflow)|maximum context|\bn_ctx\b|\bn_keep\b"
    r"|too many (input |prompt )?tokens|input token count"
    r"|\b(prompt|input|request|context|tokens?)\b.{0,60}\bexceed\w*"
    r".{0,60}\b(length|limit|tokens?|window)\b"
    r"|\bexceed\w* .{0,30}\b(context|token|prompt|input)s? (limit|length|window)\b"
    r"|\bmaximum (prompt|model|input|sequence) length|\bmax(imum)?_?(model|seq|input)_?len"
    r"|longer than the (maximum|model)"
    r"|reduce (the length of|your) (the )?(messages?|prompt|input)"
    r"|`inputs`.{0,60}must (have less|be <=)"
    r"|(does not|doesn't|cannot) fit (in|into|the)\b.{0,30}\b(context|window)\b"
    r"|range of input length|message size \d+ exceeds|exceeds the per-batch cap"
    r"|prompt 超长|长度超限|上下文长度超"
)
_LARGER_THAN_LIMIT_PATTERN = r"request too large for"  # no waiting helps
_NO_CREDIT_PATTERN = (
    r"insufficient[_ ]quota|billing_(error|hard_limit)|credit balance|payment required"
)

# Some servers answer 404 for an unknown model, others 400.
_NO_SUCH_MODEL_PATTERN = (
    r"model_(not_found|decommissioned)|invalid model( name| id|:|$)"
    r"|not a valid model|unknown model|not found the model|unexpected model name"
    r"|\bmodels?\b[^,;]*\b(not exist|not found)\b"
)

_SECONDS_BY_UNIT = {b"ms": 0.001, b"s": 1.0, b"m": 60.0, b"h": 3600.0}
_WRONG_KEY_PATTERN = r"api_key_invalid|api key not valid"  # Google answers 400


class Peer(Struct, frozen=True):
    """A server and its names, for error messages."""

    label: str  # for example "Anthropic"
    base_url: str
    name: str = ""  # for example "anthropic", as in the name of a model
    url_env: str = ""  # the variable that changes the address
    key_env: str = ""  # the variable that holds the key
    advice: str = ""  # what else to check if it does not answer


class StreamError(Struct, frozen=True):
    """An error in the middle of a response that began with a good status."""

    status: int  # the status that the error would have had at the beginning
    message: str


class ResponseStart(Struct, frozen=True):
    """The beginning of a response, with what is needed to tell whether it is an error."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    model: str = ""
    now: float = 0.0  # seconds since 1970, to read a Retry-After that is a date


def failure(peer: Peer, reply: ResponseStart) -> ProviderError:
    """Return the error for a response that is not a success."""
    message, code = _message_and_code(reply.body)
    wording = f"{code} {message}".lower()
    status = reply.status
    ending = f"({status}){_provider_message(message)}"
    if _is_too_long(status, code.lower(), message.lower()):
        return TooLong(f"The conversation does not fit {_model_text(peer, reply)} {ending}")
    if status == 402 or re.search(_NO_CREDIT_PATTERN, wording):
        return Refused(f"{peer.label}: not enough credit on this account {ending}")
    if status in _TEMPORARY_STATUSES or status >= 500:
        wait = retry_after(reply.headers, reply.now)
        if wait is None:
            wait = _retry_seconds(reply.body)
        text = f"{peer.label}: {_status_in_words(status)} {ending}"
        return Overloaded(
            text,
            retry_after=wait,
            limited=status == 429,
            overload=status in _OVERLOAD_STATUSES,
        )
    if status in (401, 403) or re.search(_WRONG_KEY_PATTERN, wording):
        return Refused(f"{peer.label} refused {_access_text(peer)} {ending}")
    if status == 404:
        return Refused(_not_found(peer, reply, code, message))
    if re.search(_NO_SUCH_MODEL_PATTERN, wording):
        return Refused(_no_such_model(peer, reply, message))
    if 300 <= status < 400:
        return Refused(
            f"{peer.base_url} redirects to {reply.headers.get('location', '?')!r} ({status})"
            f": {_address_advice(peer)}"
        )
    kind = BadRequest if status in _BAD_REQUEST_STATUSES else Refused
    return kind(f"{peer.label} refused the request for {_model_text(peer, reply)} {ending}")


def _is_too_long(status: int, code: str, message: str) -> bool:
    """Whether the refusal says that the request was too long."""
    if status == 413:
        return True
    # normally a rate limit, unless the request exceeds the limit of any minute
    if status == 429:
        return bool(re.search(_LARGER_THAN_LIMIT_PATTERN, message))
    if status in _NEVER_TOO_LONG_STATUSES:
        return False
    if re.search(_TOO_LONG_CODE_PATTERN, code):
        return True
    return bool(re.search(_TOO_LONG_PATTERN, message))


def _status_in_words(status: int) -> str:
    """Return what a status of a temporary failure means, for an error message."""
    match status:
        case 429:
            return "rate limit reached"
        case 503 | 529:
            return "overloaded"
        case 408 | 504:
            return "no response in time"
        case _:
            return "error at the provider"


def not_a_stream_error(peer: Peer, reply: ResponseStart) -> ProviderError:
    """Return the error for a response with status 200 that is a web page or an error."""
    message, _ = _message_and_code(reply.body)
    if message and b'"error"' in reply.body:
        return failure(peer, msgspec.structs.replace(reply, status=500))
    kind = reply.headers.get("content-type", "no content type")
    start = excerpt(reply.body[:80].decode("utf-8", "replace"))
    return Refused(
        f"{peer.base_url} answered with {kind} instead of a model's response, "
        f"beginning {start!r}: {_address_advice(peer)}"
    )


def stream_failure(peer: Peer, trouble: StreamError, model: str) -> ProviderError:
    """Return the error for a failure that a stream reports in the middle of a response."""
    body = msgspec.json.encode({"error": clean(trouble.message)})
    return failure(peer, ResponseStart(trouble.status, body=body, model=model))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait in seconds that the headers ask for, or None if they ask for none.

    `now` is the time in seconds since 1970.
    """
    try:
        if "retry-after-ms" in headers:
            wait = float(headers["retry-after-ms"]) / 1000
        else:
            wait = float(headers["retry-after"])
    except KeyError:
        return None
    except ValueError:  # it is not a number, but may be a date
        wait = _seconds_until(headers.get("retry-after", ""), now)
    return max(wait, 0.0) if math.isfinite(wait) else None


def excerpt(text: str) -> str:
    """Return the beginning of `text` on one line, for use in a sentence."""
    printable = (c if c.isprintable() else " " for c in clean(text[:1000]))
    return shorten(" ".join("".join(printable).split()), 300)


def mask_secrets(text: str, secret: str) -> str:
    """Return `text` without `secret`, and without anything else that looks like a key."""
    if len(secret) >= MIN_SECRET_CHARS:
        text = text.replace(secret, "[the key]")
    return re.sub(
        r"\b((sk|pk|gsk|xai|key)-[\w-]{8,}|gsk_\w{8,}|AIza[\w-]{30,})", "[a key]", text
    )


def _message_and_code(body: bytes) -> tuple[str, str]:
    """Return the error message in a body, and the error codes, separated by spaces.

    If the body has no known form, the message is the beginning of the body, or says that it is
    a web page.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:200].decode("utf-8", "replace")
        return ("a web page, no API" if "<html" in text.lower() else text), ""
    match content:
        # Google's error, if a stream was requested
        case [{"error": {}} as first, *_]:
            return _message_and_code(msgspec.json.encode(first))
        case {
            "error": {"message": str(message_text), "metadata": {"raw": str(raw)}, **more}
        }:
            # OpenRouter quotes the error of its source
            inner, codes = _message_and_code(raw.encode())
            return f"{message_text}: {inner}", " ".join((*_codes(more), codes))
        case {"error": {"message": str(message_text), **more}}:
            return message_text, " ".join(_codes(more))
        case (
            {"error": str(message_text)}
            | {"message": str(message_text)}
            | {"detail": str(message_text)}
        ):
            return message_text, ""
        case _:
            return body[:200].decode("utf-8", "replace"), ""


def _codes(error: dict[str, Any]) -> Iterator[str]:
    """Yield the codes of an error, from the fields that the various providers use."""
    for name in ("type", "code", "status"):
        if error.get(name) is not None:
            yield str(error[name])
    match error:
        case {"details": [*details]}:
            for detail in details:
                match detail:
                    case {"reason": str(reason)}:
                        yield reason
                    case _:
                        continue
        case _:
            return


def _retry_seconds(body: bytes) -> float | None:
    """Return the wait in seconds that a body asks for, or None if it asks for none.

    Google writes `"retryDelay": "34.07s"`, others "try again in 1m5s".
    """
    if delay := re.search(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"', body):
        return float(delay[1])
    words = re.search(rb"try again in ((?:\d+(?:\.\d+)? ?(?:ms|[hms])[a-z]* ?)+)", body)
    if words is None:
        return None
    parts = re.findall(rb"(\d+(?:\.\d+)?) ?(ms|[hms])", words[1])
    return sum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in parts)


def _model_text(peer: Peer, reply: ResponseStart) -> str:
    """Return the names of the provider and the model, or only the provider's."""
    return f"{peer.label}'s {reply.model!r}" if reply.model else peer.label


def _access_text(peer: Peer) -> str:
    return f"the key in {peer.key_env}" if peer.key_env else "to give access"


def _address_advice(peer: Peer) -> str:
    return f"check {peer.url_env or 'the address'}"


def _not_found(peer: Peer, reply: ResponseStart, code: str, message: str) -> str:
    """Return a message about status 404, which may mean the model or the whole API."""
    if "model" in f"{code} {message}".lower() or "not_found" in code:
        return _no_such_model(peer, reply, message)
    return (
        f"There is no {peer.label} API at {peer.base_url} (404){_provider_message(message)}; "
        f"{_address_advice(peer)}, and the model's name {reply.model!r}"
    )


def _provider_message(message: str) -> str:
    """Return the provider's message after a colon, to append to a sentence, or ""."""
    words = excerpt(message)
    return f": {words}" if words else ""


def _no_such_model(peer: Peer, reply: ResponseStart, message: str) -> str:
    """Return the text for an unknown model, which suggests similar names, if any."""
    unknown = f"the model {reply.model!r} ({reply.status}){_provider_message(message)}"
    suggestions = _similar_models(peer.name, reply.model)
    hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
    return f"{peer.label} does not know {unknown}{hint}"


def _similar_models(provider: str, model: str) -> list[str]:
    """Return a few known models of the provider whose names are similar to `model`."""
    from difflib import get_close_matches

    from refold.provider.known_models import by_name
    from refold.provider.prices import vendor_name

    models = by_name(vendor_name(provider))
    # A model has many spellings, so more spellings are searched than models suggested. The
    # first spelling of a model is certainly valid.
    spellings = get_close_matches(model.lower(), models, _MAX_SIMILAR_SPELLINGS)
    names = dict.fromkeys(models[spelling].names[0] for spelling in spellings)
    return [name for name in names if name != model][:_MAX_SUGGESTIONS]


def _seconds_until(date: str, now: float) -> float:
    """Return the seconds from `now` until a date in a header, or NaN if it is not a date."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp() - now
    except ValueError:
        return math.nan
