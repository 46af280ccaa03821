"""Ollama's command line."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import MODEL


def command(folder: Path, prompt: str) -> ProgramRun:
    """One run of a model. It downloads the model if that is missing."""
    return ProgramRun(
        ["ollama", "run", MODEL, "--nowordwrap", "--hidethinking"], prompt
    )
