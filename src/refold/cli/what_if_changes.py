"""Parses the changes of `refold replay --what-if KIND=VALUE`.

For each change, the module also knows the flags that make it in a new session.
"""

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
    """A change of the system prompt, of settings, and of permission rules by their verdict.

    `variables` and `flags` are the environment variables and flags that make the change on a
    command line.
    """

    system_prompt: str = ""
    settings: Mapping[str, float] = {}
    rules: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def added_to(self, flags: Mapping[str, object]) -> dict[str, object]:
        """Return `flags`, the settings of a start, with the settings of this change added.

        Rules of the change are added to the rules in `flags`.
        """
        result = {**flags, **self.settings}
        for verdict, rule in self.rules:
            key = f"permissions.{verdict}"
            earlier_rules = cast("tuple[object, ...]", result.get(key) or ())
            result[key] = (*earlier_rules, rule)
        return result


NO_CHANGE = WhatIf()


def parse_what_if(texts: Sequence[str]) -> WhatIf:
    """Parse the changes. Raises `BadInput` for an unknown change or an unusable value."""
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
    """Return `change` with the system prompt of the file `name` added. Raises `BadInput`."""
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--what-if system-prompt={name!r}: {reason_of(error)}") from error
    if not text:
        raise BadInput(f"--what-if system-prompt={name!r}: the file is empty")
    flags = (*change.flags, "--system-prompt", f'"$(cat {shlex.quote(name)})"')
    return replace(change, system_prompt=text, flags=flags)


def _with_compaction(change: WhatIf, value: str) -> WhatIf:
    """Return `change`, with compaction added at the share `value` of the context window.

    Raises `BadInput` for an invalid value.
    """
    try:
        share = float(value) if value != "off" else 1.0  # "off" passes the check, too
    except ValueError:
        share = 0.0  # fails the check below
    if not 0 < share <= 1:
        raise BadInput(
            f"--what-if compaction={value!r}: write the share of the context window that is "
            "in use when old messages are summarized, above 0 to 1, or off"
        )
    new = _NO_COMPACTION if value == "off" else {"context.compact_share": share}
    variables = [
        f"REFOLD_{key.replace('.', '__').upper()}={number:g}" for key, number in new.items()
    ]
    return replace(
        change,
        settings={**change.settings, **new},
        variables=(*change.variables, *variables),
    )
