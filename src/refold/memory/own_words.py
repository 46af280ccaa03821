"""The part of a message that the user wrote, and did not paste.

Code blocks, pasted logs, quoted mail and text between tags are material: nothing is learned
from them. Pure.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.memory.notes_file import to_plain

MAX_BLOCK_LINES = 8  # of a typed block; a longer one was pasted
MAX_LINE_CHARS = 1_000  # of a typed line
MAX_TYPED_LINES = 10  # of one message
MAX_MESSAGE_CHARS = 2_000  # of a typed message; much of a longer one is pasted
_MAX_READ_CHARS = 50_000  # of a message that are examined

_FENCE_PATTERN = re.compile(
    r"^\s{0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^\s{0,3}\1[`~]*\s*$|\Z)", re.M | re.S
)
_TAG_PATTERN = re.compile(r"<([a-zA-Z][\w.:-]*)(?:\s[^<>]*)?>")
_LINE_END = re.compile(r" *\n")
_NOT_TYPED = re.compile(r"\s{4,}\S|\s*>|\s*(?:[$#%❯]|>>>|\.\.\.)\s|\s*!\S")
# From such a line on, everything is a quoted mail,
_MAIL_PATTERN = re.compile(
    r"\s*(?:(?:from|von|de|da|van|от)\s*:\s.*@|-{3,}\s*\w.*-{3,}\s*$"
    r"|(?:on|am|le|el|il|op)\s.*\b(?:wrote|schrieb|écrit|escribió|scritto|schreef)\b.*:\s*$)",
    re.IGNORECASE,
)
# and to the end of its block, output of a program or a diff.
_PROGRAM_PATTERN = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
    r"|Traceback \(|\S*(?:Error|Exception|Warning):(?:\s|$)|@@ |diff --git |\+\s*\S)"
)
# Quoted or merely mentioned text. One or two words are not a quotation.
_QUOTED_PATTERN = re.compile(
    r"\"(?:[^\"\s]+\s+){2,}[^\"\s]+\s*\"|[“„](?:[^“”\s]+\s+){2,}[^“”\s]+\s*[”“]"
    r"|[«»](?:[^«»\s]+\s+){2,}[^«»\s]*\s*[«»]|`(?:[^`\s]+\s+){4,}[^`\s]+\s*`"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
# A question in this form is a request; any other question states nothing.
_WISH_PATTERN = re.compile(
    r"\b(?:please|bitte|(?:can|could|would|will) you|kannst|könntest|könnten|würdest|peux|"
    r"pourrais|pouvez|pourriez|puedes|podrías|puoi|potresti)\b|,\s*\w{1,7}\?",
    re.IGNORECASE,
)


class PersonWords(Struct, frozen=True):
    """What the user wrote in one message, with its event and time."""

    seq: int
    at: float
    text: str


def own_words(message: str) -> str:
    """The user's own words; "" if all of the message is material."""
    text = _FENCE_PATTERN.sub("\n\n", f"{message[:_MAX_READ_CHARS]}\n")
    text = _without_tags(to_plain(text))
    blocks = re.split(r"\n\s*\n", text)
    typed = (_own_lines(block.split("\n")) for block in _before_quoted_mail(blocks))
    result = "\n".join(words for words in typed if words)
    return (
        result
        if len(result) <= MAX_MESSAGE_CHARS and result.count("\n") < MAX_TYPED_LINES
        else ""
    )


def _without_tags(text: str) -> str:
    """The text without passages between tags. A tag that is not closed removes the rest."""
    parts, position = list[str](), 0
    while match := _TAG_PATTERN.search(text, position):
        parts.append(text[position : match.start()])
        end = text.find(f"</{match[1]}", match.end())
        if end < 0 and _LINE_END.match(text, match.end()):
            return "".join(parts)
        position = match.end() if end < 0 else text.find(">", end) + 1 or len(text)
        parts.append(match[0] if end < 0 else "\n\n")
    return "".join(parts) + text[position:]


def _before_quoted_mail(blocks: Sequence[str]) -> Iterator[str]:
    """The blocks before a quoted mail, without output of programs."""
    for block in blocks:
        lines = block.split("\n")
        index = next(
            (
                n
                for n, line in enumerate(lines)
                if (_MAIL_PATTERN.match(line) or _PROGRAM_PATTERN.match(line))
            ),
            len(lines),
        )
        yield "\n".join(lines[:index])
        if index < len(lines) and _MAIL_PATTERN.match(lines[index]):
            return


def _statement(line: str) -> str:
    """The part of a line that the user states, and neither quotes nor asks."""
    sentences = _SENTENCE_END.split(_QUOTED_PATTERN.sub("…", line).strip())
    return " ".join(s for s in sentences if not s.endswith("?") or _WISH_PATTERN.search(s))


def _own_lines(lines: Sequence[str]) -> str:
    lines = [line for line in lines if line.strip()]
    if len(lines) > MAX_BLOCK_LINES:
        return ""
    usable = (x for x in lines if len(x) <= MAX_LINE_CHARS and not _NOT_TYPED.match(x))
    return "\n".join(filter(None, map(_statement, usable)))
