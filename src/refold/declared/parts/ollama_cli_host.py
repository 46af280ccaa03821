"""Ollama's command line, with a server on another machine."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import HOST, MODEL


def command(folder: Path, prompt: str) -> ProgramRun:
    """One run of a model. It downloads the model if that is missing."""
    arguments = ["ollama", "run", MODEL, "--nowordwrap", "--hidethinking"]
    return ProgramRun(arguments, prompt, {"OLLAMA_HOST": HOST})
