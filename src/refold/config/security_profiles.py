"""Security profiles: a mode, a sandbox and rules under one name, as a layer of settings.

A profile only sets what a user could set one by one. It counts in the layer that chooses
it, so a later layer still wins. `config.load` combines the layers.

Below all layers, one old line of a settings file would override a profile; above all of
them, a profile would override the administrator. Only the profile that was chosen last is
expanded, because rules add up. A project cannot choose one.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from refold.config.layers import Origin

PROFILE_SETTING = "security_profile"

# Files that may hold a key or a password.
_SECRET_FILES = (
    "read_file(**/.env)",
    "read_file(**/.env.*)",
    "read_file(**/*.pem)",
    "read_file(**/id_rsa*)",
    "read_file(**/id_ed25519*)",
)
_OUTSIDE_TOOLS = ("web_fetch", "web_search", "mcp__*")  # tools that send data out

SECURITY_PROFILES: Mapping[str, Mapping[str, object]] = MappingProxyType({
    "open": {
        "permission_mode": "bypass",
        "sandbox.profile": "workspace",
        "sandbox.network": True,
    },
    "cautious": {
        "permission_mode": "sandbox",
        "sandbox.profile": "workspace",
        "sandbox.network": False,
        "permissions.ask": ("bash(git push *)",),
    },
    "guarded": {
        "permission_mode": "default",
        "sandbox.profile": "workspace",
        "sandbox.network": False,
        "permissions.ask": ("bash(git push *)", *_OUTSIDE_TOOLS),
        "permissions.deny": _SECRET_FILES,
    },
    "paranoid": {
        "permission_mode": "rules-only",
        "sandbox.profile": "read-only",
        "sandbox.network": False,
        "permissions.deny": (*_SECRET_FILES, *_OUTSIDE_TOOLS),
    },
})  # fmt: skip


def with_profile(
    layers: Iterable[Iterable[tuple[str, Origin]]],
) -> list[list[tuple[str, Origin]]]:
    """The checked layers, with the settings of the profile that was chosen last.

    These come first in the layer that chose it: its own settings win over them, and they
    win over earlier layers.
    """
    lists = [list(layer) for layer in layers]
    chosen = [(n, origin) for n, layer in enumerate(lists) for key, origin in layer
              if key == PROFILE_SETTING]  # fmt: skip
    if chosen and (settings := SECURITY_PROFILES.get(str(chosen[-1][1].value))):
        place, by = chosen[-1]
        lists[place] = [*_settings(settings, by), *lists[place]]
    return lists


def _settings(
    settings: Mapping[str, object], source: Origin
) -> Iterable[tuple[str, Origin]]:
    origin = f"{PROFILE_SETTING} {source.value} ({source.where})"
    for key, value in settings.items():
        yield key, Origin(value, origin)
