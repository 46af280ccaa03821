"""Variables as bytes, each for itself: one that cannot be kept loses only itself.

Small ones stand together in one index; it names the parts in which large ones are, and
only parts that are new are given away (`parts`). Functions refer to the names of the cells, not to copies of them. Whoever reads such
bytes runs what they say: that is done in a worker only.
"""

import io
import struct
import sys
import types
from collections.abc import Callable
from json import JSONDecoder, JSONEncoder
from typing import Any, NamedTuple, cast

from refold.rlm.inside.hunt import Hunt, Stopped
from refold.rlm.inside.parts import LARGE, Bytes, Form, Part, Parts
from refold.rlm.inside.primitives import MODULE
from refold.rlm.inside.space import Space, type_of
from refold.rlm.inside.values import clean

ONE, ALL = 64 * 1024 * 1024, 256 * 1024 * 1024  # bytes
_HEADER = struct.Struct("!I")
_MAKE = "function_of_the_cells"

Pairs = list[tuple[str, str]]


class TooLarge(Exception):
    pass


class Snapshot(NamedTuple):
    """`kept` with their types, `lost` with the reasons, the `parts` that it names."""

    blob: bytes  # the index, with what is small
    kept: Pairs
    lost: Pairs
    parts: list[str]


def keep(
    space: Space,
    hunt: Hunt,
    parts: Parts,
    known: frozenset[str],
    give: Callable[[str, bytes], None],
) -> Snapshot:
    """Gives away the parts that are not `known`."""
    _know_how(space)
    keeping = _Keeping(space, parts, known, give)
    lost = Pairs()
    for name, value in space.variables():
        if why := hunt.why or _hopeless(value):
            lost.append((clean(name), why))
            continue
        try:
            keeping.take(name, value)
        except TooLarge:
            whole = keeping.left >= ONE
            mb = (ONE if whole else ALL) // 1024**2
            what = "one variable" if whole else "all of them together"
            lost.append((clean(name), f"too large: {what} may have {mb} MB"))
        except Stopped:
            lost.append((clean(name), hunt.why))
        except BaseException as error:  # what code has made may raise anything
            lost.append((clean(name), _why(error, value)))
    named = list(keeping.named)
    parts.forget_but(known.union(named))
    return Snapshot(keeping.index, keeping.kept, lost, named)


def restore(space: Space, index: Bytes, parts: Parts) -> Snapshot:
    """Puts them in place of what is there. Raises `ValueError` for what is no snapshot."""
    _know_how(space)
    rows = _read(index)
    space.clear()
    kept, lost = Pairs(), Pairs()
    for name, kind, piece in rows:
        try:
            apart = isinstance(piece, Part)
            space.names[name] = _of_part(piece, parts) if apart else _loaded(piece)
            kept.append((clean(name), clean(kind)))
        except BaseException as error:  # it runs code
            lost.append((clean(name), _said(error)))
    parts.given.clear()
    return Snapshot(b"", kept, lost, [])


def put(space: Space, name: str, part: str, value: Bytes, parts: Parts) -> None:
    """A variable that is handed in, as JSON. It is a part that is there already."""
    parts.given[part] = value
    try:
        space.names[name] = _of_part(Part(part, "json", 0), parts)
    finally:
        parts.given.clear()


class _Keeping:
    """A snapshot on its way."""

    def __init__(
        self,
        space: Space,
        parts: Parts,
        known: frozenset[str],
        give: Callable[[str, bytes], None],
    ) -> None:
        self._space, self._parts, self._give = space, parts, give
        self._there = set(known)
        self.table, self._pieces = list[list[object]](), list[bytes]()
        self.kept, self.named = Pairs(), dict[str, None]()
        self.left = ALL

    @property
    def index(self) -> bytes:
        head = JSONEncoder().encode({"variables": self.table}).encode()
        return b"".join([_HEADER.pack(len(head)), head, *self._pieces])

    def take(self, name: str, value: object) -> None:
        self.table.append([name, type_of(value), *self._where(value)])
        self.kept.append((clean(name), type_of(value)))

    def _where(self, value: object) -> tuple[object, ...]:
        """In the index, of so many bytes; or in which part, and in which form."""
        part = self._parts.of(value)
        if part is None or part.name not in self._there or part.size > self.left:
            piece = _pickled(value, self._space, min(ONE, self.left))
            if len(piece) <= LARGE:
                self._pieces.append(piece)
                self.left -= len(piece)
                return (len(piece),)
            part = self._apart(piece)
            self._parts.remember(value, part)
        self.named[part.name] = None
        self.left -= part.size
        return part.name, part.form

    def _apart(self, piece: bytes) -> Part:
        from hashlib import sha256

        name = sha256(piece).hexdigest()
        if name not in self._there:
            self._give(name, piece)
            self._there.add(name)
        return Part(name, "pickle", len(piece))


_Row = tuple[str, str, bytes | Part]


def _read(index: Bytes) -> list[_Row]:
    try:
        (long,) = _HEADER.unpack_from(index)
        at = _HEADER.size + long
        said = index[_HEADER.size : at].decode()
        head = cast("dict[str, Any]", JSONDecoder().decode(said))
        found = list[_Row]()
        for name, kind, where, *form in head["variables"]:
            if form:
                part = Part(str(where), cast("Form", form[0]), 0)
                found.append((str(name), str(kind), part))
            else:
                found.append((str(name), str(kind), bytes(index[at : at + where])))
                at += where
        return found
    except Exception as error:  # whatever there is that is wrong with it
        raise ValueError(f"the snapshot could not be read ({_said(error)})") from error


def _of_part(part: Part, parts: Parts) -> object:
    """Two variables may be of one part, and are two objects afterwards."""
    piece = parts.given.get(part.name)
    if piece is None:
        raise LookupError("what it was kept in is not there any more")
    if part.form == "json":
        value: object = JSONDecoder(strict=False).decode(piece.decode())
        parts.remember(value, part._replace(size=0))
    else:
        value = _loaded(piece)
        parts.remember(value, part._replace(size=len(piece)))
    return value


def _pickled(value: object, space: Space, most: int) -> bytes:
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it has none

    class Pickler(cloudpickle.Pickler):
        def _dynamic_function_reduce(self, func: Any) -> Any:
            above: Any = super()
            found: Any = above._dynamic_function_reduce(func)
            if func.__globals__ is not space.names:
                return found
            _, (code, _, name, defaults, closure), (state, slots), *more = found
            make = getattr(sys.modules[MODULE], _MAKE)
            slots = slots | {"__globals__": {}}
            return (make, (code, name, defaults, closure), (state, slots), *more)

    file = _Bounded(most)
    pickler: Any = Pickler(file, protocol=5)
    pickler.dump(value)
    return file.getvalue()


def _loaded(piece: Bytes) -> object:
    import pickle

    return pickle.loads(piece)


def _know_how(space: Space) -> None:
    """Functions of cells are made anew with the names of the cells around them."""

    def function_of_the_cells(code: Any, name: Any, defaults: Any, closure: Any) -> object:
        return types.FunctionType(code, space.names, name, defaults, closure)

    function_of_the_cells.__module__ = MODULE
    function_of_the_cells.__qualname__ = _MAKE
    module = sys.modules.get(MODULE)
    if module is None or vars(module).get(_MAKE) is None:
        module = module or types.ModuleType(MODULE)
        setattr(module, _MAKE, function_of_the_cells)
        sys.modules[MODULE] = module


class _Bounded(io.BytesIO):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise TooLarge
        return super().write(data)


# By module and name, so that nothing is imported only to look whether something is one.
_LIVE = {
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


def _hopeless(value: object) -> str:
    for kind in type(value).__mro__:
        if why := _LIVE.get(f"{kind.__module__}.{kind.__qualname__}"):
            return why
    return ""


def _why(error: BaseException, value: object) -> str:
    inside = _said(error)
    if isinstance(error, MemoryError):
        return "too large: there was not enough memory to keep it"
    return f"a {type_of(value)} that holds what cannot be kept ({inside})"


def _said(error: BaseException) -> str:
    said: Callable[[object], str] = str
    try:
        words = said(error)
    except BaseException:  # code wrote this error
        words = ""
    return clean(f"{type(error).__name__}: {words}"[:300])
