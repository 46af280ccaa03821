"""A program of the user that finds the prompt in its command line, or in a file."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import COMMAND
from refold.declared.parts.text_calls import instructions


def command(folder: Path, prompt: str) -> ProgramRun:
    """One run of the program, with the texts that its command line has a place for."""
    arguments = COMMAND
    for name, text in (("prompt", prompt), ("system", instructions())):
        file = folder / f"{name}.md"
        file.write_text(text, encoding="utf-8")
        arguments = [part.replace(f"{{{name}_file}}", str(file)) for part in arguments]
        arguments = [part.replace(f"{{{name}}}", text) for part in arguments]
    return ProgramRun(arguments)
