"""Security profiles: each sets a mode, a sandbox and permission rules under one name.

A profile contains only settings that a user could also set one by one. Its settings belong to
the layer that chooses the profile: they win over earlier layers, and later layers, such as the
administrator's, win over them. If several layers choose a profile, only the last choice
applies. A project cannot choose a profile. `config.load` combines the layers.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from refold.config.layers import Origin

PROFILE_SETTING = "security_profile"

# Files that may contain a key or a password.
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
    """Return the layers, with the settings of the security profile that was chosen last.

    The settings of the profile are put first in the layer that chose it. So they win over
    earlier layers, and the other settings of that layer win over them.
    """
    lists = [list(layer) for layer in layers]
    for layer in reversed(lists):
        choices = [origin for key, origin in layer if key == PROFILE_SETTING]
        if choices:
            chosen = choices[-1]
            profile = SECURITY_PROFILES.get(str(chosen.value), {})
            layer[:0] = _settings(profile, chosen)
            break
    return lists


def _settings(
    settings: Mapping[str, object], source: Origin
) -> Iterable[tuple[str, Origin]]:
    origin = f"{PROFILE_SETTING} {source.value} ({source.where})"
    for key, value in settings.items():
        yield key, Origin(value, origin)
