"""Requests that were open when a program was killed are asked again by the next one."""

import subprocess
import sys
from pathlib import Path

import pytest

LONG = 60.0  # seconds; nothing here takes so long unless it hangs

PROGRAM = """
import os, signal, sys
import anyio
from refold import Agent
from refold.testing.providers import ScriptedConversations

write = ("write_file", '{"path": "a.txt", "content": "hello"}')
task = ("task", '{"prompt": "KID writes", "agent": "code"}')
how, there, session = sys.argv[1:]
scripts = {"Go": [[task if how == "child" else write], "Done."], "KID": [[write], "Written."]}

async def approve(question):
    print(question.tool, question.who, flush=True)
    if not session:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

async def main():
    asked = approve if there else None
    agent = Agent(provider=ScriptedConversations(scripts), approve=asked)
    async with agent.session(session) as found:
        print(found.id, flush=True)
        result = await found.run("And then?" if session else "Go.")
        print(result.text)

anyio.run(main)
"""


def run_program(
    directory: Path, how: str, session: str = "", *, there: str = "somebody"
) -> list[str]:
    completed_process = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, there, session],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert "Traceback" not in completed_process.stderr, completed_process.stderr
    return completed_process.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("whose", "who"), [("own", ""), ("child", "child-1 (code)")])
def test_a_pending_request_is_asked_again_and_its_answer_is_applied(
    tmp_path: Path, whose: str, who: str
) -> None:
    session, put = run_program(tmp_path, whose)
    again = run_program(tmp_path, whose, session)

    assert put == f"write_file {who}"
    assert again == [session, put, "Done."]
    assert (tmp_path / "a.txt").read_text() == "hello"


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["own", "child"])
def test_a_pending_request_is_refused_without_an_approve_function(
    tmp_path: Path, whose: str
) -> None:
    session, _ = run_program(tmp_path, whose)
    again = run_program(tmp_path, whose, session, there="")

    assert again == [session, "Done."]
    assert not (tmp_path / "a.txt").exists()
