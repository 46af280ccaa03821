"""Finds misleading names: words that mix alphabets, and hosts in letters other than Latin ones.

Only the text of questions needs this, because rules compare the characters of a name and not
its appearance. `values.text` escapes invisible characters.
"""

import re
import unicodedata

from refold.values.web_address import host_of

# Letters of other alphabets that look like Latin ones.
_CYRILLIC_LOOKALIKES = "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0475\u04cf\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405"  # fmt: skip
_GREEK_LOOKALIKES = "\u03bf\u03bd\u03b1\u03b9\u03ba\u03c1\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"  # fmt: skip
_OTHER_LOOKALIKES = (
    "\u0585\u0578\u057d\u0570\u0131\u0251\u0261\u0269\u13aa\u13a0\u13ac\u13c6"
)
_LOOKS_LATIN = frozenset(_CYRILLIC_LOOKALIKES + _GREEK_LOOKALIKES + _OTHER_LOOKALIKES)
_WORD_PATTERN = re.compile(r"[^\W\d_]+")
_ADDRESS_PATTERN = re.compile(r"\bhttps?://[^\s'\"<>|;)]+", re.IGNORECASE)
_MAX_TEXT_CHARS = 10_000  # the part of a text that is checked
_MAX_SHOWN_CHARS = 60


def misleading_name(text: str) -> str:
    """Return a clause about the first misleading name in `text`, or "" if there is none."""
    if text.isascii():
        return ""
    for match in _ADDRESS_PATTERN.finditer(text, 0, _MAX_TEXT_CHARS):
        host = host_of(match[0])
        if host and host not in match[0].lower():
            return f"the host in {match[0][:_MAX_SHOWN_CHARS]} is {host}"
    for match in _WORD_PATTERN.finditer(text, 0, _MAX_TEXT_CHARS):
        word = match[0]
        # A letter such as the Cyrillic "а", among Latin ones.
        letter = next((character for character in word if _looks_latin(character)), "")
        if letter and any(character.isascii() for character in word):
            return (
                f"{word[:_MAX_SHOWN_CHARS]} is not written in Latin letters alone: its {letter} is "
                f"U+{ord(letter):04X}"
            )
    return ""


def _looks_latin(letter: str) -> bool:
    if letter.isascii():
        return False
    return letter in _LOOKS_LATIN or unicodedata.normalize("NFKC", letter).isascii()
