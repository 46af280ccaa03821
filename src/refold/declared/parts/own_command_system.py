"""A program of the user that takes the system prompt apart."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import COMMAND
from refold.declared.parts.text_calls import instructions


def command(folder: Path, prompt: str) -> ProgramRun:
    """One run of the program, with the system prompt in its command line or in a file."""
    system, file = instructions(), folder / "system.md"
    file.write_text(system, encoding="utf-8")
    arguments = [
        part.replace("{system_file}", str(file)).replace("{system}", system)
        for part in COMMAND
    ]
    return ProgramRun(arguments, prompt)
