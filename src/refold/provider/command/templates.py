"""A person's own command lines, from `[commands.NAME]` in their settings.

Whoever describes one says that it has no tools of its own: nobody here can know.
"""

import re
from collections.abc import Mapping

from refold.errors import BadInput
from refold.provider.command.given import ProgramSettings, UsagePlaces
from refold.provider.command.paths import places
from refold.provider.command.spec import (
    OWN,
    SLOTS,
    CommandSpec,
    Counts,
    ProgramOutput,
    Talk,
)
from refold.provider.failures import masked


def own(commands: Mapping[str, ProgramSettings]) -> tuple[CommandSpec, ...]:
    """All that the settings describe. Raises `BadInput` for one that makes no sense."""
    return tuple(from_settings(name, given) for name, given in commands.items())


def from_settings(name: str, given: ProgramSettings) -> CommandSpec:
    where = f"[commands.{name}]"
    _check(where, name, given)
    text = "\n".join((*given.command, *given.environ.values()))
    in_slot = "{prompt}" in text or "{prompt_file}" in text
    stdin = given.stdin if given.stdin is not None else not in_slot
    if not (stdin or in_slot):
        raise BadInput(
            f"{where} would never see the prompt: put {{prompt}} or {{prompt_file}} into "
            "`command`, or leave out stdin = false"
        )
    return CommandSpec(
        name=f"{OWN}/{name.lower()}",
        label=f"{OWN}/{name}",
        argv=given.command,
        stdin=stdin,
        output=_output(where, given),
        tools=given.tools or "on",
        model=given.model,
        needs_model="{model}" in text,
        install=given.install,
        keys=given.keys,
        environ=given.environ,
        idle=given.idle,
        talk=Talk(given.context, given.format, given.window),
    )


def _check(where: str, name: str, given: ProgramSettings) -> None:
    if not re.fullmatch(r"[\w.-]+", name):
        raise BadInput(f"{where}: a name has letters, digits, and - _ . only")
    if not (given.command and given.command[0].strip()):
        raise BadInput(f'{where} needs command = ["prog", …]')
    if not given.tools:
        raise BadInput(
            f'{where} must say tools = "none": that this program runs nothing and changes '
            "nothing by itself. One that does would need the read-only sandbox, which is "
            "not there yet"
        )
    if given.window < 1:
        raise BadInput(f"{where}: window = {given.window} is no number of messages")
    if given.idle < 0:
        raise BadInput(f"{where}: idle = {given.idle:g} is no time")
    if _unknown(given.command[0]) or "{" in given.command[0]:
        raise BadInput(f"{where}: the program itself, {given.command[0]!r}, can be no slot")
    for argument in (*given.command, *given.environ.values()):
        if unknown := _unknown(argument):
            raise BadInput(
                f"{where}: there is no slot {{{unknown}}}; there are "
                + ", ".join(f"{{{slot}}}" for slot in sorted(SLOTS))
            )
        if masked(argument, "") != argument:
            raise BadInput(
                f"{where}: a key must not stand in a command line, where others can read it: "
                "put it into a variable, and name that in `keys`"
            )


def _unknown(argument: str) -> str:
    found: list[str] = re.findall(r"\{([a-z_]+)\}", argument)
    return next((name for name in found if name not in SLOTS), "")


def _output(where: str, given: ProgramSettings) -> ProgramOutput:
    named = (given.text, given.whole, given.thinking, given.error, given.end, given.cost)
    if given.output == "text":
        if any(named) or given.usage != UsagePlaces():
            raise BadInput(f'{where}: places are for output = "jsonl", and it says "text"')
        return ProgramOutput()
    if not (given.text or given.whole):
        raise BadInput(
            f'{where}: where is the answer in a line of JSON? Say text = "place" or '
            'whole = "place"'
        )
    usage = given.usage
    return ProgramOutput(
        "jsonl",
        text=places(given.text),
        whole=places(given.whole),
        thinking=places(given.thinking),
        error=places(given.error),
        end=places(given.end),
        cost=places(given.cost),
        counts=Counts(
            places(usage.input),
            places(usage.cached),
            places(usage.cache_write),
            places(usage.output),
            places(usage.reasoning),
            inclusive=usage.input_has_cached,
        ),
    )
