"""What a model writes about the options of a question."""

import json

import pytest

from refold.values.display import Option, parse_questions


@pytest.mark.parametrize("key", ["about", "description"])
def test_options_of_a_question_keep_what_a_model_writes_about_them(key: str) -> None:
    options = ["Redis", {"label": "SQLite", key: "one file"}]
    arguments = json.dumps({"questions": [{"question": "Which?", "options": options}]})

    (question,) = parse_questions(arguments.encode())

    assert question.options == [Option("Redis"), Option("SQLite", "one file")]
