"""Stands in for a model: it answers from the text in a request, and errs at a known rate.

It reads English and writes programs as a good model would, so a comparison with it shows what depends on the way alone: what fits,
what is paid, and how errors of many answers add up. Each answer is wrong with the same probability, however much the stand-in read
and whether it is a text or a program. A real model errs more in a long text, so its flat answers are worse than here.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from random import Random
from zlib import crc32

from bench.long_context import code_questions, needles, rows
from bench.long_context.task import Items, Match, Skill
from refold.provider.port import Delta, Done, Request, TextDelta
from refold.rlm.material import VARIABLE_NAME
from refold.values.messages import Message
from refold.values.usage import Usage

SKILLS: Sequence[Skill] = (*needles.SKILLS, *rows.SKILLS, *code_questions.SKILLS)
_CHARS_PER_TOKEN = 4
_HEAD_LINES = 40  # the first lines of the material, from which it learns the wordings
_WRONG = "unknown"
_ABOUT_MATERIAL = f"The material is in the variable `{VARIABLE_NAME}`"
_HEAD_CODE = f"""\
lines = [line for text in context.values() for line in text.splitlines()]
print("\\n".join(lines[:{_HEAD_LINES}]))
"""
_SEARCH_CODE = """\
import re
lines = [(path, line) for path, text in context.items() for line in text.splitlines()]
counts = [len(words & set(re.findall(r"\\w+", line))) for _, line in lines]
best = [pair for pair, count in zip(lines, counts) if count == max(counts)]
print("\\n".join(f"{path}: {line}" for path, line in best[:40]))
"""


class StandIn:
    """Implements `Provider`. The same request always gets the same answer."""

    def __init__(self, error_rate: float = 0.0, seed: int = 0) -> None:
        self._error_rate, self._seed = error_rate, seed
        self.requests = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.requests += 1
        messages = [stored.message for stored in request.messages]
        size = len(request.system) + sum(len(message.text) for message in messages)
        text = self._reply(request.system, messages)
        yield TextDelta(text)
        tokens = Usage(fresh=size // _CHARS_PER_TOKEN, output=len(text) // _CHARS_PER_TOKEN)
        yield Done(tokens)

    def _reply(self, system: str, messages: Sequence[Message]) -> str:
        text = messages[0].text
        random = Random(
            crc32(f"{self._seed}\0{len(messages)}\0{messages[-1].text}".encode())
        )
        is_wrong = random.random() < self._error_rate
        if _ABOUT_MATERIAL in text:
            return self._act(system, messages, text, is_wrong)
        query = text.rpartition("</material>")[2]
        skill, match = _find_skill(query)
        items = skill.read(match, text)
        return ", ".join(_spoil(items, random) if is_wrong else items) or "none"

    def _act(
        self, system: str, messages: Sequence[Message], text: str, is_wrong: bool
    ) -> str:
        skill, match = _find_skill(text)
        output = messages[-1].text if len(messages) > 1 else ""
        code = _program(skill, match, output, may_ask="- map_lm(" in system)
        if is_wrong and "FINAL(" in code:
            code = f"FINAL({_WRONG!r})"
        return f"```python\n{code}\n```"


def _program(skill: Skill, match: Match, output: str, *, may_ask: bool) -> str:
    """Return the next program. `output` is the output of the last one, or "" at first."""
    if skill.program is not None:
        return skill.program(match)
    if skill.pieces is not None and may_ask:
        return skill.pieces(match)
    if skill.words is not None:
        return skill.words(match, output) if output else _HEAD_CODE
    assert skill.needs is not None
    if output:
        return f"FINAL({', '.join(skill.read(match, output))!r})"
    return f"words = {set(skill.needs(match))!r}\n{_SEARCH_CODE}"


def _find_skill(text: str) -> tuple[Skill, Match]:
    for skill in SKILLS:
        if match := re.search(skill.question, text):
            return skill, match
    raise ValueError(f"no skill of the stand-in answers {text[-200:]!r}")


def _spoil(items: Items, random: Random) -> Items:
    """Return a wrong answer that looks like a right one."""
    if len(items) == 1 and items[0].isdecimal():
        return [str(abs(int(items[0]) + random.choice((-2, -1, 1, 2))))]
    if len(items) > 1:
        place = random.randrange(len(items))
        return [item for number, item in enumerate(items) if number != place]
    return [_WRONG]
