"""A command line as the model: each response is one run of its program."""

import os
import subprocess
import tempfile
from pathlib import Path

from refold.declared.parts.claude_code import command, parse_reply
from refold.declared.parts.context_continue import in_context
from refold.declared.parts.opening_alone import opening
from refold.declared.parts.program_messages import BackendError, Message, Response
from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import TIMEOUT
from refold.declared.parts.text_calls import CALL, message_text, parse_calls, speaker
from refold.declared.parts.tools import stop
from refold.declared.parts.transcript_plain import transcript


def ask(messages: list[Message]) -> Response:
    """The next response of the program."""
    said = [(speaker(each), message_text(each)) for each in in_context(messages)]
    prompt = transcript([("system", opening()), *said])
    # An empty directory: the program must not find a project with settings of its own.
    with tempfile.TemporaryDirectory() as folder:
        output = run(command(Path(folder), prompt), folder)
    text, tokens_in, tokens_out = parse_reply(output)
    if not text.strip():
        raise BackendError(f"the program has answered nothing: {output[-500:]}")
    calls = parse_calls(text)
    shown = CALL.sub("", text).strip()
    return Response(
        Message("assistant", text.strip(), calls), shown, tokens_in, tokens_out
    )


def run(program: ProgramRun, folder: str) -> str:
    """What a program prints. It is ended with all that it has started."""
    name = program.arguments[0]
    try:
        process = subprocess.Popen(
            program.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, **program.variables},
            start_new_session=True,
        )
    except OSError as error:
        raise BackendError(f"{name} cannot be started: {error.strerror}") from error
    try:
        output, errors = process.communicate(program.stdin.encode(), timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{name} took longer than {TIMEOUT:g} s") from error
    finally:
        stop(process)
    if process.returncode:
        reason = (errors or output).decode(errors="replace").strip()[-500:]
        raise BackendError(f"{name} ended with code {process.returncode}: {reason}")
    return output.decode(errors="replace")
