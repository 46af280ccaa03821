"""Variables as bytes, each by itself: if one cannot be pickled, only that one is lost.

Small variables are stored in an index; it names the parts that hold large ones, and only new
parts are sent. A large text that has not changed is recognized by the hash that Python caches,
and is not pickled again. Functions refer to the namespace of the cells, not to a copy of it.
Loading such bytes runs code, so it is done in a worker only.
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

MONTY_MAGIC = b"monty1\n"  # with which variables of the other engine begin

Pairs = list[tuple[str, str]]


class Part(NamedTuple):
    name: str  # the sha256 of its bytes
    form: Form
    size: int  # that counts for the limits; 0 if the host passed it


class Parts:
    """The known parts, by a fingerprint of their value, and the parts that a restore may load."""

    def __init__(self) -> None:
        self._by_fingerprint: dict[Fingerprint, Part] = {}
        self.given: dict[str, Bytes] = {}  # for a restore

    def remember(self, value: object, part: Part) -> None:
        if fingerprint := _fingerprint(value):
            self._by_fingerprint[fingerprint] = part

    def find(self, value: object) -> Part | None:
        """The part that contains this value, if its fingerprint is known."""
        fingerprint = _fingerprint(value)
        return self._by_fingerprint.get(fingerprint) if fingerprint else None

    def forget_except(self, names: frozenset[str]) -> None:
        known = {
            fingerprint: part
            for fingerprint, part in self._by_fingerprint.items()
            if part.name in names
        }
        self._by_fingerprint = known


def _fingerprint(value: object) -> Fingerprint:
    """A fingerprint of a value that consists of texts; () for any other value.

    It holds no reference to the value, which otherwise could not be freed.
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
            texts = {str}.issuperset(map(type, names))
            return (kind, hash(names), *digest) if digest and texts else ()
    except RuntimeError:  # a thread of the code is changing it
        pass
    return ()


def _texts_fingerprint(texts: Any) -> Fingerprint:
    items = tuple(texts)
    kinds = set(map(type, items))
    if kinds not in ({str}, {bytes}) or sum(map(len, items)) < _MIN_PART_CHARS:
        return ()
    return (*kinds, len(items), hash(items))


class TooLarge(Exception):
    pass


class Snapshot(NamedTuple):
    """The result of `persist` or `restore`: variables that were `kept`, with their types, variables
    that were `lost`, with the reasons, and the names of the `parts`.
    """

    blob: bytes  # the index, with what is small
    kept: Pairs
    lost: Pairs
    parts: list[str]


def persist(
    namespace: Namespace,
    interrupter: Interrupter,
    parts: Parts,
    stored_names: frozenset[str],
    give: Callable[[str, bytes], None],
) -> Snapshot:
    """Take a snapshot; parts that are not in `stored_names` are passed to `give`."""
    _register_function_maker(namespace)
    persisting = _Persisting(namespace, parts, stored_names, give)
    lost = Pairs()
    for name, value in namespace.variables():
        if why := interrupter.why or _live_type_reason(value):
            lost.append((without_surrogates(name), why))
            continue
        try:
            persisting.add(name, value)
        except TooLarge:
            whole = persisting.left >= MAX_VARIABLE_BYTES
            mb = (MAX_VARIABLE_BYTES if whole else MAX_TOTAL_BYTES) // 1024**2
            subject = "one variable" if whole else "all of them together"
            lost.append(
                (without_surrogates(name), f"too large: {subject} may have {mb} MB")
            )
        except Stopped:
            lost.append((without_surrogates(name), interrupter.why))
        except BaseException as error:  # objects of the code may raise anything
            lost.append((without_surrogates(name), _reason(error, value)))
    named = list(persisting.named)
    parts.forget_except(stored_names.union(named))
    return Snapshot(persisting.index, persisting.kept, lost, named)


def restore(namespace: Namespace, index: Bytes, parts: Parts) -> Snapshot:
    """Replace all variables. Raises `ValueError` if `index` is not a snapshot."""
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
        except BaseException as error:  # unpickling runs code
            lost.append((without_surrogates(name), _error_text(error)))
    parts.given.clear()
    return Snapshot(b"", restored, lost, [])


def put(namespace: Namespace, name: str, part: str, value: Bytes, parts: Parts) -> None:
    """Set a variable to a JSON value that the host has stored as a part already."""
    parts.given[part] = value
    try:
        namespace.names[name] = _load_part(Part(part, "json", 0), parts, is_last=True)
    finally:
        parts.given.clear()


class _Persisting:
    """A snapshot that is being taken."""

    def __init__(
        self,
        namespace: Namespace,
        parts: Parts,
        stored_names: frozenset[str],
        give: Callable[[str, bytes], None],
    ) -> None:
        self._namespace, self._parts, self._give = namespace, parts, give
        self._there = set(stored_names)
        self.table, self._pieces = list[list[object]](), list[bytes]()
        self.kept, self.named = Pairs(), dict[str, None]()
        self.left = MAX_TOTAL_BYTES

    @property
    def index(self) -> bytes:
        head = JSONEncoder().encode({"variables": self.table}).encode()
        return b"".join([_LENGTH_HEADER.pack(len(head)), head, *self._pieces])

    def add(self, name: str, value: object) -> None:
        self.table.append([name, type_of(value), *self._store_value(value)])
        self.kept.append((without_surrogates(name), type_of(value)))

    def _store_value(self, value: object) -> tuple[object, ...]:
        """Store a value; return its size in the index, or the name and the format of its part."""
        part = self._parts.find(value)
        if part is None or part.name not in self._there or part.size > self.left:
            piece = _pickle(value, self._namespace, min(MAX_VARIABLE_BYTES, self.left))
            if len(piece) <= LARGE_BYTES:
                self._pieces.append(piece)
                self.left -= len(piece)
                return (len(piece),)
            part = self._store_part(piece)
            self._parts.remember(value, part)
        self.named[part.name] = None
        self.left -= part.size
        return part.name, part.form

    def _store_part(self, piece: bytes) -> Part:
        from hashlib import sha256

        name = sha256(piece).hexdigest()
        if name not in self._there:
            self._give(name, piece)
            self._there.add(name)
        return Part(name, "pickle", len(piece))


_Row = tuple[str, str, bytes | Part]


def _parse_index(index: Bytes) -> list[_Row]:
    try:
        (long,) = _LENGTH_HEADER.unpack_from(index)
        offset = _LENGTH_HEADER.size + long
        text = index[_LENGTH_HEADER.size : offset].decode()
        head = cast("dict[str, Any]", JSONDecoder().decode(text))
        rows = list[_Row]()
        for name, kind, place, *form in head["variables"]:
            if form:
                part = Part(str(place), cast("Form", form[0]), 0)
                rows.append((str(name), str(kind), part))
            else:
                rows.append((str(name), str(kind), bytes(index[offset : offset + place])))
                offset += place
        return rows
    except Exception as error:  # whatever is wrong with it
        raise ValueError(
            f"the snapshot could not be read ({_error_text(error)})"
        ) from error


def _load_part(part: Part, parts: Parts, *, is_last: bool) -> object:
    """Load a part. Two variables with the same part become two objects.

    The bytes are freed with the last use, before their text is parsed: they may be large.
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
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it has none

    class Pickler(cloudpickle.Pickler):
        def _dynamic_function_reduce(self, func: Any) -> Any:
            above: Any = super()
            reduced: Any = above._dynamic_function_reduce(func)
            if func.__globals__ is not namespace.names:
                return reduced
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
    """Register the function that rebuilds functions of cells with the namespace of the cells."""

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
    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._left = max_bytes

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise TooLarge
        return super().write(data)


# By module and name, so that no module is imported only for the check.
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
    for kind in type(value).__mro__:
        if why := _LIVE_TYPES.get(f"{kind.__module__}.{kind.__qualname__}"):
            return why
    return ""


def _reason(error: BaseException, value: object) -> str:
    inside = _error_text(error)
    if isinstance(error, MemoryError):
        return "too large: there was not enough memory to keep it"
    return f"a {type_of(value)} that holds what cannot be kept ({inside})"


def _error_text(error: BaseException) -> str:
    to_text: Callable[[object], str] = str
    try:
        words = to_text(error)
    except BaseException:  # code wrote this error
        words = ""
    return without_surrogates(f"{type(error).__name__}: {words}"[:300])
