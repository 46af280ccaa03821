"""Text of a note as it may stand in a file of ours and before a model: no tricks in it.

Nothing that nobody can see, nothing that orders a screen about, nothing that opens or
closes a tag. How a screen shows what is left is the views' business.
"""

import re
import unicodedata

from refold.values.unseen import may_follow

# Controls, invisible signs, half characters, private and unassigned ones.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINERS = "\u200c\u200d"  # of a kind that is not seen, and of use
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TAG = re.compile(r"<(?=[\s/!?]*[^\W\d])")


def plain(text: str) -> str:
    """`text` in lines, without what cannot be seen."""
    text = _LINE_ENDS.sub("\n", unicodedata.normalize("NFC", text)).replace("\t", " ")
    letters, before = list[str](), " "
    for letter in text:
        if may_follow(letter, before) and (kept := _kept(letter)):
            letters.append(kept)
            before = kept
    return "".join(letters)


def one_line(text: str, most: int) -> str:
    """The same on one line of at most `most` letters."""
    found = " ".join(plain(text).split())
    return found if len(found) <= most else found[: most - 1].rstrip() + "…"


def untagged(text: str) -> str:
    """`text` in which nothing is a tag: a reader of tags finds none to open or close."""
    return _TAG.sub("‹", plain(text))


def _kept(letter: str) -> str:
    if letter == "\n" or letter in _JOINERS:
        return letter
    kind = unicodedata.category(letter)
    if kind in _UNSEEN:
        return ""
    return " " if kind.startswith("Z") else letter
