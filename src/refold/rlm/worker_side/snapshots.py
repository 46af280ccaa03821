"""Stores each variable as bytes separately, so only those that cannot be pickled are lost.

Small variables are stored in an index. Large variables are separate parts, which the index
names; only parts that the host does not have are sent. A large text that has not changed is
recognized by the hash that Python caches, and is not pickled again. A restored function refers
to the namespace of the cells, not to a copy of it. Loading such bytes runs code, so only a
worker may load them.
"""

import io
import struct
import sys
import types
from collections import Counter
from collections.abc import Callable
from json import JSONDecoder, JSONEncoder
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from refold.rlm.worker_side.interrupter import Interrupter, Stopped
from refold.rlm.worker_side.namespace import MODULE_NAME, Namespace, type_of
from refold.rlm.worker_side.values import without_surrogates

LARGE_BYTES = 256 * 1024
_MIN_PART_CHARS = LARGE_BYTES // 4  # a shorter text is never a large part

Form: TypeAlias = Literal["pickle", "json"]
Bytes: TypeAlias = bytes | bytearray
Fingerprint: TypeAlias = tuple[object, ...]
MAX_VARIABLE_BYTES, MAX_TOTAL_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024  # bytes
_LENGTH_HEADER = struct.Struct("!I")
_MAKER_NAME = "function_of_the_cells"

MONTY_MAGIC = b"monty1\n"  # the beginning of variables that the other engine has stored

Pairs = list[tuple[str, str]]


class Part(NamedTuple):
    name: str  # the sha256 of its bytes
    form: Form
    size: int  # its size for the limits; 0 if the host has set it


class Parts:
    """Remembers which part has which value; `given` has the parts that a restore may load."""

    def __init__(self) -> None:
        self._by_fingerprint: dict[Fingerprint, Part] = {}
        self.given: dict[str, Bytes] = {}  # parts for a restore

    def remember(self, value: object, part: Part) -> None:
        if fingerprint := _fingerprint(value):
            self._by_fingerprint[fingerprint] = part

    def find(self, value: object) -> Part | None:
        """Return the part that contains this value, or None if no known part does."""
        fingerprint = _fingerprint(value)
        return self._by_fingerprint.get(fingerprint) if fingerprint else None

    def forget_except(self, names: frozenset[str]) -> None:
        """Forget which values are in parts, except for the parts with these names."""
        known = {
            fingerprint: part
            for fingerprint, part in self._by_fingerprint.items()
            if part.name in names
        }
        self._by_fingerprint = known


def _fingerprint(value: object) -> Fingerprint:
    """Return a fingerprint of a large text or collection of texts, or () for any other value.

    The fingerprint does not refer to the value, because otherwise the value could not be freed.
    """
    kind = type(value)
    if kind is str or kind is bytes:
        text = cast("str", value)
        return (kind, len(text), hash(text)) if len(text) >= _MIN_PART_CHARS else ()
    try:
        if kind is list or kind is tuple:
            digest = _texts_fingerprint(cast("list[Any]", value))
            return (kind, *digest) if digest else ()
        if kind is dict:
            names = tuple(cast("dict[Any, Any]", value))
            digest = _texts_fingerprint(cast("dict[Any, Any]", value).values())
            has_text_keys = all(type(name) is str for name in names)
            return (kind, hash(names), *digest) if digest and has_text_keys else ()
    except RuntimeError:  # a thread of the code is changing the value
        pass
    return ()


def _texts_fingerprint(texts: Any) -> Fingerprint:
    """Return a fingerprint of texts, or () if they are short or not all of one type."""
    items = tuple(texts)
    kinds = set(map(type, items))
    if kinds not in ({str}, {bytes}) or sum(map(len, items)) < _MIN_PART_CHARS:
        return ()
    return (*kinds, len(items), hash(items))


class TooLarge(Exception):
    """Raised if a value exceeds the size limit of a snapshot, or all values together do."""


class Snapshot(NamedTuple):
    """The result of `persist` or `restore`.

    `kept` has variables, each with its type; `lost` has variables, each with a reason. `parts`
    are the names of the parts.
    """

    blob: bytes  # the index with the small variables
    kept: Pairs
    lost: Pairs
    parts: list[str]


def persist(
    namespace: Namespace,
    interrupter: Interrupter,
    parts: Parts,
    stored_names: frozenset[str],
    send_part: Callable[[str, bytes], None],
) -> Snapshot:
    """Return a snapshot of all variables.

    `parts` has the parts of earlier snapshots, which are used again. `send_part` gets the name
    and the bytes of each part that is not in `stored_names`.
    """
    _register_function_maker(namespace)
    builder = _SnapshotBuilder(namespace, parts, stored_names, send_part)
    lost = Pairs()
    for name, value in namespace.variables():
        if why := interrupter.why or _live_type_reason(value):
            lost.append((without_surrogates(name), why))
            continue
        try:
            builder.add(name, value)
        except TooLarge:
            if builder.bytes_left >= MAX_VARIABLE_BYTES:
                subject, max_bytes = "one variable", MAX_VARIABLE_BYTES
            else:
                subject, max_bytes = "all of them together", MAX_TOTAL_BYTES
            why = f"too large: {subject} may have {max_bytes // 1024**2} MB"
            lost.append((without_surrogates(name), why))
        except Stopped:
            lost.append((without_surrogates(name), interrupter.why))
        except BaseException as error:  # objects of the code may raise any exception
            lost.append((without_surrogates(name), _pickling_reason(error, value)))
    part_names = list(builder.part_names)
    parts.forget_except(stored_names.union(part_names))
    return Snapshot(builder.index, builder.kept, lost, part_names)


def restore(namespace: Namespace, index: Bytes, parts: Parts) -> Snapshot:
    """Replace all variables by those of a snapshot, whose parts must be in `parts.given`.

    Raises `ValueError` if `index` is not that of a snapshot.
    """
    if index.startswith(MONTY_MAGIC):
        raise ValueError('they were saved by Monty: set python.engine = "monty"')
    _register_function_maker(namespace)
    rows = _parse_index(index)
    namespace.clear()
    restored, lost = Pairs(), Pairs()
    uses = Counter(piece.name for _, _, piece in rows if isinstance(piece, Part))
    for name, kind, piece in rows:
        try:
            if isinstance(piece, Part):
                uses[piece.name] -= 1
                is_last = not uses[piece.name]
                namespace.names[name] = _load_part(piece, parts, is_last=is_last)
            else:
                namespace.names[name] = _unpickle(piece)
            restored.append((without_surrogates(name), without_surrogates(kind)))
        # unpickling runs code, which may raise any exception
        except BaseException as error:
            lost.append((without_surrogates(name), _error_text(error)))
    parts.given.clear()
    return Snapshot(blob=b"", kept=restored, lost=lost, parts=[])


def put(namespace: Namespace, name: str, part: str, value: Bytes, parts: Parts) -> None:
    """Set a variable to a JSON value, which the host has already stored as `part`."""
    parts.given[part] = value
    try:
        json_part = Part(part, form="json", size=0)
        namespace.names[name] = _load_part(json_part, parts, is_last=True)
    finally:
        parts.given.clear()


class _SnapshotBuilder:
    """Builds a snapshot, variable by variable."""

    def __init__(
        self,
        namespace: Namespace,
        parts: Parts,
        stored_names: frozenset[str],
        send_part: Callable[[str, bytes], None],
    ) -> None:
        self._namespace, self._parts, self._send_part = namespace, parts, send_part
        self._stored_names = set(stored_names)
        self.table, self._pieces = list[list[object]](), list[bytes]()
        self.kept, self.part_names = Pairs(), dict[str, None]()
        self.bytes_left = MAX_TOTAL_BYTES

    @property
    def index(self) -> bytes:
        head = JSONEncoder().encode({"variables": self.table}).encode()
        return b"".join([_LENGTH_HEADER.pack(len(head)), head, *self._pieces])

    def add(self, name: str, value: object) -> None:
        self.table.append([name, type_of(value), *self._store_value(value)])
        self.kept.append((without_surrogates(name), type_of(value)))

    def _store_value(self, value: object) -> tuple[object, ...]:
        """Store a value in the index or as a part.

        Return its size in the index, or the name and the format of its part.
        """
        part = self._parts.find(value)  # of an earlier snapshot, if the value is unchanged
        is_reusable = (
            part is not None
            and part.name in self._stored_names
            and part.size <= self.bytes_left
        )
        if part is None or not is_reusable:
            max_bytes = min(MAX_VARIABLE_BYTES, self.bytes_left)
            piece = _pickle(value, self._namespace, max_bytes)
            if len(piece) <= LARGE_BYTES:
                self._pieces.append(piece)
                self.bytes_left -= len(piece)
                return (len(piece),)
            part = self._store_part(piece)
            self._parts.remember(value, part)
        self.part_names[part.name] = None
        self.bytes_left -= part.size
        return part.name, part.form

    def _store_part(self, piece: bytes) -> Part:
        """Return the part for this pickle. Send it to the host unless the host has it."""
        from hashlib import sha256

        name = sha256(piece).hexdigest()
        if name not in self._stored_names:
            self._send_part(name, piece)
            self._stored_names.add(name)
        return Part(name, form="pickle", size=len(piece))


_Row = tuple[str, str, bytes | Part]


def _parse_index(index: Bytes) -> list[_Row]:
    """Return for each variable its name, its type, and its pickle or part.

    Raises `ValueError` if `index` is not valid.
    """
    try:
        (head_length,) = _LENGTH_HEADER.unpack_from(index)
        offset = _LENGTH_HEADER.size + head_length
        text = index[_LENGTH_HEADER.size : offset].decode()
        head = cast("dict[str, Any]", JSONDecoder().decode(text))
        rows = list[_Row]()
        # A part is given by its name and form, a pickle in the index by its size.
        for name, kind, name_or_size, *form in head["variables"]:
            if form:
                part = Part(str(name_or_size), cast("Form", form[0]), size=0)
                rows.append((str(name), str(kind), part))
            else:
                end = offset + name_or_size
                rows.append((str(name), str(kind), bytes(index[offset:end])))
                offset = end
        return rows
    except Exception as error:  # any error means that the value is lost
        raise ValueError(
            f"the snapshot could not be read ({_error_text(error)})"
        ) from error


def _load_part(part: Part, parts: Parts, *, is_last: bool) -> object:
    """Return the value in a part. Two variables with the same part get two objects.

    If `is_last`, no other variable needs the part, so its bytes, which may be many, are freed
    before the value is parsed. Raises `LookupError` if the bytes are missing.
    """
    piece = parts.given.get(part.name)
    if piece is None:
        raise LookupError("the file that contained it is gone")
    if part.form == "json":
        text = piece.decode()
        if is_last and isinstance(piece, bytearray):
            piece.clear()
        value: object = JSONDecoder(strict=False).decode(text)
        parts.remember(value, part._replace(size=0))
    else:
        value = _unpickle(piece)
        parts.remember(value, part._replace(size=len(piece)))
    return value


def _pickle(value: object, namespace: Namespace, max_bytes: int) -> bytes:
    """Pickle a value. Raises `TooLarge` if the result has more than `max_bytes`.

    A function of the cells is pickled without its global variables. When it is unpickled, it
    gets those of the namespace.
    """
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it has none

    class Pickler(cloudpickle.Pickler):
        def _dynamic_function_reduce(self, func: Any) -> Any:
            """Reduce a function of the cells to a call of the function maker."""
            base: Any = super()
            reduced: Any = base._dynamic_function_reduce(func)
            if func.__globals__ is not namespace.names:
                return reduced
            # cloudpickle's maker, its arguments (the second: global variables), the state
            _, (code, _, name, defaults, closure), (state, slots), *rest = reduced
            make = getattr(sys.modules[MODULE_NAME], _MAKER_NAME)
            slots = slots | {"__globals__": {}}
            return (make, (code, name, defaults, closure), (state, slots), *rest)

    file = _BoundedBuffer(max_bytes)
    pickler: Any = Pickler(file, protocol=5)
    pickler.dump(value)
    return file.getvalue()


def _unpickle(piece: Bytes) -> object:
    import pickle

    return pickle.loads(piece)


def _register_function_maker(namespace: Namespace) -> None:
    """Register the function with which pickles rebuild functions of cells in the namespace."""

    def function_of_the_cells(code: Any, name: Any, defaults: Any, closure: Any) -> object:
        return types.FunctionType(code, namespace.names, name, defaults, closure)

    function_of_the_cells.__module__ = MODULE_NAME
    function_of_the_cells.__qualname__ = _MAKER_NAME
    module = sys.modules.get(MODULE_NAME)
    if module is None or vars(module).get(_MAKER_NAME) is None:
        module = module or types.ModuleType(MODULE_NAME)
        setattr(module, _MAKER_NAME, function_of_the_cells)
        sys.modules[MODULE_NAME] = module


class _BoundedBuffer(io.BytesIO):
    """A buffer that raises `TooLarge` instead of growing beyond its limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._left = max_bytes

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise TooLarge
        return super().write(data)


# By module and name, so that the check imports no module.
_LIVE_TYPES = {
    "builtins.generator": "a generator cannot be kept: keep a list",
    "builtins.coroutine": "a coroutine cannot be kept",
    "builtins.async_generator": "a generator cannot be kept",
    "builtins.frame": "a frame cannot be kept",
    "_io.TextIOWrapper": "an open file cannot be kept: keep its path or its text",
    "_io.BufferedReader": "an open file cannot be kept: keep its path or its bytes",
    "_io.BufferedWriter": "an open file cannot be kept: keep its path",
    "_io.BufferedRandom": "an open file cannot be kept: keep its path",
    "_io.FileIO": "an open file cannot be kept: keep its path",
    "socket.socket": "a socket cannot be kept",
    "threading.Thread": "a thread cannot be kept",
    "_thread.lock": "a lock cannot be kept",
    "_thread.RLock": "a lock cannot be kept",
    "threading.Event": "a lock cannot be kept",
    "threading.Condition": "a lock cannot be kept",
    "subprocess.Popen": "a process cannot be kept",
    "multiprocessing.context.Process": "a process cannot be kept",
    "concurrent.futures.thread.ThreadPoolExecutor": "threads cannot be kept",
    "concurrent.futures.process.ProcessPoolExecutor": "processes cannot be kept",
    "concurrent.futures._base.Future": "a future cannot be kept: keep its result",
    "sqlite3.Connection": "a connection cannot be kept: keep what was read",
    "sqlite3.Cursor": "a cursor cannot be kept: keep what was read",
}


def _live_type_reason(value: object) -> str:
    """Return why a value cannot be stored, such as an open file, or "" if it may be pickled."""
    for kind in type(value).__mro__:
        if why := _LIVE_TYPES.get(f"{kind.__module__}.{kind.__qualname__}"):
            return why
    return ""


def _pickling_reason(error: BaseException, value: object) -> str:
    """Return the reason why a value is not kept, for the model."""
    inside = _error_text(error)
    if isinstance(error, MemoryError):
        return "too large: there was not enough memory to keep it"
    return f"a {type_of(value)} that holds what cannot be kept ({inside})"


def _error_text(error: BaseException) -> str:
    """Return the type and the message of an error, at most 300 characters."""
    to_text: Callable[[object], str] = str
    try:
        words = to_text(error)
    except BaseException:  # the code itself defines this error
        words = ""
    return without_surrogates(f"{type(error).__name__}: {words}"[:300])
