"""`refold doctor`: check this installation, and say how to fix what is wrong.

The checks are in the modules next to this one. A check that raises is reported like
any other problem. No session is opened.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from refold.cli.doctor import machine, model_checks, settings
from refold.cli.doctor.environment import Check, CheckContext
from refold.cli.output import columns
from refold.config.paths import Paths, paths
from refold.config.paths import here as folder
from refold.config.secret_values import clean, masks_of
from refold.errors import BadInput
from refold.headless.streams import write
from refold.views.check_findings import Finding, lines, summary


def add_arguments(doctor: ArgumentParser) -> None:
    add = doctor.add_argument
    add("--json", action="store_true", help="print JSON lines")
    add("--offline", action="store_true", help="do not contact providers")


def run(found: Namespace) -> int:
    seen, room = list[Finding](), columns(0)
    for each in look(offline=found.offline):
        seen.append(each)
        if found.json:
            write(msgspec.json.encode(each).decode() + "\n")
        else:
            write("".join(f"{line}\n" for line in lines([each], room)))
    if not found.json:
        write(f"{summary(seen)}\n")
    return 1 if any(each.state == "wrong" for each in seen) else 0


def look(*, offline: bool) -> Iterator[Finding]:
    """Everything, as it is found. Raises nothing; nothing secret is in it."""
    places, checks = _NOWHERE, _ANYWHERE
    try:
        places, checks = paths(os.environ), _CHECKS
        directory = folder()
    except BadInput as error:
        yield Finding("refold", "wrong", str(error))
        directory, checks = Path("/"), _ANYWHERE
    masks = masks_of(os.environ, places)
    ground = CheckContext(directory, places, os.environ, offline=offline)
    told = set[str]()
    for name, check in checks.items():
        for each in _found(name, check, ground):
            if each.state == "ok" or each.said not in told:  # several need the same
                told.add(each.said)
                said, do = clean(each.said, masks), clean(each.do, masks)
                yield Finding(each.about, each.state, said, do)


# For whoever has no home at all: nothing can be there.
_NOWHERE = Paths(*(Path(os.devnull, "refold"),) * 3)
_ANYWHERE: "dict[str, Check]" = {
    "refold": machine.program,
    "programs": machine.programs,
    "terminal": machine.terminal,
    "locale": machine.language,
}
_CHECKS: "dict[str, Check]" = {
    "refold": machine.program,
    "settings": settings.settings,
    "trust": settings.trust,
    "keys": settings.keys,
    "model": model_checks.model,
    "local": model_checks.local,
    "network": model_checks.reach,
    "sandbox": machine.sandbox,
    "programs": machine.programs,
    "terminal": machine.terminal,
    "disk": machine.disk,
    "sessions": machine.sessions,
    "clock": machine.clock,
    "locale": machine.language,
}


def _found(name: str, check: Check, ground: CheckContext) -> Iterator[Finding]:
    try:
        yield from check(ground)
    except BadInput as error:
        yield Finding(name, "wrong", str(error))
    except Exception as error:  # what is broken here is what a person looks for
        yield Finding(name, "wrong", f"this could not be looked at: {error!r}")
