"""Settings, keys and trust: is what a person wrote usable, and safe where it lies?"""

import os
from collections.abc import Iterator
from pathlib import Path

from refold.cli.doctor.environment import CheckContext
from refold.config import credentials, keyring
from refold.errors import BadInput
from refold.provider.spec import ProviderSpec
from refold.views.check_findings import Finding


def settings(ground: CheckContext) -> Iterator[Finding]:
    found = ground.told
    for problem in found.problems:
        yield Finding("settings", "wrong", problem, "refold config edit")
    for file in (ground.places.settings, ground.places.folders):
        yield from _rights(file)
    if not found.problems:
        number = len(found.chain)
        changed = f"{number} of {len(found.values)} set" if number else "all as they come"
        yield Finding("settings", "ok", f"{changed} (refold config show)")


def trust(ground: CheckContext) -> Iterator[Finding]:
    state, texts = ground.told.state, ground.texts
    if state in ("new", "changed"):
        since = "changed since you saw them" if state == "changed" else "not trusted"
        yield Finding(
            "trust", "warning", f"the settings of this folder are {since}: they do not count",
            "refold trust add",
        )  # fmt: skip
    if texts.found:
        yield Finding(
            "trust", "warning", f"{texts.names} would tell the model what to do, and does not count",
            "refold trust add",
        )  # fmt: skip
    elif state in ("nothing", "trusted"):
        said = (
            "its settings count" if state == "trusted" else "nothing in it asks for trust"
        )
        yield Finding("trust", "ok", f"{ground.folder}: {said}")


def keys(ground: CheckContext) -> Iterator[Finding]:
    file = ground.places.credentials
    try:
        credentials.read(file)
    except BadInput as error:
        yield Finding("keys", "wrong", str(error))
    if open_ := credentials.open_to_others(file) if file.exists() else "":
        said, _, do = open_.partition(": ")
        yield Finding("keys", "warning", said, do)
    connections = ground.models.connections
    held = [
        f"{s.name} ({where})" for s in connections.known if (where := key_from(ground, s))
    ]
    also = "; a keyring is there, and was not asked" if keyring.installed() else ""
    if held:
        yield Finding("keys", "ok", f"{', '.join(held)}{also}")
    else:
        state = "ok" if ground.model else "warning"
        yield Finding(
            "keys", state, f"no key of a provider was found{also}",
            "refold auth set PROVIDER keeps one",
        )  # fmt: skip


def key_from(ground: CheckContext, spec: ProviderSpec) -> str:
    """Where a provider's key comes from; "" if it has none. No program is asked."""
    found = ground.models.connections.keys
    if held := found.in_environment(spec):
        return held.variable
    if found.command(spec):
        return "key_command"
    return "credentials.toml" if found.in_file(spec) else ""


def _rights(file: Path) -> Iterator[Finding]:
    """Whoever can write there decides what runs unasked."""
    for path in (file.parent, file):
        try:
            found = path.stat()
        except OSError:
            continue
        if found.st_mode & 0o022:
            yield Finding(
                "settings", "wrong", f"others can change {path}", f"chmod go-w {path}"
            )
        elif found.st_uid not in (os.geteuid(), 0):
            yield Finding("settings", "wrong", f"{path} belongs to somebody else",
                f"chown {os.geteuid()} {path}")  # fmt: skip
