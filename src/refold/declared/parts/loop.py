"""The agent loop of a generated program: asks the model, runs tools, answers the user."""

import argparse
import sys
from pathlib import Path

from refold.declared.parts.messages import (
    BackendError,
    Call,
    CallResult,
    Message,
)
from refold.declared.parts.openai_chat import ask
from refold.declared.parts.settings import CONFIRM, MAX_STEPS, MODEL, NAME, SHOW_TOKENS
from refold.declared.parts.terminal import say, show_state
from refold.declared.parts.tools import TOOLS, ToolError, check_call


def run_turn(messages: list[Message]) -> None:
    """Ask the model and run the tools that it calls, until it calls none."""
    for _ in range(MAX_STEPS):
        with show_state(f"asking {MODEL or NAME}"):
            answer = ask(messages)
        messages.append(answer.message)
        if answer.shown:
            say(f"\n{answer.shown}\n")
        if SHOW_TOKENS and answer.tokens_out:
            say(f"[tokens: {answer.tokens_in:,} in, {answer.tokens_out:,} out]")
        if not answer.message.calls:
            return
        run_calls(messages, answer.message.calls)
    say(
        f"[stopped after {MAX_STEPS} responses of the model; write a message to continue]"
    )


def run_calls(messages: list[Message], calls: list[Call]) -> None:
    """Run the calls of a response in order, and append a message with their results."""
    results: list[CallResult] = []
    messages.append(Message("tool", results=results))
    try:
        for call in calls:
            results.append(run_call(call))
    finally:
        # After Ctrl+C: an API refuses a conversation with a call that has no result.
        for call in calls[len(results) :]:  # the calls that have not ended
            results.append(CallResult(call, "The user stopped this call.", failed=True))


def run_call(call: Call) -> CallResult:
    """Run a call, and return its result. An invalid or refused call fails."""
    mistake = call.mistake or check_call(call.name, call.arguments)
    if mistake:
        say(f"[{call.name} failed: {mistake}]")
        return CallResult(call, mistake, failed=True)
    first_line = str(next(iter(call.arguments.values()), "")).partition("\n")[0]
    say(f"[{call.name} {first_line[:100]}]")
    if call.name in CONFIRM and not confirm(call):
        return CallResult(call, "The user refused this call.", failed=True)
    try:
        return CallResult(call, TOOLS[call.name](**call.arguments))
    except (ToolError, OSError, UnicodeError) as error:
        say(f"[failed: {error}]")
        return CallResult(call, str(error), failed=True)


def confirm(call: Call) -> bool:
    """Show a call in full, and return whether the user lets it run."""
    for key, value in call.arguments.items():
        say(f"  {key}: {value}")
    try:
        return input(f"Run {call.name}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False  # there is no user to ask


def respond(messages: list[Message], text: str) -> int:
    """Answer a message of the user. Return 0, or the exit code for an error."""
    messages.append(Message("user", text))
    try:
        run_turn(messages)
    except BackendError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("\n[stopped]")
        return 130
    return 0


def converse() -> None:
    """Read messages of the user and answer them, until `exit` or Ctrl+D."""
    say(f"{NAME} works in {Path.cwd()}.")
    say("Ctrl+C stops a response; `clear` starts again; `exit` or Ctrl+D ends.")
    messages: list[Message] = []
    while True:
        try:
            text = input("\nYou: ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text in ("exit", "quit"):
            return
        if text == "clear":
            messages.clear()
        elif text:
            respond(messages, text)


def main() -> int:
    """Do the task of the command line, or converse without one. Return the exit code."""
    parser = argparse.ArgumentParser(prog=NAME)
    parser.add_argument(
        "task", nargs="*", help="what to do; without one, a conversation"
    )
    parser.add_argument("--yes", action="store_true", help="run tools without asking")
    options = parser.parse_args()
    if options.yes:
        CONFIRM.clear()
    if options.task:
        return respond([], " ".join(options.task))
    converse()
    return 0


if __name__ == "__main__":
    sys.exit(main())
