"""The variables of code in Monty: the process that holds them, and their state as bytes.

A state is Monty's own dump. It does not contain values that the host has set, unless the code
has rebound or changed them: they are separate parts, so that large material is stored once.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import pydantic_monty

from refold.rlm.worker_side.snapshots import MONTY_MAGIC

_LENGTH_HEADER = struct.Struct("!I")
_MAX_SUSPENSIONS = 1_000_000  # calls of a session; the host has its own limits
_MAX_STATE_BYTES = 256 * 1024 * 1024
# `HostError` and `Failed` of the contract. Monty has no inheritance, so functions of the
# host raise RuntimeError itself; instances are always true in Monty, so a failed slot is
# None.
_PRELUDE_CODE = "HostError = RuntimeError\nFailed = type(None)"
_PRELUDE_NAMES = ("HostError", "Failed")


_SIZE_UNITS = {"str": "characters", "bytes": "bytes"}


class SavedState(NamedTuple):
    """The saved variables of a Monty process.

    `names` are all names that the code may have bound. `given` maps variables that the host has
    set to the names of their parts.
    """

    dump: bytes
    names: tuple[str, ...]
    given: Mapping[str, str]
    parts: Mapping[str, bytes]
    version: str = pydantic_monty.__version__


def pack_state(state: SavedState) -> bytes:
    head = {"names": state.names, "given": dict(state.given), "version": state.version}
    body = json.dumps(head).encode()
    return MONTY_MAGIC + _LENGTH_HEADER.pack(len(body)) + body + state.dump


def unpack_state(data: bytes) -> SavedState:
    """Unpack the saved variables. Raises `ValueError` if the bytes are not a state of Monty."""
    if not data.startswith(MONTY_MAGIC):
        raise ValueError('they were saved by CPython: set python.engine = "cpython"')
    start = len(MONTY_MAGIC) + _LENGTH_HEADER.size
    (length,) = _LENGTH_HEADER.unpack(data[len(MONTY_MAGIC) : start])
    head = json.loads(data[start : start + length])
    dump = data[start + length :]
    return SavedState(dump, tuple(head["names"]), head["given"], {}, head["version"])


class MontyState:
    """Holds the variables in a session of Monty, which is replaced when its process ends."""

    def __init__(
        self,
        memory: int,
        directory: str,
        functions: Mapping[str, Callable[..., object]],
        on_print: Callable[[str, str], None],
    ) -> None:
        # Each function has a second name, from which a rebound name is restored.
        self._functions = {f"_host_{n}": f for n, f in functions.items()} | dict(functions)
        self._reserved = (*functions, *_PRELUDE_NAMES)
        self._on_print, self._directory = on_print, directory
        self._limits: pydantic_monty.ResourceLimits = {
            "max_memory": memory,
            "max_suspensions": _MAX_SUSPENSIONS,
        }
        self._mount = pydantic_monty.MountDir(
            host_path=directory, virtual_path=directory, mode="read-only"
        )
        self._pool = pydantic_monty.Monty(min_processes=1, max_processes=1).__enter__()
        self._names = list[str]()
        self._given = dict[str, str]()  # part names, by variable
        self._parts = dict[str, bytes]()
        self._saved: SavedState | None = None
        self._session: pydantic_monty.MontySession | None = None
        self.process = 0
        self._open_session(state=None)

    def feed(self, source: str, inputs: dict[str, object] | None = None) -> Any:
        """Run code, and return the value of its last line. Raises `MontyError`."""
        assert self._session is not None
        return self._session.feed_run(
            source, inputs=inputs, external_lookup=self._functions,
            print_callback=cast("Any", self._on_print), mount=self._mount,
            cwd=self._directory,
        )  # fmt: skip

    def put(self, name: str, part: str, value: bytes) -> None:
        """Set a variable to a JSON value, which the host stores as `part`. Then save all
        variables.
        """
        self._set_given(name, part, value)
        self.save()

    def save(self) -> SavedState:
        """Save and return all variables. If the process ends, a new one begins with them.

        Raises `ValueError` if they are too large.
        """
        self._forget_rebound()
        # The dump must not contain the values that the host has set.
        for name in self._given:
            self.feed(f"{name} = _given_{name} = None")
        assert self._session is not None
        dump = self._session.dump()
        if len(dump) > _MAX_STATE_BYTES:
            raise ValueError(f"the variables take {len(dump):,} bytes, which is too much")
        for name, part in self._given.items():
            self._set_given(name, part, self._parts[part])
        self._saved = SavedState(
            dump, tuple(self._names), dict(self._given), dict(self._parts)
        )
        return self._saved

    def restore(
        self, state: SavedState, parts: Mapping[str, bytes]
    ) -> list[tuple[str, str]]:
        """Replace all variables by those in `state`. Return the names of the lost variables,
        with reasons.
        """
        lost = [
            (name, "its value is missing")
            for name, part in state.given.items()
            if part not in parts
        ]
        set_parts = {name: part for name, part in state.given.items() if part in parts}
        self._saved = state._replace(given=set_parts, parts=parts)
        self.begin_again()
        self._names = [name for name in self._names if name not in dict(lost)]
        return lost

    def begin_again(self) -> None:
        """Replace the process by a new one with the variables that were saved last."""
        self._open_session(self._saved)

    def saved_types(self) -> list[tuple[str, str]]:
        """Return the names of the variables with their types."""
        return [(name, type_) for name, type_, _ in self._names_types_and_sizes()]

    def listing(self) -> str:
        """Return a text with the type and size of each variable, one on each line."""
        lines = list[str]()
        for name, type_, size in self._names_types_and_sizes():
            line = f"{name}: {type_}"
            if size is not None:
                unit = _SIZE_UNITS.get(type_, "items")
                line += f", {size:,} {unit}"
            lines.append(line)
        return "\n".join(lines)

    def note_names(self, names: list[str]) -> str:
        """Record the names that a cell has bound. Restore the reserved names among them.

        Return a note about the restored names, or "".
        """
        rebound = [name for name in names if name in self._reserved]
        self._names += [n for n in names if n not in (*self._names, *self._reserved)]
        if not rebound:
            return ""
        self._reset_reserved()
        return f"(reserved and put back: {', '.join(rebound)})"

    def _set_given(self, name: str, part: str, value: bytes) -> None:
        """Set a variable to a JSON value of the host, which the host stores as `part`."""
        # Both names refer to one object. If the code rebinds `name`, the objects differ.
        self.feed(
            f"{name} = _given_{name} = _value_", inputs={"_value_": json.loads(value)}
        )
        self.feed("_value_ = None")
        self._given[name], self._parts[part] = part, value
        if name not in self._names:
            self._names.append(name)

    def _forget_rebound(self) -> None:
        """Forget which variables the host has set, if the code has rebound or changed them.

        They are then saved with the variables of the code.
        """
        for name, part in list(self._given.items()):
            value = json.loads(self._parts[part])
            is_unchanged = f"{name} is _given_{name}"
            if not isinstance(value, str):  # it can be changed in place
                is_unchanged += f" and {name} == _value_"
            if not self.feed(is_unchanged, inputs={"_value_": value}):
                del self._given[name]
            self.feed("_value_ = None")
        self._parts = {part: self._parts[part] for part in self._given.values()}

    def _reset_reserved(self) -> None:
        """Bind the reserved names again to the host's functions and to the prelude."""
        restored = [n for n in self._functions if f"_host_{n}" in self._functions]
        lines = [f"{name} = _host_{name}" for name in restored]
        self.feed("\n".join([*lines, _PRELUDE_CODE]))

    def _names_types_and_sizes(self) -> list[tuple[str, str, int | None]]:
        """Return name, type and size of each variable. The size of a number is None."""
        lines = ["_vars_ = []"]
        for name in self._names:
            lines += [
                "try:", f"    _vars_.append(({name!r}, type({name}).__name__,",
                f"        len({name}) if isinstance({name}, (str, bytes, list, tuple, set,",
                "        frozenset, dict)) else None))", "except NameError:", "    pass",
            ]  # fmt: skip
        return cast(
            "list[tuple[str, str, int | None]]", self.feed("\n".join([*lines, "_vars_"]))
        )

    def _open_session(self, state: SavedState | None) -> None:
        """Start a new process of Monty with the variables in `state`, or without variables."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
        session = self._pool.checkout(limits=self._limits)
        self._session = session.__enter__()
        self._names, self._given, self._parts = [], {}, {}
        self.process = self._session.worker_pid or 0
        if state is None:
            self._reset_reserved()
            self._saved = self.save()
            return
        self._session.load_session(state.dump)
        self._names = list(state.names)
        for name, part in state.given.items():
            self._set_given(name, part, state.parts[part])
