"""The names that code finds beside its own: FINAL, SHOW_VARS and functions of the host.

They are looked up by name in a module of their own, so that variables which hold one
of them can be kept. What the host does when it is called is its business.
"""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from refold.rlm.inside.hunt import Hunt
from refold.rlm.inside.link import Link
from refold.rlm.inside.observe import Listing, sized
from refold.rlm.inside.signatures import PRIMITIVES, Signature
from refold.rlm.inside.values import Failed, Values

MODULE = "refold_worker"
_FINAL = "FINAL was called"


class HostError(Exception):
    """A function of the host could not do what it was asked to."""


class Final:
    """The value that ends it all. The first counts."""

    def __init__(
        self, link: Link, values: Values, hunt: Hunt, told: Callable[[], str]
    ) -> None:
        self._link, self._values, self._hunt, self._told = link, values, hunt, told
        self._lock, self.given = Lock(), False

    def clear(self) -> None:
        self.given = False

    def give(self, value: object) -> None:
        said = self._values.to_json(value)
        with self._lock:
            first, self.given = not self.given, True
        # The host tells the cell to stop as soon as it hears of it.
        self._hunt.about_to_leave(_FINAL)
        if first:
            # Recorded before anything in the code can have a say in it.
            self._link.send_now({"t": "final", "value": said, "text": self._told()})
        self._hunt.leave(_FINAL)


def reserved(
    namespace: dict[str, object],
    functions: Mapping[str, Sequence[str]],
    call: Callable[[str, dict[str, object]], object],
    final: Final,
) -> dict[str, object]:
    """All of them by name, and the module that they are found in again."""

    def FINAL(value: object) -> None:
        """End the task with this value. The code after it does not run."""
        final.give(value)

    def SHOW_VARS() -> Listing:
        """The variables there are, with type and size."""
        return Listing("\n".join(_lines(namespace, found)) or "There are no variables.")

    found: dict[str, object] = {"FINAL": FINAL, "SHOW_VARS": SHOW_VARS}
    found |= {"Failed": Failed, "HostError": HostError}
    tools = {name: Signature(tuple(given), 0) for name, given in functions.items()}
    for name, (given, needed) in {**PRIMITIVES, **tools}.items():
        found[name] = _function(name, needed, given, call)
    module = types.ModuleType(MODULE)
    for name, one in found.items():
        setattr(module, name, _at_home(one, name))
    sys.modules[MODULE] = module
    return found


def _at_home(one: Any, name: str) -> object:
    one.__module__, one.__qualname__ = MODULE, name
    return one


def _function(
    name: str,
    needed: int,
    parameters: tuple[str, ...],
    call: Callable[[str, dict[str, object]], object],
) -> Callable[..., object]:
    words = ", ".join(
        one if n < needed else f"{one}=None" for n, one in enumerate(parameters)
    )

    def function(*given: object, **named: object) -> object:
        if len(given) > len(parameters):
            raise TypeError(f"{name}({words}) was given {len(given)} arguments.")
        found = dict(zip(parameters, given, strict=False))
        for one in named:
            if one not in parameters:
                raise TypeError(f"{name}({words}) has no parameter {one!r}.")
            if one in found:
                raise TypeError(f"{name}({words}) was given {one!r} twice.")
        found |= named
        if missing := [one for one in parameters[:needed] if one not in found]:
            raise TypeError(f"{name}({words}) needs {', '.join(missing)}.")
        return call(name, found)

    function.__name__ = name
    function.__doc__ = f"{name}({words})"
    return function


def _lines(namespace: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: {type(value).__name__}" + (f", {size}" if (size := sized(value)) else "")
        for name, value in own(namespace, found)
    ]


def own(
    namespace: Mapping[str, object], reserved: Mapping[str, object]
) -> list[tuple[str, object]]:
    """The variables of the code, without what Python and we have put there."""
    return [
        (name, value)
        for name, value in list(namespace.items())
        if name not in reserved and not name.startswith("__")
    ]
