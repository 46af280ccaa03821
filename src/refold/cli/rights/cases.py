"""`refold permissions test FILE`: calls, and the verdict that each has to get.

A case is a table with `expect` ("allow", "ask", "deny", or a list of them), a call (`tool`
and `input`, or `command` for bash), and where they matter `mode`, `allow`, `ask`,
`deny` and `name`. What stands under `defaults` holds for all cases that say nothing else.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.cli.out import write
from refold.cli.rights.verdicts import CallInQuestion, PolicyContext, call_of, ground_of
from refold.config.layers import Origin
from refold.config.rules import rules_of, sourced
from refold.config.settings import Permissions, RuleWithCases, Word
from refold.errors import BadInput, said_by
from refold.journal.fold import View
from refold.permissions.facts import Decision
from refold.values.rights import MODES, Verdict
from refold.views.escape import on_one_line


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expect: Verdict | tuple[Verdict, ...]
    name: str = ""
    tool: str = ""
    input: dict[str, Any] | None = None
    command: str | None = None
    mode: str = ""
    allow: tuple[Word | RuleWithCases, ...] = ()
    ask: tuple[Word | RuleWithCases, ...] = ()
    deny: tuple[Word | RuleWithCases, ...] = ()

    @property
    def call(self) -> CallInQuestion:
        """Raises `BadInput`."""
        if self.command is not None:
            if self.input is not None or self.tool not in ("", "bash"):
                raise BadInput("say either command, or tool and input")
            return call_of("bash", msgspec.json.encode({"command": self.command}).decode())
        if not self.tool:
            raise BadInput("there is no call: say command, or tool and input")
        return call_of(self.tool, msgspec.json.encode(self.input or {}).decode())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return (self.expect,) if isinstance(self.expect, str) else self.expect


class Cases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cases: list[dict[str, Any]]
    defaults: dict[str, Any] = {}


def run(found: Namespace) -> int:
    file = Path(found.file).expanduser()
    ground = ground_of(found)
    cases = list(_cases(file))
    failed = 0
    for number, case in enumerate(cases, 1):
        called = f"case {number}" + (f", {case.name}" if case.name else "")
        call, decision = _judged(case, ground, f"{file}, {called}")
        if decision.verdict not in case.verdicts:
            failed += 1
            wanted = " or ".join(case.verdicts)
            why = f"{decision.reason}"
            line = (
                f"{called}: {call.label}: expected {wanted}, got {decision.verdict}: {why}"
            )
            write(on_one_line(line) + "\n")
    write(f"{len(cases)} cases, {failed} failed\n")
    return 1 if failed else 0


def _judged(
    case: Case, ground: PolicyContext, where: str
) -> tuple[CallInQuestion, Decision]:
    try:
        if case.mode and case.mode not in MODES:
            raise BadInput(f"there is no mode {case.mode!r}; there are {', '.join(MODES)}")
        own = rules_of(_sourced(case, where))
        call = case.call
    except BadInput as error:
        told = str(error)
        raise BadInput(told if told.startswith(where) else f"{where}: {told}") from error
    mode = MODES[case.mode] if case.mode else ground.mode
    judged = replace(ground, rules=(*ground.rules, *own), mode=mode)
    return call, judged.judged(call, View())


def _sourced(case: Case, where: str) -> Permissions:
    origin = Origin(None, where)
    return Permissions(
        allow=sourced(case.allow, origin),
        ask=sourced(case.ask, origin),
        deny=sourced(case.deny, origin),
    )


def _cases(file: Path) -> Iterator[Case]:
    document = _document(file)
    try:
        found = msgspec.convert(
            {"cases": document} if isinstance(document, list) else document, Cases
        )
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{file} holds no cases: {error}; write a list of them, or one under `cases`"
        ) from error
    if not found.cases:
        raise BadInput(f"there are no cases in {file}")
    for number, case in enumerate(found.cases, 1):
        try:
            yield msgspec.convert({**found.defaults, **case}, Case)
        except msgspec.ValidationError as error:
            raise BadInput(f"{file}, case {number}: {error}") from error


def _document(file: Path) -> object:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the cases in {file} cannot be read: {said_by(error)}") from error
    try:
        return _parsed(file.suffix.lower(), text)
    except (ValueError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise BadInput(f"the cases in {file} cannot be read: {told}") from error


def _parsed(kind: str, text: str) -> object:
    if kind == ".toml":
        import tomllib

        return tomllib.loads(text)
    if kind == ".json":
        return msgspec.json.decode(text)
    import yaml  # only who tests rules pays for it

    try:
        return cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
