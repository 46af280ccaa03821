"""Providers of other packages: entry points of the group `refold.providers`.

An entry point is named as the provider is, and leads to a function that is given
the model's name and the environment and gives back a provider (`port.Provider`).
Packages are looked through only for a name that nobody here knows.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from refold.errors import BadInput
from refold.provider.port import Provider

GROUP = "refold.providers"


class Plugged(Struct, frozen=True):
    """A provider that an installed package brings."""

    name: str
    make: Callable[[str, Mapping[str, str]], Provider]


def plugged(name: str) -> Plugged | None:
    """The provider of that name, if a package has one. Raises `BadInput` if it is broken."""
    from importlib.metadata import entry_points  # 20 ms, and hardly anybody needs it

    for point in entry_points(group=GROUP, name=name):
        try:
            return Plugged(name, point.load())
        except Exception as error:  # whatever a package does when it is imported
            raise BadInput(
                f"the provider {name!r} of {point.value} cannot be loaded: {error}"
            ) from error
    return None
