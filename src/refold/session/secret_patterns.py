"""Patterns of well-known kinds of secrets, complete or still arriving. Pure.

Values that are known to be secret are in `redactor`.
"""

import re
from collections.abc import Callable, Iterator
from functools import reduce

# Where a word begins: in JSON also after the escape of a control character, on a
# terminal after a colour code, and in an address after `%3D`.
_EDGE_PATTERN = (
    rb"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9;\[]m)|(?<=\[K)"
    rb"|(?<=%[0-9A-Fa-f]{2}))"
)
SEEN_BEFORE = 6  # the most that `_EDGE_PATTERN` looks back
STREAMED_BYTES = 256  # of a secret that arrives in pieces: what follows is one already
# How each kind begins, the letters that follow, and how many of them. Each takes all of its
# word: behind the mask of half a word, another kind would seem to begin.
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
# Of more than three parts, the last three: a stream has sent the others by then.
_JWT_PATTERN = (
    _EDGE_PATTERN
    + _JWT_SEGMENT
    + rb"\."
    + _JWT_SEGMENT
    + rb"\.(?!"
    + _JWT_SEGMENT
    + rb"\.)[A-Za-z0-9_-]{10,}"
)
# Only what a key is made of may stand between: nothing else can hide behind a mask. A line
# begins as in a file, in JSON, a list, a quote or a diff, or as `grep`, `cat -n` and `read_file`
# number it. Nothing is tried twice (`(?>`, `*+`), so that a key without end takes no time.
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
# The beginnings are searched first: most texts hold none, and the search is cheap.
# Patterns stay bytes until one is needed: a start would wait for all to be compiled.
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
    """`data` with a mask in the place of each likely secret that begins at `start` or
    later."""
    for shape in shapes_in(data):
        data = b"".join(_mask_shape(data, shape, mask_of, start))
    return data


def shapes_in(data: bytes) -> Iterator[re.Pattern[bytes]]:
    """The patterns that may match in `data`, in their order."""
    for start, shape in _SECRET_SHAPES:
        if start in data:
            yield re.compile(shape)


def possible_secret_start(data: bytes, start: int) -> int:
    """The position in `data`, from `start` on, of something that more data could make a secret
    of.

    The length of `data` if there is nothing. A secret of unlimited length counts while it
    continues.
    """
    if b"-----END " in data:
        for key in re.compile(_PEM_PATTERN).finditer(data, start):
            start = key.end()
    word = len(data.rstrip(_WORD_BYTES))
    token = re.compile(_TOKEN_COMES).search(data, max(start, word))
    offset = token.start() if token else len(data)
    if data[word - 1 : word] == b".":
        offset = min(offset, _token_around(data, start, _jwt_from(data, start, word)))
    if b"-" in data[-len(_PEM_BEGIN) :] or _PEM_BEGIN in data:
        offset = min(offset, _pem_from(data, start))
    return offset


def continues_pem(coming: bytes, more: bytes) -> bool:
    """Whether `more` only continues the key that `coming` may be. A cheap check."""
    return coming.startswith(_PEM_BEGIN) and not more.strip(_PEM_CHARACTERS)


def continuation_pattern(coming: bytes) -> re.Pattern[bytes] | None:
    """The pattern of the letters that continue `coming`, if that is already a secret."""
    for shape, letters in _ENDLESS_PATTERNS:
        if re.fullmatch(shape, coming):
            return re.compile(letters)
    return None


def _mask_shape(
    data: bytes, shape: re.Pattern[bytes], mask_of: Callable[[bytes], bytes], start: int
) -> Iterator[bytes]:
    end = 0
    for match in shape.finditer(data, start):
        yield data[end : match.start()]
        yield mask_of(match[0])
        end = match.end()
    yield data[end:]


def _jwt_from(data: bytes, start: int, last: int) -> int:
    """Like `possible_secret_start`, for a JWT. Its last part is data[last:], after a dot."""
    middle = len(data[: last - 1].rstrip(_WORD_BYTES))
    if data[middle - 1 : middle] == b"." and re.compile(_JWT_SEGMENT).fullmatch(
        data, middle, last - 1
    ):
        first = len(data[: middle - 1].rstrip(_WORD_BYTES))
        if match := re.compile(_JWT_FIRST).search(data, max(start, first), middle - 1):
            return match.start()
    if re.compile(_MIDDLE_COMES).fullmatch(data, last) and (
        match := re.compile(_JWT_FIRST).search(data, max(start, middle), last - 1)
    ):
        return match.start()
    return len(data)


def _pem_from(data: bytes, start: int) -> int:
    begins = data.rfind(_PEM_BEGIN, start)
    if begins == -1 or not re.compile(_PEM_COMES).fullmatch(data, begins):
        match = re.compile(_PEM_BEGINS).search(
            data, max(start, len(data) - len(_PEM_BEGIN))
        )
        if match is None:
            return len(data)
        begins = match.start()
    return _token_around(data, start, begins)


def _token_around(data: bytes, start: int, begins: int) -> int:
    """The start of the complete token that contains data[begins]; `begins` if there is
    none.

    The dashes of a PEM may be the end of a token, and the first part of a JWT, too.
    """
    word = len(data[:begins].rstrip(_WORD_BYTES + b"."))
    within = (
        token.start()
        for shape in shapes_in(data)
        for token in shape.finditer(data, max(start, word))
        if token.start() < begins < token.end()
    )
    return min(within, default=begins)


def _beginning_pattern(begins: bytes, then: bytes = b"") -> bytes:
    """A pattern for any beginning of `begins`, or for all of it followed by `then`."""
    parts: list[bytes] = re.findall(rb"\[.*?\]|.", begins)
    return reduce(
        lambda rest, part: part + b"(?:" + rest + b")?",
        reversed(parts[:-1]),
        parts[-1] + then,
    )


# What begins like a token takes all of the word here, so that no letter is tried twice:
# in a long word each beginning would else be followed to its end.
_TOKEN_COMES = (
    _EDGE_PATTERN
    + b"(?:"
    + b"|".join(
        _beginning_pattern(begins, rb"[\w-]*")
        for begins, _, _ in (*_TOKEN_PATTERNS, (b"eyJ", b"", b""))
    )
    + rb")\Z"
)
_JWT_FIRST = _EDGE_PATTERN + _JWT_SEGMENT + rb"\Z"
_MIDDLE_COMES = b"(?:" + _beginning_pattern(b"eyJ", rb"[\w-]*") + b")?"
_PEM_BEGINS = _beginning_pattern(_PEM_BEGIN) + rb"\Z"
# What follows a whole line may be half a line: of that, only the characters count.
_PEM_COMES = (
    rb"-----BEGIN (?:[A-Z ]*-{0,4}|"
    + _PEM_NAME + _PEM_BODY + rb"[\w./:+=>|#*(), \t\\-]{0,400})"
)  # fmt: skip
_ENDLESS_PATTERNS = tuple(
    (begins + letters + count, letters + b"*")
    for begins, letters, count in _TOKEN_PATTERNS
    if count.endswith(b",}")
)
