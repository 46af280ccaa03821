"""The namespace that all cells share: variables of the code, and reserved names.

The reserved names are FINAL, SHOW_VARS and the functions of the host. Their objects are in a
separate module, so that variables which refer to one of them can be pickled. Before each cell,
reserved names, built-in functions and `__main__` are restored.
"""

import builtins
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from refold.rlm.worker_side.interrupter import Interrupter
from refold.rlm.worker_side.signatures import PRIMITIVE_SIGNATURES, Signature
from refold.rlm.worker_side.socket_link import Link
from refold.rlm.worker_side.values import (
    Failed,
    Listing,
    Values,
    size_of,
    without_surrogates,
)

MODULE_NAME = "refold_worker"
_FINAL_REASON = "FINAL was called"


class Namespace:
    """The namespace of the cells, which is the namespace of the module `__main__`."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        # Classes and dataclasses look up their module by name.
        sys.modules["__main__"] = module
        self.names: dict[str, object] = module.__dict__
        self._module = module
        self._builtins = dict(builtins.__dict__)
        self.reserved: Mapping[str, object] = {}

    def restore_reserved(self) -> list[str]:
        """Restore the reserved names. Return the names that code had bound to other objects."""
        builtins.__dict__.update(self._builtins)
        self.names["__builtins__"] = builtins
        self.names["__name__"] = "__main__"
        sys.modules["__main__"] = self._module
        rebound = [
            name
            for name, value in self.reserved.items()
            if self.names.get(name) is not value
        ]
        self.names.update(self.reserved)
        return rebound

    def variables(self) -> list[tuple[str, object]]:
        return code_variables(self.names, self.reserved)

    def names_and_types(self) -> list[tuple[str, str]]:
        return [
            (without_surrogates(name), type_of(value)) for name, value in self.variables()
        ]

    def clear(self) -> None:
        for name, _ in self.variables():
            del self.names[name]


def type_of(value: object) -> str:
    return without_surrogates(str(type(value).__name__))


class HostError(Exception):
    """Raised in the code if a function of the host failed."""


class Final:
    """Implements FINAL, which ends the turn. Only a cell's first call is sent to the host."""

    def __init__(
        self,
        link: Link,
        values: Values,
        interrupter: Interrupter,
        output: Callable[[], str],
    ) -> None:
        self._link, self._values = link, values
        self._interrupter, self._printed = interrupter, output
        self._lock = Lock()
        self.given = False  # whether FINAL was called in this cell

    def clear(self) -> None:
        self.given = False

    def set(self, value: object) -> None:
        """Send the value to the host, and end the cell."""
        encoded = self._values.to_json(value)
        with self._lock:
            is_first = not self.given
            self.given = True
        # The host interrupts the cell as soon as it gets the message.
        self._interrupter.announce_leave(_FINAL_REASON)
        if is_first:
            # Sent before any exception handler in the code can run.
            self._link.send_now({"t": "final", "value": encoded, "text": self._printed()})
        self._interrupter.leave(_FINAL_REASON)


def make_reserved_names(
    namespace: dict[str, object],
    functions: Mapping[str, Sequence[str]],
    call: Callable[[str, dict[str, object]], object],
    final: Final,
) -> dict[str, object]:
    """Return the reserved names with their objects, which pickles find in a separate module.

    `functions` maps the host's functions to their parameters, and `call` calls one of them.
    """

    def FINAL(value: object) -> None:
        """End the task with this value. The code after it does not run."""
        final.set(value)

    def SHOW_VARS() -> Listing:
        """Show the variables, with type and size."""
        lines = _variable_lines(namespace, names)
        return Listing("\n".join(lines) or "There are no variables.")

    names: dict[str, object] = {"FINAL": FINAL, "SHOW_VARS": SHOW_VARS}
    names |= {"Failed": Failed, "HostError": HostError}
    signatures = dict(PRIMITIVE_SIGNATURES)
    for name, tool_parameters in functions.items():
        signatures[name] = Signature(tuple(tool_parameters), needed=0)
    for name, (parameters, needed) in signatures.items():
        names[name] = make_function(name, needed, parameters, call)
    module = types.ModuleType(MODULE_NAME)
    for name, entry in names.items():
        setattr(module, name, _with_module(entry, name))
    sys.modules[MODULE_NAME] = module
    return names


def _with_module(value: Any, name: str) -> object:
    """Return the value, changed so that pickles find it by this name in the separate module."""
    value.__module__, value.__qualname__ = MODULE_NAME, name
    return value


def make_function(
    name: str,
    required_count: int,
    parameters: tuple[str, ...],
    call: Callable[[str, dict[str, object]], object],
) -> Callable[..., object]:
    """Return a function that checks its arguments and passes them to `call` by name.

    The first `required_count` parameters are required.
    """
    parameters_text = ", ".join(
        parameter if n < required_count else f"{parameter}=None"
        for n, parameter in enumerate(parameters)
    )
    signature = f"{name}({parameters_text})"

    def function(*positional: object, **named: object) -> object:
        if len(positional) > len(parameters):
            raise TypeError(f"{signature} was given {len(positional)} arguments.")
        arguments = dict(zip(parameters, positional, strict=False))
        for parameter in named:
            if parameter not in parameters:
                raise TypeError(f"{signature} has no parameter {parameter!r}.")
            if parameter in arguments:
                raise TypeError(f"{signature} was given {parameter!r} twice.")
        arguments |= named
        if missing := [
            parameter
            for parameter in parameters[:required_count]
            if parameter not in arguments
        ]:
            raise TypeError(f"{signature} needs {', '.join(missing)}.")
        return call(name, arguments)

    function.__name__ = name
    function.__doc__ = signature
    return function


def _variable_lines(
    namespace: Mapping[str, object], reserved_names: Mapping[str, object]
) -> list[str]:
    """Return a line for each variable: its name, its type and, if it has one, its size."""
    lines = list[str]()
    for name, value in code_variables(namespace, reserved_names):
        line = f"{name}: {type(value).__name__}"
        size = size_of(value)
        lines.append(f"{line}, {size}" if size else line)
    return lines


def code_variables(
    namespace: Mapping[str, object], reserved_names: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Return the variables that the code has set, without Python's own and reserved names."""
    return [
        (name, value)
        for name, value in list(namespace.items())
        if name not in reserved_names and not name.startswith("__")
    ]
