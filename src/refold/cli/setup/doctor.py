"""`refold doctor`: is all as it should be here? What is not, and what to do about it.

What is looked at is the business of `checks`. A check that fails itself is told like
anything else that is wrong, and no session is opened.
"""

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from refold.cli.out import columns, write
from refold.cli.setup.checks import here, machine, models, settings
from refold.cli.setup.checks.ground import Check, CheckContext
from refold.cli.standing import here as folder
from refold.cli.subparsers import Subparsers
from refold.config.masking import clean, masks_of
from refold.config.paths import Paths, paths
from refold.errors import BadInput
from refold.views.findings import Finding, lines, summary


def add_parser(commands: Subparsers) -> None:
    doctor = commands.add_parser(
        "doctor", help="is all as it should be here? exit 1 if not"
    )
    add = doctor.add_argument
    add("--json", action="store_true", help="as JSON, one a line")
    add("--offline", action="store_true", help="ask no provider")


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
    "terminal": here.terminal,
    "locale": machine.language,
}
_CHECKS: "dict[str, Check]" = {
    "refold": machine.program,
    "settings": settings.settings,
    "trust": settings.trust,
    "keys": settings.keys,
    "model": models.model,
    "local": models.local,
    "network": models.reach,
    "sandbox": machine.sandbox,
    "programs": machine.programs,
    "terminal": here.terminal,
    "disk": machine.disk,
    "sessions": here.sessions,
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
