"""Checks lesson 30: a preset, a project's instructions, and a setting with two values."""

import re

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, expect, quote

_LESSON_ANSWER = ModelReply("Water your tomatoes in the morning.")
LESSON_DEMO = Demo((_LESSON_ANSWER,), words=("When", "do", "I", "water", "tomatoes?"))


def check(workshop: Workshop) -> None:
    """Check the system prompt, the layers of the setting, and the printed sizes."""
    run = workshop.run(_LESSON_ANSWER, words=["When?"])
    expect(
        run.requests,
        f"The model was not asked. Printed: {quote(run.output + run.errors[-300:])}.",
        "The last lines of the program start refold with your question.",
        "The error says which file or setting is wrong.",
        "subprocess.run([*ask, ' '.join(sys.argv[1:])], env=environ)",
    )
    system = str(run.messages(0)[0].get("content"))
    expect(
        "Answer in one sentence." in system,
        "AGENTS.md is in the folder, but the model did not get it.",
        "refold says why on stderr: the folder is not trusted.",
        "An option of the command trusts the folder for this start.",
        'ask = [*REFOLD, "-p", "--model", "lesson/scripted", "--trust"]',
    )
    expect(
        system.startswith("You help in a garden."),
        f"The system prompt should begin with your preset, but begins with {quote(system[:80])}.",
        "The preset is a file PROMPT.md, in a folder with its name, in HOME / 'prompts'.",
        "The environment variable REFOLD_PRESET chooses it.",
        'environ = {**os.environ, "REFOLD_PRESET": "gardener"}',
    )
    expect(
        'instead of "review"' in run.output,
        f"The settings file should say 'review' all the same. Printed: {quote(run.output)}.",
        "`refold config set NAME VALUE` writes a setting into your file.",
        "Run it before the settings are shown.",
        'subprocess.run([*REFOLD, "config", "set", "preset", "review"])',
    )
    sizes = dict(re.findall(r"^(\w+): (\d+)$", run.output, re.MULTILINE))
    expect(
        int(sizes.get("instructions", "0")) > len("Answer in one sentence.")
        and "You help in a garden." not in run.output,
        f"Each part should be printed with its size, as 'instructions: 312'. Printed: {quote(run.output)}.",
        "The event has `parts` beside `system`.",
        "Each part is a list: its name and its size in characters.",
        'for name, size in newest_prompt().parts:\n    print(f"{name}: {size}")',
    )
