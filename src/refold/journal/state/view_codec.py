"""Encodes and decodes the views of one journal, each as the difference to an earlier one.

A view shares most of its content with the view of a thousand events before: its logs only grow,
and the conversation of each mark differs little from that of the mark before. So an encoded
view, called a piece, has only the new items of each list, and the other parts of the view.
`journal.store.view_cache` stores the pieces and decides which may be used.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, fields

from refold.journal.state.conversation import Conversation
from refold.journal.state.fold import Mark, View
from refold.values.growing import Log

# The number of earlier views that are decoded, too, because the display of a session's end
# begins at one of them.
_EARLIER_VIEWS = 2
_MARKS_PART, _CONVERSATION_PART = "marks", "conversation"
_NO_BASE = -1  # in place of the number of a list


class _Addition(Struct, frozen=True, array_like=True):
    """New items of a list. A new list may begin with the first items of another, its base."""

    number: int
    count: int
    base: int = _NO_BASE  # then it begins empty, or is known
    base_length: int = 0


class _Frame(Struct, frozen=True):
    """The first line of a piece. The new items follow in the order of the additions, one a
    line.
    """

    additions: tuple[_Addition, ...]
    view: msgspec.Raw


class ListTable:
    """The lists that hold the items of a view's logs: their numbers and encoded lengths.

    Logs that grew from each other share a list, which only grows.
    """

    def __init__(self) -> None:
        # Stored, so that no other list gets the same address.
        self.lists = dict[int, list[Any]]()
        self.lengths = dict[int, int]()
        self.in_marks = set[int]()
        self.next_number = 0
        self._numbers = dict[int, int]()  # by address

    def add(self, number: int, items: list[Any], length: int) -> None:
        """Add a list under this number. Its first `length` items are encoded already."""
        self.lists[number] = items
        self._numbers[id(items)] = number
        self.lengths[number] = length
        self.next_number = max(self.next_number, number + 1)

    def number_of(self, items: list[Any]) -> int:
        """Return the number of this list. A list that is not in the table gets a number.

        A list of which nothing is encoded yet has a number, but no length.
        """
        number = self._numbers.get(id(items))
        if number is None:
            number = self.next_number
            self.next_number += 1
            self.lists[number] = items
            self._numbers[id(items)] = number
        return number

    def drop_all_but(self, numbers: set[int]) -> None:
        """Remove the lists that have other numbers."""
        for number in self.lists.keys() - numbers:
            self._numbers.pop(id(self.lists.pop(number)))
            self.lengths.pop(number, None)

    def find_base(self, items: list[Any], length: int) -> tuple[int, int]:
        """Return the encoded list from which `items` were copied, and the length of their
        common part.

        Return (`_NO_BASE`, 0) if there is no such list.
        """
        base, longest = _NO_BASE, 0
        for number, encoded_length in self.lengths.items():
            candidate = self.lists[number]
            max_shared = min(encoded_length, length)
            if max_shared == 0 or candidate[0] is not items[0]:
                continue
            differing = (n for n in range(max_shared) if candidate[n] is not items[n])
            shared_length = next(differing, max_shared)
            if shared_length > longest:
                base, longest = number, shared_length
        return base, longest


class EncodedView:
    """A view that is encoded as a piece.

    Call `commit` once the piece is stored. The next piece is then the difference to it.
    """

    def __init__(self, view: View, table: ListTable) -> None:
        self._table = table
        # By number of a list:
        self._done = dict[int, int]()  # its length once this piece is decoded
        self._wanted = dict[int, int]()  # the length that the logs of the view need
        self._grown = list[int]()  # lists with new items that are not in the piece yet
        self._referred = set[int]()  # lists to which the view refers
        self._in_marks = set(table.in_marks)
        self._within_mark = False
        self._encode = msgspec.json.Encoder(enc_hook=self._encode_special).encode
        self.piece = self._encode_view(view)

    def commit(self) -> None:
        """Note in the table that the piece is stored.

        Later pieces can refer to the lists of this view and of all marks; others are dropped.
        """
        self._table.lengths |= self._done
        self._table.in_marks = self._in_marks
        self._table.drop_all_but(self._referred | self._in_marks)

    def _encode_view(self, view: View) -> bytes:
        """Return the piece: the frame, and then the new items, one a line."""
        last_marked = view.marks[-1].conversation if view.marks else Conversation()
        parts = asdict(view)
        parts[_CONVERSATION_PART] = _changes(last_marked, view.conversation)
        encoded_parts = self._encode(parts)  # this also finds the lists that have grown
        additions = list[_Addition]()
        lines = list[bytes]()
        while self._grown:  # encoding an item may find more lists
            additions.append(self._add_items(self._grown.pop(), lines))
        frame = _Frame(tuple(additions), msgspec.Raw(encoded_parts))
        return b"\n".join([self._encode(frame), *lines])

    def _add_items(self, number: int, lines: list[bytes]) -> _Addition:
        """Append the encoded new items of a list to `lines`, and return what was added."""
        items = self._table.lists[number]
        end = self._wanted[number]
        base = _NO_BASE
        start = self._done.get(number, self._table.lengths.get(number))
        if start is None:  # a list of which nothing is encoded
            base, start = self._table.find_base(items, end)
        self._done[number] = end
        for index in range(start, end):
            lines.append(self._encode_item(items, index))
        base_length = 0 if base == _NO_BASE else start
        return _Addition(number, end - start, base, base_length)

    def _encode_item(self, items: list[Any], index: int) -> bytes:
        """Return an encoded item. A mark is encoded as the difference from the mark before
        it.
        """
        item = items[index]
        if not isinstance(item, Mark):
            return self._encode(item)
        before = items[index - 1].conversation if index else Conversation()
        self._within_mark = True
        try:
            return self._encode({"seq": item.seq} | _changes(before, item.conversation))
        finally:
            self._within_mark = False

    def _encode_special(self, value: Any) -> object:
        """Return what is encoded in place of a log or a read-only mapping."""
        if isinstance(value, Log):
            return self._refer_to(cast("Log[Any]", value))
        if isinstance(value, MappingProxyType):
            return dict(cast("MappingProxyType[Any, Any]", value))
        raise NotImplementedError(f"a view has a {type(value).__name__}")

    def _refer_to(self, log: Log[Any]) -> tuple[int, int]:
        """Return the number of the log's list, and the log's length. New items are encoded
        later.
        """
        number, length = self._table.number_of(log.shared_items), len(log)
        self._referred.add(number)
        if self._within_mark:
            self._in_marks.add(number)
        # -1, because a list of length 0 must be encoded, too, when it is first referred to.
        encoded_length = self._done.get(number, self._table.lengths.get(number, -1))
        wanted_length = self._wanted.get(number, -1)
        if length > max(encoded_length, wanted_length):
            self._wanted[number] = length
            if number not in self._grown:
                self._grown.append(number)
        return number, length


class DecodedView(Struct, frozen=True):
    """A view, some earlier views, oldest first, and the table for encoding the next view."""

    view: View
    earlier: tuple[View, ...]
    table: ListTable


def decode_view(pieces: Sequence[bytes]) -> DecodedView:
    """Decode the view of the last piece. All earlier pieces are needed.

    Raises `msgspec.DecodeError` or `LookupError` for data that `EncodedView` has not made.
    """
    lists = _DecodedLists()
    stored_views = [lists.read(piece) for piece in pieces]
    decoder = msgspec.json.Decoder(_stored_view_type(), dec_hook=lists.decode_log)
    needed_views = stored_views[-(_EARLIER_VIEWS + 1) :]
    *earlier, newest = [_to_view(decoder.decode(stored)) for stored in needed_views]
    return DecodedView(newest, tuple(earlier), lists.table())


def _to_view(value: Any) -> View:
    """Return the view of a `_StoredView`.

    The conversation in `value` has only the differences from the conversation of the last mark.
    """
    parts = {name: getattr(value, name) for name in View.__struct_fields__}
    marks: Log[Mark] = parts[_MARKS_PART]
    before = marks[-1].conversation if marks else Conversation()
    parts[_CONVERSATION_PART] = _apply_changes(before, parts[_CONVERSATION_PART])
    return View(**parts)


class _DecodedLists:
    """The lists of the pieces that were read. A list is decoded when a log refers to it."""

    def __init__(self) -> None:
        self._additions = dict[int, list[tuple[_Addition, Sequence[bytes]]]]()
        self._decoded = dict[int, list[Any]]()
        self._in_marks = set[int]()
        self._frames = msgspec.json.Decoder(_Frame)
        self._changes = msgspec.json.Decoder(_changes_type(), dec_hook=self._decode_in_mark)

    def read(self, piece: bytes) -> msgspec.Raw:
        """Read the new items, and return the other parts of the view."""
        first, *lines = piece.split(b"\n")
        frame = self._frames.decode(first)
        start = 0
        for addition in frame.additions:
            end = start + addition.count
            additions = self._additions.setdefault(addition.number, [])
            additions.append((addition, lines[start:end]))
            start = end
        return frame.view

    def table(self) -> ListTable:
        """Return the table of the decoded lists, which are all encoded already."""
        table = ListTable()
        for number, items in self._decoded.items():
            table.add(number, items, len(items))
        table.in_marks = self._in_marks
        # The pieces also have lists that were not decoded, because no needed view has them.
        table.next_number = max(self._additions, default=-1) + 1
        return table

    def decode_log(self, type_: Any, value: Any) -> Any:
        """Return the log for an encoded (number of its list, length)."""
        if get_origin(type_) is not Log:
            raise NotImplementedError(f"a view has a {type_}")
        number, length = value
        return Log[Any].sharing(self._list(number, get_args(type_)[0]), length)

    def _decode_in_mark(self, type_: Any, value: Any) -> Any:
        """Return the log for a value within a mark, and note that marks refer to its list."""
        self._in_marks.add(value[0])
        return self.decode_log(type_, value)

    def _list(self, number: int, item_type: Any) -> list[Any]:
        """Return the items of a list, decoded once. They may begin with those of a base."""
        if number not in self._decoded:
            items = self._decoded[number] = []
            for addition, lines in self._additions[number]:
                if addition.base != _NO_BASE:
                    items += self._list(addition.base, item_type)[: addition.base_length]
                if item_type is Mark:
                    items += self._marks(items, lines)
                else:
                    items += self._items(lines, item_type)
        return self._decoded[number]

    def _items(self, lines: Sequence[bytes], item_type: Any) -> list[Any]:
        # Each part is decoded from its own line, because a `Raw` refers to the whole input.
        return list(map(msgspec.json.Decoder(item_type).decode, lines))

    def _marks(self, earlier: Sequence[Mark], lines: Sequence[bytes]) -> Iterator[Mark]:
        """Yield the marks in the lines. Each has the difference to the conversation
        before it.
        """
        before = earlier[-1].conversation if earlier else Conversation()
        for line in lines:
            changes = self._changes.decode(line)
            before = _apply_changes(before, changes)
            yield Mark(changes.seq, before)


def _changes(before: Conversation, after: Conversation) -> dict[str, Any]:
    """Return the fields that differ, by name."""
    changed = dict[str, Any]()
    for name in Conversation.__struct_fields__:
        value = getattr(after, name)
        if value is not getattr(before, name):
            changed[name] = value
    return changed


def _apply_changes(before: Conversation, changes: Any) -> Conversation:
    """Return `before` with the fields that are set in `changes`, a `_Changes`."""
    parts = asdict(before)
    for name in Conversation.__struct_fields__:
        value = getattr(changes, name)
        if value is not UNSET:
            parts[name] = value
    return Conversation(**parts)


@cache
def _changes_type() -> type[Any]:
    """Return a struct type with the changed fields of a conversation, and the seq of its
    mark.
    """
    changed = [(f.name, f.type | UnsetType, UNSET) for f in fields(Conversation)]
    return msgspec.defstruct("_Changes", [("seq", int, 0), *changed])


@cache
def _stored_view_type() -> type[Any]:
    """Return the struct type of an encoded view, whose conversation has only changes."""
    types = {field.name: field.type for field in fields(View)}
    types[_CONVERSATION_PART] = _changes_type()
    return msgspec.defstruct("_StoredView", list(types.items()))
