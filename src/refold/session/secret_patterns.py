"""Finds secrets of well-known kinds, by patterns, in complete text and in text that still
arrives.

Pure.

`redactor` handles values that are known to be secret.
"""

import re
from collections.abc import Callable, Iterator

# The beginning of a word. In JSON a word may also follow the escape of a control character,
# on a terminal a colour code, and in an address `%3D`.
_EDGE_PATTERN = (
    rb"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9;\[]m)|(?<=\[K)"
    rb"|(?<=%[0-9A-Fa-f]{2}))"
)
SEEN_BEFORE = 6  # how far `_EDGE_PATTERN` looks back at most
# Bytes of a possible secret that a stream holds back. A longer text that fits a pattern is
# certainly a secret.
STREAMED_BYTES = 256
# The beginning of each kind, the letters that may follow, and how many. A pattern takes the
# whole word: if it masked only half of a word, the other half could look like a secret of
# another kind.
_TOKEN_PATTERNS = (
    (rb"sk-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"gh[pousr]_", rb"[A-Za-z0-9]", rb"{36,}"),
    (rb"github_pat_", rb"[A-Za-z0-9_]", rb"{40,}"),
    (rb"glpat-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"xox[abprs]-", rb"[A-Za-z0-9-]", rb"{20,}"),
    (rb"AKIA", rb"[A-Z0-9]", rb"{16}\b"),
    (rb"AIza", rb"[A-Za-z0-9_-]", rb"{35,}"),
    (rb"hf_", rb"[A-Za-z0-9]", rb"{30,}"),
    (rb"npm_", rb"[A-Za-z0-9]", rb"{36,}"),
    (rb"pypi-", rb"[A-Za-z0-9_-]", rb"{50,}"),
    (rb"ASIA", rb"[A-Z0-9]", rb"{16}\b"),
    (rb"xapp-", rb"[A-Za-z0-9-]", rb"{20,}"),
    (rb"xai-", rb"[A-Za-z0-9_-]", rb"{40,}"),
    (rb"gsk_", rb"[A-Za-z0-9]", rb"{40,}"),
    (rb"pplx-", rb"[A-Za-z0-9]", rb"{40,}"),
    (rb"nvapi-", rb"[A-Za-z0-9_-]", rb"{40,}"),
    (rb"r8_", rb"[A-Za-z0-9]", rb"{37,}"),
    (rb"glrt-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"gldt-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"glptt-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"gloas-", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"sk_live_", rb"[A-Za-z0-9]", rb"{20,}"),
    (rb"rk_live_", rb"[A-Za-z0-9]", rb"{20,}"),
    (rb"whsec_", rb"[A-Za-z0-9]", rb"{24,}"),
    (rb"shpat_", rb"[A-Za-z0-9]", rb"{32,}"),
    (rb"shpca_", rb"[A-Za-z0-9]", rb"{32,}"),
    (rb"shppa_", rb"[A-Za-z0-9]", rb"{32,}"),
    (rb"shpss_", rb"[A-Za-z0-9]", rb"{32,}"),
    (rb"dop_v1_", rb"[A-Za-z0-9]", rb"{40,}"),
    (rb"doo_v1_", rb"[A-Za-z0-9]", rb"{40,}"),
    (rb"dor_v1_", rb"[A-Za-z0-9]", rb"{40,}"),
    (rb"dckr_pat_", rb"[A-Za-z0-9_-]", rb"{20,}"),
    (rb"lin_api_", rb"[A-Za-z0-9]", rb"{32,}"),
    (rb"AGE-SECRET-KEY-1", rb"[A-Z0-9]", rb"{58}\b"),
)
_JWT_SEGMENT = rb"eyJ[A-Za-z0-9_-]{10,}"
# In a text of more than three parts only the last three are masked, because a stream has sent
# the first ones by then.
_JWT_PATTERN = (
    _EDGE_PATTERN
    + _JWT_SEGMENT
    + rb"\."
    + _JWT_SEGMENT
    + rb"\.(?!"
    + _JWT_SEGMENT
    + rb"\.)[A-Za-z0-9_-]{10,}"
)
# Between BEGIN and END only the content of a key is allowed, so that nothing else can be
# hidden behind the mask. A line may begin as in a file, in JSON, a list, a quote or a diff,
# or be numbered as by `grep`, `cat -n` and `read_file`. Nothing is tried twice (`(?>`,
# `*+`), so that a key without an end takes little time.
_DASH_PATTERN = rb"-(?=-----END |[^-])"
_INDENT_PATTERN = rb"(?:[ \t>+|#*]|\\+t|" + _DASH_PATTERN + rb")*+"
_FILE_PATTERN = rb"(?:[\w./]|-(?!-)){1,200}(?::|" + _DASH_PATTERN + rb")"
_NUMBER_PATTERN = rb"[0-9]{1,9}(?::|\t|\\+t|" + _DASH_PATTERN + rb")"
LINE_START = (
    rb"(?:\\+[nr]|[\r\n])++" + _INDENT_PATTERN
    + rb"(?:" + _FILE_PATTERN + rb")?(?:" + _NUMBER_PATTERN + rb")?" + _INDENT_PATTERN
)  # fmt: skip
_PEM_LETTERS = rb"(?:[A-Za-z0-9+/=\t]|\\+t)*"
_PEM_HEADER = (
    rb"Proc-Type: 4,ENCRYPTED|DEK-Info: [A-Z0-9-]{1,30},[0-9A-Fa-f]{8,64}"
    rb"|Version: [\w .()-]{1,40}"
)
_PEM_LINE = LINE_START + rb"(?:" + _PEM_HEADER + rb")|" + LINE_START + _PEM_LETTERS
_PEM_BODY = _PEM_LETTERS + rb"(?>" + _PEM_LINE + rb")*+"
_PEM_NAME = rb"[A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_PEM_PATTERN = rb"-----BEGIN " + _PEM_NAME + _PEM_BODY + rb"-----END " + _PEM_NAME
# The beginnings are searched first: most texts contain none, and the search is cheap.
# Patterns are bytes until one is needed, because compiling all of them would delay the
# start.
_SECRET_SHAPES: tuple[tuple[bytes, bytes], ...] = (
    *(
        (begins.partition(b"[")[0], _EDGE_PATTERN + begins + letters + count)
        for begins, letters, count in _TOKEN_PATTERNS
    ),
    (b".eyJ", _JWT_PATTERN),
    (b"PRIVATE KEY", _PEM_PATTERN),
)

_WORD_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_PEM_CHARACTERS = _WORD_BYTES.rstrip(b"_-") + b"+/=\r\n\t"
_PEM_BEGIN = b"-----BEGIN "


def mask_secrets(data: bytes, mask_of: Callable[[bytes], bytes], start: int = 0) -> bytes:
    """Return `data` with a mask in place of each likely secret that begins at `start` or
    later.
    """
    for shape in shapes_in(data):
        data = b"".join(_mask_shape(data, shape, mask_of, start))
    return data


def shapes_in(data: bytes) -> Iterator[re.Pattern[bytes]]:
    """Yield the patterns that may match in `data`, in their order."""
    for start, shape in _SECRET_SHAPES:
        if start in data:
            yield re.compile(shape)


def possible_secret_start(data: bytes, start: int) -> int:
    """Return the position in `data`, from `start` on, at which an incomplete secret may
    begin.

    More data would complete the secret. Return the length of `data` if no secret may have
    begun. A secret without a maximum length is incomplete until another character ends it.
    """
    if b"-----END " in data:
        for key in re.compile(_PEM_PATTERN).finditer(data, start):
            start = key.end()  # a complete key is not searched again
    last_word = len(data.rstrip(_WORD_BYTES))
    token = re.compile(_TOKEN_START).search(data, max(start, last_word))
    offset = token.start() if token else len(data)
    if data[last_word - 1 : last_word] == b".":  # it may be a later part of a JWT
        jwt_start = _possible_jwt_start(data, start, last_word)
        offset = min(offset, _token_start(data, start, jwt_start))
    if b"-" in data[-len(_PEM_BEGIN) :] or _PEM_BEGIN in data:
        offset = min(offset, _possible_pem_start(data, start))
    return offset


def continues_pem(coming: bytes, more: bytes) -> bool:
    """Whether `more` only continues the private key that `coming` may begin. The check is
    fast.
    """
    return coming.startswith(_PEM_BEGIN) and not more.strip(_PEM_CHARACTERS)


def continuation_pattern(text: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern of the characters that would continue the secret `text`.

    Return None if `text` is not a secret, or is a secret of a fixed length.
    """
    for shape, letters in _ENDLESS_PATTERNS:
        if re.fullmatch(shape, text):
            return re.compile(letters)
    return None


def _mask_shape(
    data: bytes, shape: re.Pattern[bytes], mask_of: Callable[[bytes], bytes], start: int
) -> Iterator[bytes]:
    """Yield `data` in pieces, with a mask in place of each match from `start` on."""
    position = 0  # the data before it has been yielded
    for match in shape.finditer(data, start):
        yield data[position : match.start()]
        yield mask_of(match[0])
        position = match.end()
    yield data[position:]


def _possible_jwt_start(data: bytes, start: int, last: int) -> int:
    """Return where a JWT may start whose last part begins at data[last], after a dot.

    Return the length of `data` if there is none. A JWT has three parts, joined by dots, so the
    last word may be its third or its second part.
    """
    first_part, middle_part = re.compile(_JWT_FIRST), re.compile(_JWT_SEGMENT)
    last_dot = last - 1
    previous = len(data[:last_dot].rstrip(_WORD_BYTES))  # the start of the word before
    has_two_dots = data[previous - 1 : previous] == b"."
    if has_two_dots and middle_part.fullmatch(data, previous, last_dot):
        first_dot = previous - 1
        first = len(data[:first_dot].rstrip(_WORD_BYTES))
        match = first_part.search(data, max(start, first), first_dot)
        if match is not None:
            return match.start()
    if re.compile(_JWT_MIDDLE_START).fullmatch(data, last):
        match = first_part.search(data, max(start, previous), last_dot)
        if match is not None:
            return match.start()
    return len(data)


def _possible_pem_start(data: bytes, start: int) -> int:
    """Return where a private key in PEM format may start, or the length of `data`.

    Either a key has begun and not ended, or the data ends with a part of the first line.
    """
    begins = data.rfind(_PEM_BEGIN, start)
    has_open_key = begins != -1 and re.compile(_OPEN_PEM).fullmatch(data, begins)
    if not has_open_key:
        earliest = max(start, len(data) - len(_PEM_BEGIN))
        match = re.compile(_PEM_BEGIN_START).search(data, earliest)
        if match is None:
            return len(data)
        begins = match.start()
    return _token_start(data, start, begins)


def _token_start(data: bytes, start: int, begins: int) -> int:
    """Return the start of the complete token that contains data[begins]; `begins` if no token
    does.

    The dashes of a PEM header and the first part of a JWT may be the end of a token.
    """
    word_start = len(data[:begins].rstrip(_WORD_BYTES + b"."))
    token_start = begins
    for shape in shapes_in(data):
        for token in shape.finditer(data, max(start, word_start)):
            if token.start() < begins < token.end():
                token_start = min(token_start, token.start())
    return token_start


def _beginning_pattern(begins: bytes, then: bytes = b"") -> bytes:
    """Return a pattern for any beginning of `begins`, and for `begins` followed by
    `then`.
    """
    # "abc" becomes a(?:b(?:c)?)?; a part is one character, or a class such as [a-z].
    parts: list[bytes] = re.findall(rb"\[.*?\]|.", begins)
    pattern = parts[-1] + then
    for part in reversed(parts[:-1]):
        pattern = part + b"(?:" + pattern + b")?"
    return pattern


# A word that begins like a token is matched completely, so that no letter is tried twice.
# Otherwise each possible beginning in a long word would be followed to the end of the word.
_TOKEN_START = (
    _EDGE_PATTERN
    + b"(?:"
    + b"|".join(
        _beginning_pattern(begins, rb"[\w-]*")
        for begins, _, _ in (*_TOKEN_PATTERNS, (b"eyJ", b"", b""))
    )
    + rb")\Z"
)
_JWT_FIRST = _EDGE_PATTERN + _JWT_SEGMENT + rb"\Z"
_JWT_MIDDLE_START = b"(?:" + _beginning_pattern(b"eyJ", rb"[\w-]*") + b")?"
_PEM_BEGIN_START = _beginning_pattern(_PEM_BEGIN) + rb"\Z"
# After a complete line, half a line may follow. Of that, only the characters are checked.
_OPEN_PEM = (
    rb"-----BEGIN (?:[A-Z ]*-{0,4}|"
    + _PEM_NAME + _PEM_BODY + rb"[\w./:+=>|#*(), \t\\-]{0,400})"
)  # fmt: skip
_ENDLESS_PATTERNS = tuple(
    (begins + letters + count, letters + b"*")
    for begins, letters, count in _TOKEN_PATTERNS
    if count.endswith(b",}")
)
