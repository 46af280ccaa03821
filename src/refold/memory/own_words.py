"""Finds the part of a message that the user typed, without what the user pasted. Pure.

Code blocks, pasted logs, quoted mail and text between tags are left out, because notes are made
only from the user's own statements.
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

# A code block in Markdown, or the rest of a text in which it is not closed.
_FENCE_PATTERN = re.compile(
    r"^\s{0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^\s{0,3}\1[`~]*\s*$|\Z)", re.M | re.S
)
_TAG_PATTERN = re.compile(r"<([a-zA-Z][\w.:-]*)(?:\s[^<>]*)?>")
_LINE_END = re.compile(r" *\n")
# The beginning of an indented, quoted or shell line.
_NOT_TYPED = re.compile(r"\s{4,}\S|\s*>|\s*(?:[$#%❯]|>>>|\.\.\.)\s|\s*!\S")
# After such a line, the rest of the message is a quoted mail.
_MAIL_PATTERN = re.compile(
    r"\s*(?:(?:from|von|de|da|van|от)\s*:\s.*@|-{3,}\s*\w.*-{3,}\s*$"
    r"|(?:on|am|le|el|il|op)\s.*\b(?:wrote|schrieb|écrit|escribió|scritto|schreef)\b.*:\s*$)",
    re.IGNORECASE,
)
# After such a line, the rest of the block is output of a program or a diff.
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
    """The text that the user typed in one message, and the event number and time of the
    message.
    """

    seq: int
    at: float
    text: str


def own_words(message: str) -> str:
    """Return the statements that the user typed in `message`.

    Return "" if there are none, or if the text is so long that much of it is probably pasted.
    """
    text = _FENCE_PATTERN.sub("\n\n", f"{message[:_MAX_READ_CHARS]}\n")
    text = _without_tags(to_plain(text))
    blocks = re.split(r"\n\s*\n", text)
    typed = (_own_lines(block.split("\n")) for block in _before_quoted_mail(blocks))
    result = "\n".join(words for words in typed if words)
    # Much of a longer message is pasted.
    if len(result) > MAX_MESSAGE_CHARS or result.count("\n") >= MAX_TYPED_LINES:
        return ""
    return result


def _without_tags(text: str) -> str:
    """Return the text without tags and the text between them.

    If a tag is not closed and is the end of its line, the rest of the text is left out. Any
    other tag that is not closed stays.
    """
    parts, position = list[str](), 0
    while match := _TAG_PATTERN.search(text, position):
        parts.append(text[position : match.start()])
        end_tag = text.find(f"</{match[1]}", match.end())
        if end_tag >= 0:
            end = text.find(">", end_tag)
            position = end + 1 if end >= 0 else len(text)
            parts.append("\n\n")
        elif _LINE_END.match(text, match.end()):
            return "".join(parts)
        else:
            position = match.end()
            parts.append(match[0])
    return "".join(parts) + text[position:]


def _before_quoted_mail(blocks: Sequence[str]) -> Iterator[str]:
    """Yield the blocks of text up to the first quoted mail.

    Each block ends where output of a program begins in it.
    """
    for block in blocks:
        lines = list[str]()
        has_mail = False
        for line in block.split("\n"):
            has_mail = _MAIL_PATTERN.match(line) is not None
            if has_mail or _PROGRAM_PATTERN.match(line):
                break
            lines.append(line)
        yield "\n".join(lines)
        if has_mail:
            return


def _statement(line: str) -> str:
    """Return the sentences of a line, without questions and quotations. Requests stay."""
    without_quotations = _QUOTED_PATTERN.sub("…", line).strip()
    statements = list[str]()
    for sentence in _SENTENCE_END.split(without_quotations):
        is_question = sentence.endswith("?")
        is_request = _WISH_PATTERN.search(sentence)  # such as "can you please …?"
        if not is_question or is_request:
            statements.append(sentence)
    return " ".join(statements)


def _own_lines(lines: Sequence[str]) -> str:
    """Return the statements in the typed lines of a block.

    Return "" for a block that is so long that it was probably pasted.
    """
    written_lines = [line for line in lines if line.strip()]
    if len(written_lines) > MAX_BLOCK_LINES:
        return ""
    statements = list[str]()
    for line in written_lines:
        is_typed = len(line) <= MAX_LINE_CHARS and not _NOT_TYPED.match(line)
        if is_typed and (statement := _statement(line)):
            statements.append(statement)
    return "\n".join(statements)
