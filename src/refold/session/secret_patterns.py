"""Patterns of well-known kinds of secrets, complete or still arriving. Pure.

Values that are known to be secret are in `redactor`.
"""

import re
from collections.abc import Callable, Iterator
from functools import reduce

# Where a word begins: inside JSON also after the escape of a line break and its like,
# on a terminal after an order that colours what follows, and in an address after `%3D`.
_EDGE = (
    rb"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9;\[]m)|(?<=\[K)"
    rb"|(?<=%[0-9A-Fa-f]{2}))"
)
SEEN_BEFORE = 6  # bytes that an edge looks at, at most
STREAMED_BYTES = 256  # of a secret that arrives in pieces: what follows is one already
# How each kind begins, the letters that follow, and how many of them. Each takes all of its
# word: behind the mask of half a word, another kind would seem to begin.
_TOKENS = (
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
_SEGMENT = rb"eyJ[A-Za-z0-9_-]{10,}"
# Of more than three parts, the last three: a stream has told the others by then.
_JWT = (
    _EDGE + _SEGMENT + rb"\." + _SEGMENT + rb"\.(?!" + _SEGMENT + rb"\.)[A-Za-z0-9_-]{10,}"
)
# Only what a key is made of may stand between: nothing else can hide behind a mask. A line
# begins as in a file, in JSON, a list, a quote or a diff, or as `grep`, `cat -n` and `read_file`
# number it. Nothing is tried twice (`(?>`, `*+`), so that a key without end takes no time.
_DASH = rb"-(?=-----END |[^-])"
_INDENT = rb"(?:[ \t>+|#*]|\\+t|" + _DASH + rb")*+"
_FILE = rb"(?:[\w./]|-(?!-)){1,200}(?::|" + _DASH + rb")"
_NUMBER = rb"[0-9]{1,9}(?::|\t|\\+t|" + _DASH + rb")"
LINE_START = (
    rb"(?:\\+[nr]|[\r\n])++" + _INDENT
    + rb"(?:" + _FILE + rb")?(?:" + _NUMBER + rb")?" + _INDENT
)  # fmt: skip
_PEM_LETTERS = rb"(?:[A-Za-z0-9+/=\t]|\\+t)*"
_PEM_HEADER = (
    rb"Proc-Type: 4,ENCRYPTED|DEK-Info: [A-Z0-9-]{1,30},[0-9A-Fa-f]{8,64}"
    rb"|Version: [\w .()-]{1,40}"
)
_PEM_LINE = LINE_START + rb"(?:" + _PEM_HEADER + rb")|" + LINE_START + _PEM_LETTERS
_PEM_BODY = _PEM_LETTERS + rb"(?>" + _PEM_LINE + rb")*+"
_PEM_NAME = rb"[A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_PEM = rb"-----BEGIN " + _PEM_NAME + _PEM_BODY + rb"-----END " + _PEM_NAME
# The beginnings are looked for first: most texts hold none, and that is cheap to see.
# Patterns stay bytes until one is needed: a start would wait for all to be compiled.
_SHAPES: tuple[tuple[bytes, bytes], ...] = (
    *(
        (begins.partition(b"[")[0], _EDGE + begins + letters + count)
        for begins, letters, count in _TOKENS
    ),
    (b".eyJ", _JWT),
    (b"PRIVATE KEY", _PEM),
)

_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_PEM_CHARACTERS = _WORD.rstrip(b"_-") + b"+/=\r\n\t"
_PEM_BEGIN = b"-----BEGIN "


def masked(data: bytes, mask_of: Callable[[bytes], bytes], at: int = 0) -> bytes:
    """`data` with a mask in the place of what looks like a secret and begins at `at` or later."""
    for shape in shapes_in(data):
        data = b"".join(_masked(data, shape, mask_of, at))
    return data


def shapes_in(data: bytes) -> Iterator[re.Pattern[bytes]]:
    """The patterns that may match in `data`, in their order."""
    for start, shape in _SHAPES:
        if start in data:
            yield re.compile(shape)


def possible_secret_start(data: bytes, at: int) -> int:
    """The position in `data`, from `at` on, of something that more data could make a secret
    of.

    The length of `data` if there is nothing. A secret of unlimited length counts while it
    continues.
    """
    if b"-----END " in data:
        for key in re.compile(_PEM).finditer(data, at):
            at = key.end()
    word = len(data.rstrip(_WORD))
    token = re.compile(_TOKEN_COMES).search(data, max(at, word))
    found = token.start() if token else len(data)
    if data[word - 1 : word] == b".":
        found = min(found, _jwt_from(data, at, word))
    if b"-" in data[-len(_PEM_BEGIN) :] or _PEM_BEGIN in data:
        found = min(found, _pem_from(data, at))
    return found


def goes_on_as_pem(coming: bytes, more: bytes) -> bool:
    """Is `more` nothing but the middle of the key that `coming` may be? A cheap look."""
    return coming.startswith(_PEM_BEGIN) and not more.strip(_PEM_CHARACTERS)


def endless(coming: bytes) -> re.Pattern[bytes] | None:
    """What all letters look like that still belong to `coming`, which is a secret already."""
    for shape, letters in _ENDLESS:
        if re.fullmatch(shape, coming):
            return re.compile(letters)
    return None


def _masked(
    data: bytes, shape: re.Pattern[bytes], mask_of: Callable[[bytes], bytes], at: int
) -> Iterator[bytes]:
    done = 0
    for found in shape.finditer(data, at):
        yield data[done : found.start()]
        yield mask_of(found[0])
        done = found.end()
    yield data[done:]


def _jwt_from(data: bytes, at: int, last: int) -> int:
    """The same for a JWT whose last part, begun behind a dot, is data[last:]."""
    middle = len(data[: last - 1].rstrip(_WORD))
    if data[middle - 1 : middle] == b"." and re.compile(_SEGMENT).fullmatch(
        data, middle, last - 1
    ):
        first = len(data[: middle - 1].rstrip(_WORD))
        if found := re.compile(_FIRST).search(data, max(at, first), middle - 1):
            return found.start()
    if re.compile(_MIDDLE_COMES).fullmatch(data, last) and (
        found := re.compile(_FIRST).search(data, max(at, middle), last - 1)
    ):
        return found.start()
    return len(data)


def _pem_from(data: bytes, at: int) -> int:
    begins = data.rfind(_PEM_BEGIN, at)
    if begins == -1 or not re.compile(_PEM_COMES).fullmatch(data, begins):
        found = re.compile(_PEM_BEGINS).search(data, max(at, len(data) - len(_PEM_BEGIN)))
        if found is None:
            return len(data)
        begins = found.start()
    # Its dashes may be the end of a token that is all there.
    word = len(data[:begins].rstrip(_WORD + b"."))
    tokens = (
        re.compile(shape).search(data, max(at, word))
        for start, shape in _SHAPES
        if start in data
    )
    within = (
        each.start() for each in tokens if each and each.start() < begins < each.end()
    )
    return min(within, default=begins)


def _coming(begins: bytes, then: bytes = b"") -> bytes:
    """A pattern for as much of `begins` as there may be, and for `then` behind all of it."""
    parts: list[bytes] = re.findall(rb"\[.*?\]|.", begins)
    return reduce(
        lambda rest, part: part + b"(?:" + rest + b")?",
        reversed(parts[:-1]),
        parts[-1] + then,
    )


# What begins like a token takes all of the word here, so that no letter is tried twice:
# in a long word each beginning would else be followed to its end.
_TOKEN_COMES = (
    _EDGE
    + b"(?:"
    + b"|".join(
        _coming(begins, rb"[\w-]*") for begins, _, _ in (*_TOKENS, (b"eyJ", b"", b""))
    )
    + rb")\Z"
)
_FIRST = _EDGE + _SEGMENT + rb"\Z"
_MIDDLE_COMES = b"(?:" + _coming(b"eyJ", rb"[\w-]*") + b")?"
_PEM_BEGINS = _coming(_PEM_BEGIN) + rb"\Z"
# What follows a whole line may be half a line: of that, only the characters count.
_PEM_COMES = (
    rb"-----BEGIN (?:[A-Z ]*-{0,4}|"
    + _PEM_NAME + _PEM_BODY + rb"[\w./:+=>|#*(), \t\\-]{0,400})"
)  # fmt: skip
_ENDLESS = tuple(
    (begins + letters + count, letters + b"*")
    for begins, letters, count in _TOKENS
    if count.endswith(b",}")
)
