"""Checks lesson 33: an editor shows a session, answers its questions, and adds a command."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_LESSON_REPLIES = (
    call("write_file", path="todo.txt", content="milk\n"),
    call("bash", command="touch shell.txt"),
    ModelReply("Milk is noted."),
)
LESSON_DEMO = Demo(_LESSON_REPLIES, words=("Note milk", "/cost"))


def check(workshop: Workshop) -> None:
    """Check a change, a refused command, the shown text, and two slash commands."""
    run = workshop.run(*_LESSON_REPLIES, words=["Note milk", "/cost"])
    expect(
        workshop.read("todo.txt") == "milk\n",
        f"The change of todo.txt should be allowed, but the file is not there. Printed: {quote(run.output)}.",
        "refold asks with a request session/request_permission. What does `answer` return?",
        "The id of an option whose kind is allow_once, in an outcome.",
        'id_ = next(one["optionId"] for one in params["options"] if one["kind"] == "allow_once")\n'
        'return {"result": {"outcome": {"outcome": "selected", "optionId": id_}}}',
    )
    expect(
        workshop.read("shell.txt") is None,
        "The command ran, but only changes of files should be allowed.",
        "Each question says which call it is about, in toolCall.",
        "Its kind is `edit` for a change of a file. For others, choose the option whose kind is reject_once.",
        'wanted = "allow_once" if params["toolCall"]["kind"] == "edit" else "reject_once"',
    )
    expect(
        "Milk is noted." in run.output,
        f"The text of the answer should be shown. Printed: {quote(run.output)}.",
        "show gets each update. One of the kind agent_message_chunk is a piece of text.",
        "The text is in its content. Print it without a line break.",
        'print(update["content"]["text"], end="", flush=True)',
    )
    expect(
        "[edit] write_file todo.txt" in run.output and "[execute] bash" in run.output,
        f"Each call should be shown: '[edit] write_file todo.txt'. Printed: {quote(run.output)}.",
        "An update tool_call begins a call.",
        "It has a kind and a title.",
        "print(f\"[{update['kind']}] {update['title']}\")",
    )
    expect(
        "36 out" in run.output,
        f"/cost should show what the session cost. Printed: {quote(run.output)}.",
        "What a command shows comes in the same updates as the text of an answer.",
        "main sends each argument as a prompt: did the first one end?",
        'editor.ask("session/prompt", sessionId=session, prompt=prompt)',
    )
    run = workshop.run(ModelReply("Done."), words=["/jot two eggs"])
    asked = str(run.messages(0)[-1].get("content")) if run.requests else run.output
    expect(
        "Add two eggs to todo.txt" in asked,
        f"/jot two eggs should send 'Add two eggs to todo.txt', but what came was {quote(asked)}.",
        "A file in HOME / 'commands' is a command with its name.",
        "Write jot.md there before refold starts. $ARGUMENTS is what stands after the name.",
        '(HOME / "commands" / "jot.md").write_text("Add $ARGUMENTS to todo.txt, on a line of its own.\\n")',
    )
