"""The questions that models are asked about a repository, with the schemas of their answers.

The key of a question contains all of its text. So a changed prompt, schema or content makes it
another question, which is asked again; an equal question is answered from the cache.
"""

from collections.abc import Sequence
from functools import cache

import msgspec
from msgspec import Raw

from refold.rlm.leaf_calls import ModelQuestion
from refold.understanding.statements import MAX_STATEMENTS, FilePiece, number_lines
from refold.values.json_check import Schema

_READ_QUERY = """\
The text is a part of the file {path}, with its lines numbered. State what a developer who changes this code \
has to know: what it is for, what it promises, what it relies on, what it does not do. Write at most {count} \
statements, the most important first. `text` is one sentence, with the names of the code in backticks. `quote` is the \
one line, or the part of a line, that shows it is true: copied word for word, without the line number. \
`lines` is the number of that line. A statement without such a line does not count."""
_MODULE_QUERY = """\
The text lists numbered statements about the parts of the directory {path}/ of a repository. State what the \
directory as a whole is for, how its parts work together, and what holds for all of it. Write at most {count} \
statements, each one sentence in `text`, with the names of the code in backticks. `from` has the numbers of one to \
three statements that it follows from. What does not follow from them does not count."""
_ASK_QUERY = """\
The text lists numbered facts about a repository: lines of its files, and statements about them. Answer the \
question below from these facts alone. The answer is a list of claims. `claim` is one sentence, with the names of the \
code in backticks. `from` has the numbers of the facts that show it. A claim that no fact shows does not count: if \
the facts do not answer the question, the list is empty.

Question: {question}"""


def reading_question(piece: FilePiece) -> ModelQuestion:
    query = _READ_QUERY.format(path=piece.path, count=MAX_STATEMENTS)
    return ModelQuestion(number_lines(piece.text), query, *_schema("statements", "quote"))


def module_question(path: str, lines: Sequence[str]) -> ModelQuestion:
    query = _MODULE_QUERY.format(path=path or ".", count=MAX_STATEMENTS)
    return ModelQuestion(_number_facts(lines), query, *_schema("statements", "from"))


def answering_question(question: str, lines: Sequence[str]) -> ModelQuestion:
    query = _ASK_QUERY.format(question=question)
    return ModelQuestion(_number_facts(lines), query, *_schema("claims", "from"))


def _number_facts(lines: Sequence[str]) -> str:
    return "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, 1))


@cache
def _schema(name: str, evidence: str) -> tuple[Raw, Schema]:
    """Return the schema of an answer, as JSON and as an object that checks values.

    The answer has a list `name`. The items of the list have their `evidence`: a "quote", or
    numbers under "from".
    """
    string = {"type": "string"}
    numbers = {"type": "array", "items": {"type": "integer"}}
    if evidence == "quote":
        fields = {"text": string, "lines": string, "quote": string}
    else:
        text_name = "claim" if name == "claims" else "text"
        fields = {text_name: string, evidence: numbers}
    item = {
        "type": "object", "properties": fields, "required": list(fields), "additionalProperties": False,
    }  # fmt: skip
    document = {
        "type": "object", "properties": {name: {"type": "array", "items": item}},
        "required": [name], "additionalProperties": False,
    }  # fmt: skip
    raw = Raw(msgspec.json.encode(document))
    return raw, Schema(raw)
