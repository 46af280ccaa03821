"""Runs programs that print only their response: `ollama`, or the user's own program."""

from pathlib import Path

from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import COMMAND, HOST, MODEL
from refold.declared.parts.text_calls import instructions


def ollama_command(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run a model with `ollama`, which downloads the model if necessary."""
    return ProgramRun(
        ["ollama", "run", MODEL, "--nowordwrap", "--hidethinking"], prompt
    )


def ollama_command_on_host(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run a model with `ollama` on the host `HOST`."""
    arguments = ["ollama", "run", MODEL, "--nowordwrap", "--hidethinking"]
    return ProgramRun(arguments, prompt, {"OLLAMA_HOST": HOST})


def own_command(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run the user's program, which reads the prompt from its input."""
    return ProgramRun(COMMAND, prompt)


def own_command_with_texts(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run the user's program, with the texts in its placeholders."""
    arguments = COMMAND
    for name, text in (("prompt", prompt), ("system", instructions())):
        file = folder / f"{name}.md"
        file.write_text(text, encoding="utf-8")
        arguments = [part.replace(f"{{{name}_file}}", str(file)) for part in arguments]
        arguments = [part.replace(f"{{{name}}}", text) for part in arguments]
    return ProgramRun(arguments)


def own_command_with_system(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run the user's program, with the system prompt in its placeholder."""
    system, file = instructions(), folder / "system.md"
    file.write_text(system, encoding="utf-8")
    arguments = [
        part.replace("{system_file}", str(file)).replace("{system}", system)
        for part in COMMAND
    ]
    return ProgramRun(arguments, prompt)


def parse_reply(output: str) -> tuple[str, int, int]:
    """Return the whole output as the response, and 0 input and output tokens."""
    return output, 0, 0
