"""Escapes characters that are invisible or control a terminal.

All text of models, tools, files and people is escaped before it is printed. So this text
cannot move the cursor, rename the window, fill the clipboard, reverse the text direction or
hide words. Only line feeds and tabs stay. `Visible` takes text in pieces; the result is the
same as for the whole text.
"""

import re

# The C0 controls except tab and line feed, DEL and the C1 controls; invisible letters,
# marks and fillers; direction controls; other line ends; surrogates; the tags and the rest
# of their plane.
_UNSEEN_CHARS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000fffff\U0010ffff"
)
# Joiners and variation selectors shape Indic and Persian words and emoji. They are not
# escaped right after a letter that they can shape, where they have no width. The same is true
# of a joiner after a coloured emoji, and of the selector that makes a digit a key, or a
# Latin-1 sign an emoji.
_SHAPED_CHARS = f"[^\x00-\u02ff{_UNSEEN_CHARS}]"
_SHAPING_PATTERN = (
    f"(?<={_SHAPED_CHARS})[\u200c\u200d\ufe0e\ufe0f]|(?<={_SHAPED_CHARS}\ufe0f)\u200d"
    "|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?<=[\xa9\xae])\ufe0f"
)
# These look like a space but are not one, for example to a shell.
_BLANK_CHARS = "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
# Compiled when first needed, because compiling delays the start and most text is plain.
_HIDDEN_PATTERN = f"[{_UNSEEN_CHARS}{_BLANK_CHARS}]"
_HIDDEN_IN_PROSE = f"(?=[{_UNSEEN_CHARS}])(?!{_SHAPING_PATTERN})."
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Visible:
    """Escapes text that arrives in pieces. `add` returns the text that can be shown already."""

    def __init__(self) -> None:
        self._pending, self._before = "", ""

    def add(self, piece: str) -> str:
        """Return text that can be shown now. An incomplete end waits for the next piece."""
        text = self._pending + piece
        # A carriage return may be half a line end; a surrogate or a selector may belong to
        # the next character.
        last = text[-1:]
        is_incomplete = last in ("\r", "\ufe0f") or "\ud800" <= last <= "\udbff"
        end = len(text) - 1 if is_incomplete else len(text)
        text, self._pending = text[:end], text[end:]
        return self._escape(text)

    def end(self) -> str:
        """Return the end of the text, which was held back."""
        text, self._pending = self._pending, ""
        shown, self._before = self._escape(text), ""
        return shown

    def _escape(self, text: str) -> str:
        """Return the text with hidden characters escaped.

        Its last two characters are stored: whether a joiner is escaped depends on the two characters
        before it.
        """
        if not text:
            return ""
        if text.isascii() and text.isprintable():
            self._before = text[-1]
            return text
        text = _join_surrogates(text.replace("\r\n", "\n"))
        context = self._before + text
        start = len(context) - len(text)
        self._before = context[-2:]
        hidden_pattern = re.compile(_HIDDEN_IN_PROSE)
        if hidden_pattern.search(context, start) is None:
            return text
        return "".join(
            _escape_sequence(letter) if hidden_pattern.match(context, index) else letter
            for index, letter in enumerate(text, start)
        )


def visible(text: str) -> str:
    """Return the text with invisible and control characters escaped.

    Invisible characters that shape letters and emoji stay where they have an effect.
    """
    escaper = Visible()
    return escaper.add(text) + escaper.end()


def escape_hidden(text: str) -> str:
    """Return the text with every invisible character and unusual blank escaped.

    Line feeds and tabs stay.
    """
    return re.sub(
        _HIDDEN_PATTERN, lambda match: _escape_sequence(match[0]), _join_surrogates(text)
    )


def escape_to_one_line(text: str) -> str:
    """Return a name or other text escaped for one line: also line feeds and tabs are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_SHORT_ESCAPES.get(letter, letter) for letter in escape_hidden(text))


def hidden_characters(text: str) -> list[str]:
    """Return the invisible characters and unusual blanks of `text`, each escaped."""
    return [
        _escape_sequence(letter)
        for letter in re.findall(_HIDDEN_PATTERN, _join_surrogates(text))
    ]


def _join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs, which JSON may contain, as single characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def _escape_sequence(letter: str) -> str:
    """Return the shortest escape of a character, as in a Python string."""
    code = ord(letter)
    if code < 0x100:
        return _SHORT_ESCAPES.get(letter, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
