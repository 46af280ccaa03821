"""Checks lesson 31: a skill is read when the agent needs it, and notes outlive the session."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote


def _note(section: str, text: str) -> ModelReply:
    return call("memory_write", section=section, text=text)


_LESSON_REPLIES = (
    call("read_skill", name="tea"),
    _note("preferences", "Answers should be short."),
    _note("preferences", "Spare keys lie under the doormat."),
    _note("person", "I am a nurse."),
    ModelReply("Four minutes, then take the leaves out."),
)
_LESSON_WORDS = ("Answers should be short. I am a nurse. How do I make tea?",)
LESSON_DEMO = Demo(_LESSON_REPLIES, words=_LESSON_WORDS)


def check(workshop: Workshop) -> None:
    """Check the list of skills, the skill, the notes, and the prompt of a second session."""
    run = workshop.run(*_LESSON_REPLIES, words=_LESSON_WORDS)
    system = str(run.messages(0)[0].get("content"))
    row = next((row for row in system.splitlines() if row.startswith("- tea: ")), "")
    expect(
        row,
        "The list of skills that the model gets does not have the skill tea. "
        f"refold wrote: {quote(run.errors)}.",
        "SKILL.md begins with front matter: lines between two lines of three dashes.",
        "It has a name, which is that of the folder, and a description.",
        "---\nname: tea\ndescription: Make tea that is not bitter.\n---",
    )
    results = [str(m.get("content")) for m in run.messages(-1) if m.get("role") == "tool"]
    expect(
        "four minutes" in results[0] and "four minutes" not in system,
        "The model should read the four minutes when it reads the skill, and not before. "
        f"It read {quote(results[0])}, and its list says {quote(row)}.",
        "The description says what the skill is for. The text below says how it is done.",
        "The text begins after the second line of dashes.",
        "---\nname: tea\ndescription: Make tea that is not bitter.\n---\nBoil water. …",
    )
    expect(
        "Remembered" in results[1] and "Not saved" in results[2],
        "A note that the user said should be kept, and one that the user did not say should not. "
        f"The results were {quote(str(results[1:3]))}.",
        "refold compares the words of a note with those of the user.",
        "Your hook is not needed for that. Does it refuse too much?",
        'event["tool_input"].get("section") == "person"',
    )
    expect(
        "Nothing about people is kept here." in results[3],
        f"The note about the nurse should be refused with your reason. The model read {quote(results[3])}.",
        "keep_people_out is a hook before a tool runs, as in lesson 15.",
        "The tool is `memory_write`, and its argument `section` is `person`.",
        'return {"decision": "block", "reason": "Nothing about people is kept here."}',
    )
    again = workshop.run(ModelReply("Hello."), words=["Hello again"])
    system = str(again.messages(0)[0].get("content"))
    expect(
        "Answers should be short." in system and "nurse" not in system,
        "The next session should know that answers are short, and nothing about a nurse.",
        "Notes stand in the system prompt of later sessions.",
        "A note is kept for one project: the program must work in the same directory.",
        'agent = Agent(model="lesson/scripted", hooks=hooks)',
    )
    expect(
        "Answers should be short." in again.output,
        f"The notes should be shown at the end. Printed: {quote(again.output)}.",
        "A user must be able to see what is remembered, and to delete it.",
        "`refold memory show` lists the notes of this directory.",
        'subprocess.run([sys.executable, "-m", "refold", "memory", "show"])',
    )
