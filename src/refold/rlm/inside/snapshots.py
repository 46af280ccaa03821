"""Variables as bytes, each for itself: one that cannot be kept loses only itself.

Functions refer to the names of the cells, not to copies of them. Whoever reads such
bytes runs what they say: that is done in a worker only.
"""

import io
import struct
import sys
import types
from collections.abc import Callable
from json import JSONDecoder, JSONEncoder
from typing import Any, cast

from refold.rlm.inside.hunt import Hunt, Stopped
from refold.rlm.inside.primitives import MODULE
from refold.rlm.inside.space import Space, type_of
from refold.rlm.inside.values import clean

ONE, ALL = 64 * 1024 * 1024, 256 * 1024 * 1024  # bytes
_HEADER = struct.Struct("!I")
_MAKE = "function_of_the_cells"

Pairs = list[tuple[str, str]]


class TooLarge(Exception):
    pass


def keep(space: Space, count: int, hunt: Hunt) -> tuple[bytes, Pairs, Pairs]:
    """The bytes, what is in them with its type, what is not with the reason."""
    _know_how(space)
    kept, lost = Pairs(), Pairs()
    pieces, sizes, total = list[bytes](), list[int](), 0
    for name, value in space.variables():
        if why := hunt.why or _hopeless(value):
            lost.append((clean(name), why))
            continue
        try:
            piece = _pickled(value, space, min(ONE, ALL - total))
        except TooLarge:
            mb = (ONE if ALL - total >= ONE else ALL) // 1024**2
            what = "one variable" if ALL - total >= ONE else "all of them together"
            lost.append((clean(name), f"too large: {what} may have {mb} MB"))
        except Stopped:
            lost.append((clean(name), hunt.why))
        except BaseException as error:  # what code has made may raise anything
            lost.append((clean(name), _why(error, value)))
        else:
            kept.append((name, type_of(value)))
            pieces.append(piece)
            sizes.append(len(piece))
            total += len(piece)
    table = [[*pair, size] for pair, size in zip(kept, sizes, strict=True)]
    head = JSONEncoder().encode({"cells": count, "variables": table}).encode()
    found = b"".join([_HEADER.pack(len(head)), head, *pieces])
    return found, [(clean(name), kind) for name, kind in kept], lost


def restore(space: Space, variables: bytes) -> tuple[int, Pairs, Pairs]:
    """Puts them in place of what is there. Gives the number of cells that ran, too.

    Raises `ValueError` for what is no snapshot.
    """
    _know_how(space)
    cells, pieces = _read(variables)
    space.clear()
    kept, lost = Pairs(), Pairs()
    for name, kind, piece in pieces:
        try:
            space.names[name] = _loaded(piece)
            kept.append((clean(name), clean(kind)))
        except BaseException as error:  # it runs code
            lost.append((clean(name), _said(error)))
    return cells, kept, lost


def _read(variables: bytes) -> tuple[int, list[tuple[str, str, bytes]]]:
    try:
        (long,) = _HEADER.unpack_from(variables)
        at = _HEADER.size + long
        said = variables[_HEADER.size : at].decode()
        head = cast("dict[str, Any]", JSONDecoder().decode(said))
        found = list[tuple[str, str, bytes]]()
        for name, kind, size in head["variables"]:
            found.append((str(name), str(kind), variables[at : at + size]))
            at += size
        return int(head["cells"]), found
    except Exception as error:  # whatever there is that is wrong with it
        raise ValueError(f"the snapshot could not be read ({_said(error)})") from error


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


def _loaded(piece: bytes) -> object:
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
