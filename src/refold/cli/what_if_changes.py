"""The changes of `refold replay --what-if KIND=VALUE`, and the flags that make the same live."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, reason_of

_RULE_KINDS = ("allow", "ask", "deny")
_KINDS_TEXT = "system-prompt=FILE, compaction=SHARE (0 to 1, or off), allow=RULE, ask=RULE or deny=RULE"
_NO_COMPACTION: Mapping[str, float] = {
    "context.compact_share": 1.0,
    "context.prune_share": 1.0,
}


class WhatIf(Struct, frozen=True):
    """What is different: the system text, settings, and rules by their verdict.

    `variables` and `flags` say the same on the command line of a live continuation.
    """

    system_prompt: str = ""
    settings: Mapping[str, float] = {}
    rules: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def added_to(self, flags: Mapping[str, object]) -> dict[str, object]:
        """The settings on top of those of a start. Rules add up."""
        result = {**flags, **self.settings}
        for verdict, rule in self.rules:
            key = f"permissions.{verdict}"
            result[key] = (*cast("tuple[object, ...]", result.get(key) or ()), rule)
        return result


NO_CHANGE = WhatIf()


def parse_what_if(texts: Sequence[str]) -> WhatIf:
    """Raises `BadInput` for a change that is not known, or a value that cannot be used."""
    change = NO_CHANGE
    for text in texts:
        kind, _, value = text.partition("=")
        if kind not in ("system-prompt", "compaction", *_RULE_KINDS):
            raise BadInput(f"--what-if {text!r} is not a known change: write {_KINDS_TEXT}")
        if not value.strip():
            raise BadInput(f"--what-if {text!r} has no value: write {_KINDS_TEXT}")
        if kind == "system-prompt":
            change = _with_prompt(change, value)
        elif kind == "compaction":
            change = _with_compaction(change, value)
        else:
            flags = (*change.flags, f"--{kind}", shlex.quote(value))
            change = replace(change, rules=(*change.rules, (kind, value)), flags=flags)
    return change


def _with_prompt(change: WhatIf, name: str) -> WhatIf:
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--what-if system-prompt={name!r}: {reason_of(error)}") from error
    if not text:
        raise BadInput(f"--what-if system-prompt={name!r}: the file is empty")
    flags = (*change.flags, "--system-prompt", f'"$(cat {shlex.quote(name)})"')
    return replace(change, system_prompt=text, flags=flags)


def _with_compaction(change: WhatIf, value: str) -> WhatIf:
    try:
        share = float(value) if value != "off" else 1.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadInput(
            f"--what-if compaction={value!r}: write the share of the context window that is "
            "in use when old messages are summarized, above 0 to 1, or off"
        )
    new = _NO_COMPACTION if value == "off" else {"context.compact_share": share}
    names = [key.replace(".", "__").upper() for key in new]
    variables = [f"REFOLD_{n}={v:g}" for n, v in zip(names, new.values(), strict=True)]
    return replace(
        change,
        settings={**change.settings, **new},
        variables=(*change.variables, *variables),
    )
