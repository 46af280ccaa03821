"""What the model asks the person: options by number, or words.

Every question is answered, if only with nothing, and all answers go out together.
"""

from refold.cli.terminal.asking.permission import Answer
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.reading import Key, Reading
from refold.session.requests import Questions
from refold.values.asked import Asking
from refold.views.choices import chosen, hint, question_lines
from refold.views.escape import on_one_line, visible
from refold.views.questions import asker
from refold.views.styled import Line


async def ask(found: Questions, paper: Paper, reading: Reading) -> Answer:
    """Put the questions one by one. Ctrl+C stops the turn."""
    answers: list[str] = []
    for number, asked in enumerate(found.questions, 1):
        paper.gap()
        paper.lines(asker(found.who))
        paper.lines(question_lines(asked, number, len(found.questions), paper.room))
        answer = await _answer(asked, paper, reading)
        if answer is None:
            return Answer(False, "stopped", stop=True)
        answers.append(answer)
        if number < len(found.questions):  # what was said last is shown by whoever sends it
            paper.under([(("good" if answer else "dim", _said(answer)),)])
    return Answer(True, _said(answers[-1]) if answers else "", answers=tuple(answers))


async def _answer(asked: Asking, paper: Paper, reading: Reading) -> str | None:
    prompt: Line = (("dim", f"{hint(asked)}\n"), ("person", "answer › "))
    while True:
        match await reading.brief(prompt):
            case str(words):
                answer = chosen(words, asked)
                if answer is not None:
                    return answer
                paper.say(_wrong(words, asked), "dim")
            case Key.ESC:
                return ""
            case _:
                return None


def _wrong(words: str, asked: Asking) -> str:
    numbers = on_one_line(words.strip())
    many = "" if asked.many else "Only one can be chosen. "
    return f"{many}{numbers} does not fit."


def _said(answer: str) -> str:
    return visible(answer) if answer else "no answer"
