"""What of a person's message is their own words, and not something they put in.

Blocks of code, pasted logs, quoted mails and what programs add between tags are
material: nothing is learned of it. Pure.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from refold.memory.plain import plain

PASTED = 8  # lines without an empty one between them; more than that was not typed
LONGEST = 1_000  # letters of a line that somebody typed
MOST = 4_000  # letters of one message that count
_READ = 50_000  # letters of one that are looked at

_FENCE = re.compile(
    r"^\s{0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^\s{0,3}\1[`~]*\s*$|\Z)", re.M | re.S
)
_TAG = re.compile(r"<([a-zA-Z][\w.:-]*)(?:\s[^<>]*)?>")
_ENDS = re.compile(r" *\n")
_NOT_TYPED = re.compile(r"\s{4,}\S|\s*>|\s*(?:[$#%❯]|>>>|\.\.\.)\s|\s*!\S")


class Heard(Struct, frozen=True):
    """Words of the person: their event, when it was, and what is their own in it."""

    seq: int
    at: float
    text: str


def own_words(message: str) -> str:
    """What the person said themselves. "" where all of it is material."""
    text = _FENCE.sub("\n\n", f"{message[:_READ]}\n")
    text = _untagged(plain(text))
    blocks = re.split(r"\n\s*\n", text)
    typed = (_typed(block.split("\n")) for block in blocks)
    return "\n".join(words for words in typed if words)[:MOST].strip()


def _untagged(text: str) -> str:
    """Without what stands between tags. One that is not closed holds all below its line."""
    kept, at = list[str](), 0
    while found := _TAG.search(text, at):
        kept.append(text[at : found.start()])
        end = text.find(f"</{found[1]}", found.end())
        if end < 0 and _ENDS.match(text, found.end()):
            return "".join(kept)
        at = found.end() if end < 0 else text.find(">", end) + 1 or len(text)
        kept.append(found[0] if end < 0 else "\n\n")
    return "".join(kept) + text[at:]


def _typed(lines: Sequence[str]) -> str:
    lines = [line for line in lines if line.strip()]
    if len(lines) > PASTED:
        return ""
    kept = (x for x in lines if len(x) <= LONGEST and not _NOT_TYPED.match(x))
    return "\n".join(line.strip() for line in kept)
