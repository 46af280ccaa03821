"""Replaces masks by the secrets of a file when it is written, and refuses other masks.

A model sees a mask instead of each secret. If it writes a line of the file with a mask, the
mask is replaced by the secret. Any other line with a mask is refused: a mask in a file would
destroy the secret, and the secret in another file would reveal it. `check_masks` is the last
check of what tools and clients write.
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
    """Raise `ToolFailed` if a line with a mask would be added to a file.

    A line is not added if it is in the present file, or in the file from which a file is moved.
    """
    for file_write in puts:
        if file_write.content is None:
            continue
        content = _without_zero_bytes(file_write.content)
        if not has_mask(content):
            continue
        # `expect` is the digest of the old content; "" for a new or moved file.
        source = file_write.real if file_write.expect else file_write.like
        before = files.read(source) if source is not None else b""
        lines_before = frozenset(_without_zero_bytes(before).splitlines())
        for line in content.splitlines():
            if has_mask(line) and line not in lines_before:
                mask = first_mask(line.decode("utf-8", "replace"))
                raise ToolFailed(
                    f"{mask} stands for a secret value and is never written to a file: "
                    f"leave the line of {files.display_name(file_write.real)} as it is, or ask the user to "
                    "enter the value. Nothing was written."
                )


def _without_zero_bytes(content: bytes) -> bytes:
    """Return `content` without zero bytes, so that masks in UTF-16 and UTF-32 are found."""
    return content.replace(b"\0", b"") if b"\0" in content else content


class FileSecrets:
    """Replaces masks by secrets in text that will be written into one file.

    `before` is the file's present text, with LF as line end. `name` is the file's name for
    messages.
    """

    def __init__(self, before: str, name: str, find: FindSecrets = without_secrets) -> None:
        self._before, self._name, self._find = before, name, find
        # Lines with masks, and the real lines; None before the file was searched.
        self._lines: dict[str, str] | None = None
        self._values: dict[str, str] = {}  # masks and the secrets that they stand for
        # Like `_lines`, but with `SECRET_MASK`, which fits every secret, for each mask.
        self._plain: dict[str, str] = {}
        self._literal = frozenset[str]()  # lines that contain the text of a mask themselves

    def unmask(self, text: str) -> str:
        """Return `text` with secrets in place of masks.

        Raises `ToolFailed` if a line with a mask is not a masked line of the file.
        """
        if not has_mask(text):
            return text
        lines = text.split("\n")
        return "\n".join(
            self._unmask_line(line) if has_mask(line) else line for line in lines
        )

    def replacement(self, old: str, new: str, text: str | None = None) -> tuple[str, str]:
        """Return the parts of an edit, `old` and `new`, with secrets in place of masks.

        `text` is the file's text after earlier edits of the same call; None means the present
        text. Raises `ToolFailed` if a resulting line has a mask and is not a masked line of the
        file.
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
        # A mask stands for the value in its line, so it depends on where `old` is.
        unmasked = {
            self._unmask_replacement(text, index, old, new)
            for index in _indexes_of(text, old)
        }
        if len(unmasked) > 1:
            raise self._mask_error(new)
        if not unmasked:  # `old` is not in the text, so this edit will be refused
            return old, new
        return old, unmasked.pop()

    def as_in_file(self, text: str) -> str:
        """Return `text` with secrets in place of masks. Unknown masks are not replaced."""
        if not has_mask(text) or text in self._before:
            return text
        self._find_masked_lines()
        return re.sub(
            MASK_PATTERN, lambda match: self._values.get(match[0]) or match[0], text
        )

    def _unmask_replacement(self, text: str, index: int, old: str, new: str) -> str:
        """Return `new` with secrets in place of masks.

        `new` replaces `old` at `index` in `text`. Masks are replaced in whole lines, so the
        rest of the first and the last line is included and then removed.
        """
        line_start = text.rfind("\n", 0, index) + 1  # 0 in the first line
        head = text[line_start:index]
        end = index + len(old)
        line_end = text.find("\n", end)
        tail = text[end:] if line_end < 0 else text[end:line_end]
        unmasked = self.unmask(f"{head}{new}{tail}")
        return unmasked[len(head) : len(unmasked) - len(tail)]

    def _unmask_line(self, line: str) -> str:
        """Return the line of the file that is shown as `line` to a model.

        Raises `ToolFailed` if there is no such line, or more than one.
        """
        self._find_masked_lines()
        bare = line.removesuffix("\r")
        line_end = line[len(bare) :]
        # A secret that the model wrote itself is masked as in the file.
        shown = "".join(piece.mask or piece.text for piece in self._find(bare))
        real_lines = self._lines or {}  # not None any longer
        if bare in self._literal:
            if shown in real_lines:  # two different lines of the file have this masked form
                raise self._mask_error(line)
            return line  # the file itself has this text: it is not a mask
        real_line = real_lines.get(shown, "")
        masks = re.findall(MASK_PATTERN, shown)
        # `SECRET_MASK` alone may stand for any secret.
        if not real_line and all(mask == SECRET_MASK for mask in masks):
            real_line = self._plain.get(shown, "")
        if not real_line:
            raise self._mask_error(line)
        return real_line + line_end

    def _mask_error(self, text: str) -> ToolFailed:
        """Return the error for a mask that cannot be replaced by a secret."""
        mask = first_mask(text)
        if not self._lines:
            return ToolFailed(
                f"{mask} stands for a secret value that {self._name} does not have, and is never "
                "written to a file: ask the user to enter the value. Nothing was written."
            )
        return ToolFailed(
            f"{mask} stands for a secret value that only {self._name} itself can get back, in an "
            "unchanged line that had it when it was read: leave that line as it is, or ask the "
            "user to enter the value. Nothing was written."
        )

    def _find_masked_lines(self) -> None:
        """Fill the tables of masks and masked lines, unless this was done before.

        A mask or masked line that could stand for two different texts is mapped to "".
        """
        if self._lines is not None:
            return
        lines, values, plain = dict[str, str](), dict[str, str](), dict[str, str]()
        pieces = self._find(self._before)
        for shown, line in _lines_with_masks(pieces):
            _add_value(lines, shown, line)
            _add_value(plain, re.sub(MASK_PATTERN, SECRET_MASK, shown), line)
        for piece in pieces:
            if piece.mask:
                _add_value(values, piece.mask, piece.text)
                _add_value(values, SECRET_MASK, piece.text)
        self._lines, self._values, self._plain = lines, values, plain
        self._literal = frozenset(filter(has_mask, self._before.split("\n")))


def _add_value(values_by_name: dict[str, str], name: str, value: str) -> None:
    """Map `name` to `value`; to "" if `name` is already mapped to another value."""
    is_unambiguous = values_by_name.get(name, value) == value
    values_by_name[name] = value if is_unambiguous else ""


def _lines_with_masks(pieces: Sequence[TextPiece]) -> Iterator[tuple[str, str]]:
    """Yield each line with a secret in two forms: with the mask, and with the secret.

    A secret may span several lines.
    """
    shown, line, has_secret = "", "", False
    for piece in pieces:
        if piece.mask:
            shown += piece.mask
            line += piece.text
            has_secret = True
            continue
        first, *later_lines = piece.text.split("\n")
        shown += first
        line += first
        if later_lines:  # the line ends in this piece
            if has_secret:
                yield shown, line
            # Lines between the first and the last of a piece have no secret.
            shown = line = later_lines[-1]
            has_secret = False
    if has_secret:
        yield shown, line


def _indexes_of(text: str, part: str) -> Iterator[int]:
    """Yield where `part`, which is not empty, occurs in `text`, without overlaps."""
    index = text.find(part)
    while index >= 0:
        yield index
        index = text.find(part, index + len(part))
