"""Providers from other packages: entry points of the group `refold.providers`.

An entry point has the name of the provider and leads to a function that takes the
model's name and the environment and returns a `port.Provider`. Packages are searched
only for a name that is not built in.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from refold.errors import BadInput
from refold.provider.port import Provider

GROUP = "refold.providers"


class PluginProvider(Struct, frozen=True):
    """A provider that an installed package brings."""

    name: str
    make: Callable[[str, Mapping[str, str]], Provider]


def plugged(name: str) -> PluginProvider | None:
    """The provider of that name, if a package has one. Raises `BadInput` if it is broken."""
    from importlib.metadata import entry_points  # 20 ms, and rarely needed

    for point in entry_points(group=GROUP, name=name):
        try:
            return PluginProvider(name, point.load())
        except Exception as error:  # whatever a package does when it is imported
            raise BadInput(
                f"the provider {name!r} of {point.value} cannot be loaded: {error}"
            ) from error
    return None
