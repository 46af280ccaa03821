"""A program of the user that reads the prompt from its standard input."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import COMMAND


def command(folder: Path, prompt: str) -> ProgramRun:
    """One run of the program."""
    return ProgramRun(COMMAND, prompt)
