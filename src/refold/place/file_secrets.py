"""Puts secrets back into the file that they were read from, and lets no mask into a file.

If the model writes a line with a mask into the file that it read it from, the value is put back.
Any other line with a mask is refused: a mask in a file destroys the value, and a value in
another place reveals it. `check_masks` is the second look at everything that is written,
whichever tool or client asks.
"""

import re
from collections.abc import Iterator, Sequence

from refold.errors import ToolFailed
from refold.place.port import Files, FileWrite
from refold.values.secret_mask import (
    MASK_PATTERN,
    SECRET_MASK,
    FindSecrets,
    TextPiece,
    first_mask,
    has_mask,
    without_secrets,
)


def check_masks(puts: Sequence[FileWrite], files: Files) -> None:
    """Raise for a line with a mask that the file, or the one it is moved from, does not have."""
    for file_write in puts:
        if file_write.content is None or not has_mask(
            _without_zero_bytes(file_write.content)
        ):
            continue
        source = file_write.real if file_write.expect else file_write.like
        before = files.read(source) if source is not None else b""
        lines = frozenset(_without_zero_bytes(before).splitlines())
        for line in _without_zero_bytes(file_write.content).splitlines():
            if has_mask(line) and line not in lines:
                mask = first_mask(line.decode("utf-8", "replace"))
                raise ToolFailed(
                    f"{mask} stands for a secret value and is never written to a file: "
                    f"leave the line of {files.display_name(file_write.real)} as it is, or ask the user to "
                    "enter the value. Nothing was written."
                )


def _without_zero_bytes(content: bytes) -> bytes:
    """The content without zero bytes, so that masks in UTF-16 and UTF-32 are found."""
    return content.replace(b"\0", b"") if b"\0" in content else content


class FileSecrets:
    """The secrets of one file, for text that will be written into it.

    `before` is the text of the file, with LF, and `name` is for messages.
    """

    def __init__(self, before: str, name: str, find: FindSecrets = without_secrets) -> None:
        self._before, self._name, self._find = before, name, find
        self._lines: dict[str, str] | None = None
        self._values: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._literal = frozenset[str]()

    def unmask(self, text: str) -> str:
        """`text` with its values. Each of its lines that has a mask must be a line of the file.

        Raises `ToolFailed` for another.
        """
        if not has_mask(text):
            return text
        lines = text.split("\n")
        return "\n".join(
            self._unmask_line(line) if has_mask(line) else line for line in lines
        )

    def replacement(self, old: str, new: str, text: str | None = None) -> tuple[str, str]:
        """Return `old` and `new` with the values of the file in the place of masks.

        `text` is the file's text after earlier changes, if there were any. Raises `ToolFailed` if a
        line of the result has a mask and was not in the file.
        """
        text = self._before if text is None else text
        old = self.as_in_file(old)
        if has_mask(old) and old not in text:
            raise ToolFailed(
                f"{first_mask(old)} in old stands for no value that {self._name} has now: read "
                "the file again. Nothing was written."
            )
        if not has_mask(new) or not old:
            return old, new
        results = {
            self._unmask_replacement(text, index, old, new)
            for index in _indexes_of(text, old)
        }
        if len(results) > 1:
            raise self._mask_error(new)
        return old, results.pop() if results else new

    def as_in_file(self, text: str) -> str:
        """`text` of the file with its masks replaced by their values; unknown masks stay."""
        if not has_mask(text) or text in self._before:
            return text
        self._read()
        return re.sub(
            MASK_PATTERN, lambda match: self._values.get(match[0]) or match[0], text
        )

    def _unmask_replacement(self, text: str, index: int, old: str, new: str) -> str:
        end = index + len(old)
        head = text[text.rfind("\n", 0, index) + 1 : index]
        last = text.find("\n", end)
        tail = text[end : len(text) if last < 0 else last]
        whole = self.unmask(f"{head}{new}{tail}")
        return whole[len(head) : len(whole) - len(tail)]

    def _unmask_line(self, line: str) -> str:
        self._read()
        bare = line.removesuffix("\r")
        shown = "".join(piece.mask or piece.text for piece in self._find(bare))
        masked = self._lines or {}
        value = masked.get(shown, "")
        if not value and not any(m != SECRET_MASK for m in re.findall(MASK_PATTERN, shown)):
            value = self._plain.get(shown, "")
        if bare in self._literal:
            if shown in masked:  # two lines of the file look like this one
                raise self._mask_error(line)
            return line
        if not value:
            raise self._mask_error(line)
        return value + line[len(bare) :]

    def _mask_error(self, text: str) -> ToolFailed:
        return ToolFailed(
            f"{first_mask(text)} stands for a secret value that only {self._name} itself can get "
            "back, in an unchanged line that had it when it was read: leave that line as it is, "
            "or ask the user to enter the value. Nothing was written."
            if self._lines
            else f"{first_mask(text)} stands for a secret value that {self._name} does not have, "
            "and is never written to a file: ask the user to enter the value. Nothing was written."
        )

    def _read(self) -> None:
        """Read the file once: its masked lines with their values, "" for an ambiguous one."""
        if self._lines is not None:
            return
        lines, values, plain = dict[str, str](), dict[str, str](), dict[str, str]()
        for shown, line in _lines_with_masks(self._find(self._before)):
            _add_value(lines, shown, line)
            _add_value(plain, re.sub(MASK_PATTERN, SECRET_MASK, shown), line)
        for piece in self._find(self._before):
            if piece.mask:
                _add_value(values, piece.mask, piece.text)
                _add_value(values, SECRET_MASK, piece.text)
        self._lines, self._values, self._plain = lines, values, plain
        self._literal = frozenset(filter(has_mask, self._before.split("\n")))


def _add_value(values_by_name: dict[str, str], name: str, value: str) -> None:
    values_by_name[name] = value if values_by_name.get(name, value) == value else ""


def _lines_with_masks(pieces: Sequence[TextPiece]) -> Iterator[tuple[str, str]]:
    """Each line with a secret, masked and real. A secret may span several lines."""
    shown, line, has_secret = "", "", False
    for piece in pieces:
        if piece.mask:
            shown, line, has_secret = shown + piece.mask, line + piece.text, True
            continue
        first, *later_lines = piece.text.split("\n")
        shown, line = shown + first, line + first
        if later_lines:
            if has_secret:
                yield shown, line
            shown = line = later_lines[-1]
            has_secret = False
    if has_secret:
        yield shown, line


def _indexes_of(text: str, part: str) -> Iterator[int]:
    index = text.find(part)
    while index >= 0:
        yield index
        index = text.find(part, index + len(part))
