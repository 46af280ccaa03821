"""The part of a message that the user wrote, and did not paste.

Code blocks, pasted logs, quoted mail and text between tags are material, of which nothing
is learned. Pure.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.memory.notes_file import plain

PASTED = 8  # lines without an empty one between them; more than that was not typed
LONGEST = 1_000  # letters of a line that somebody typed
LINES = 10  # that somebody types into one message, at most
MOST = 2_000  # letters of one message that somebody typed; in a longer one much is not
_READ = 50_000  # letters of one that are looked at

_FENCE = re.compile(
    r"^\s{0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^\s{0,3}\1[`~]*\s*$|\Z)", re.M | re.S
)
_TAG = re.compile(r"<([a-zA-Z][\w.:-]*)(?:\s[^<>]*)?>")
_ENDS = re.compile(r" *\n")
_NOT_TYPED = re.compile(r"\s{4,}\S|\s*>|\s*(?:[$#%❯]|>>>|\.\.\.)\s|\s*!\S")
# From such a line on all is a mail,
_MAIL = re.compile(
    r"\s*(?:(?:from|von|de|da|van|от)\s*:\s.*@|-{3,}\s*\w.*-{3,}\s*$"
    r"|(?:on|am|le|el|il|op)\s.*\b(?:wrote|schrieb|écrit|escribió|scritto|schreef)\b.*:\s*$)",
    re.IGNORECASE,
)
# and to the end of its block what a program said, or a difference.
_PROGRAM = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
    r"|Traceback \(|\S*(?:Error|Exception|Warning):(?:\s|$)|@@ |diff --git |\+\s*\S)"
)
# Somebody else's words, or ones that are only spoken of. A name or two is no sentence.
_QUOTED = re.compile(
    r"\"(?:[^\"\s]+\s+){2,}[^\"\s]+\s*\"|[“„](?:[^“”\s]+\s+){2,}[^“”\s]+\s*[”“]"
    r"|[«»](?:[^«»\s]+\s+){2,}[^«»\s]*\s*[«»]|`(?:[^`\s]+\s+){4,}[^`\s]+\s*`"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
# Asked so, something is wanted; asked otherwise, nothing is said to be so.
_WISH = re.compile(
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
    text = _FENCE.sub("\n\n", f"{message[:_READ]}\n")
    text = _untagged(plain(text))
    blocks = re.split(r"\n\s*\n", text)
    typed = (_typed(block.split("\n")) for block in _before(blocks))
    found = "\n".join(words for words in typed if words)
    return found if len(found) <= MOST and found.count("\n") < LINES else ""


def _untagged(text: str) -> str:
    """Without text between tags. A tag that is not closed removes the rest."""
    kept, at = list[str](), 0
    while found := _TAG.search(text, at):
        kept.append(text[at : found.start()])
        end = text.find(f"</{found[1]}", found.end())
        if end < 0 and _ENDS.match(text, found.end()):
            return "".join(kept)
        at = found.end() if end < 0 else text.find(">", end) + 1 or len(text)
        kept.append(found[0] if end < 0 else "\n\n")
    return "".join(kept) + text[at:]


def _before(blocks: Sequence[str]) -> Iterator[str]:
    """The blocks before a quoted mail, without output of programs."""
    for block in blocks:
        lines = block.split("\n")
        at = next(
            (
                n
                for n, line in enumerate(lines)
                if (_MAIL.match(line) or _PROGRAM.match(line))
            ),
            len(lines),
        )
        yield "\n".join(lines[:at])
        if at < len(lines) and _MAIL.match(lines[at]):
            return


def _stated(line: str) -> str:
    """The part of a line that the user states, and neither quotes nor asks."""
    sentences = _SENTENCE.split(_QUOTED.sub("…", line).strip())
    return " ".join(s for s in sentences if not s.endswith("?") or _WISH.search(s))


def _typed(lines: Sequence[str]) -> str:
    lines = [line for line in lines if line.strip()]
    if len(lines) > PASTED:
        return ""
    kept = (x for x in lines if len(x) <= LONGEST and not _NOT_TYPED.match(x))
    return "\n".join(filter(None, map(_stated, kept)))
