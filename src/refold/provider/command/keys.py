"""Which variables hold the keys of command lines: to be hidden, and never written.

Names alone, for every start wants to know them. Who else has keys says `catalog`.
"""

from collections.abc import Mapping

from refold.provider.command.given import ProgramSettings

CLAUDE = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
CODEX = ("OPENAI_API_KEY", "CODEX_API_KEY")
GEMINI = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


def key_names(commands: Mapping[str, ProgramSettings]) -> frozenset[str]:
    """Those of all that are built in, and of `commands`, a person's own."""
    own = (name for command in commands.values() for name in command.keys)
    return frozenset((*CLAUDE, *CODEX, *GEMINI, *own))
