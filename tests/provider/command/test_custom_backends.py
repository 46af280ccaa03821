"""The user's own command lines, from the settings."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.errors import BadInput
from refold.provider.command.backends import connect, parse_name
from refold.provider.command.spec import (
    SLOT_NAMES,
    CommandSpec,
    from_settings,
    parse_own_commands,
)
from refold.provider.port import Done, TextDelta
from refold.provider.settings import ProgramSettings, UsagePlaces
from refold.values.usage import Usage
from tests.documents import read_pages
from tests.provider.command.fakes import ask, lines, request, words, write_shell_program

PAGE = read_pages("guides/backends", "reference/backends")


def settings(text: str) -> tuple[CommandSpec, ...]:
    data: Any = tomllib.loads(text)
    return parse_own_commands(msgspec.convert(data["commands"], dict[str, ProgramSettings]))


def own_command(**fields: Any) -> CommandSpec:
    return from_settings(
        "mine", ProgramSettings(**{"command": ("prog",), "tools": "none", **fields})
    )


def test_one_line_of_settings_is_enough_for_a_program_that_reads_and_prints_text(
    tmp_path: Path,
) -> None:
    write_shell_program(tmp_path, 'echo "$1:"; tail -n 1', "llm")
    known = settings(
        """
        [commands.mine]
        command = ["llm", "{model}"]
        tools = "none"
        """
    )

    name = parse_name("command/mine/gpt/4", known)

    assert name is not None
    path = f"{tmp_path}:{os.environ['PATH']}"
    provider = connect(*name, environ={**os.environ, "PATH": path})
    assert words(ask(provider, request("Hi"))) == "gpt/4:\nUser: Hi"


def test_json_lines_output_is_parsed_with_the_json_paths_of_the_settings(
    tmp_path: Path,
) -> None:
    program = write_shell_program(
        tmp_path,
        lines(
            {"kind": "text", "text": "Hel"},
            {"kind": "text", "text": "lo"},
            {"kind": "end", "usd": 0.5, "used": {"in": 9, "hit": 4, "out": 2}},
        ),
    )
    (spec,) = settings(
        f"""
        [commands.mine]
        command = ["{program}"]
        tools = "none"
        output = "jsonl"
        text = "text if kind=text"
        end = "kind if kind=end"
        cost = "usd"
        usage = {{ input = "used.in", cached = "used.hit", output = "used.out" }}
        """
    )

    assert ask(connect(spec, "", environ=os.environ)) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Done(Usage(fresh=5, cached=4, output=2), cost=0.5, by_agent=True),
    ]


def test_reading_settings_does_not_import_the_providers() -> None:
    code = """
import sys
import refold.config.settings
light = {"refold.provider", "refold.provider.settings", "refold.provider.command",
         "refold.provider.settings"}
print(sorted(name for name in {*sys.modules} - light if name.startswith("refold.prov")))
"""

    completed_process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert completed_process.stdout == "[]\n"


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_of_the_documentation_is_valid(block: str) -> None:
    specs = settings(block)

    assert all(spec.tools == "none" for spec in specs)


def test_every_key_and_slot_is_documented() -> None:
    keys = [*ProgramSettings.__struct_fields__, *UsagePlaces.__struct_fields__]
    slots = [f"`{{{slot}}}`" for slot in SLOT_NAMES]

    assert [key for key in keys if f"`{key}`" not in PAGE and f"{key} =" not in PAGE] == []
    assert [slot for slot in slots if slot not in PAGE] == []


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"command": ()}, r'\[commands.mine\] needs command = \["prog", …\]'),
        ({"tools": ""}, r'must say tools = "none": that this program runs nothing'),
        ({"stdin": False}, "would never see the prompt: put {prompt} or {prompt_file}"),
        (
            {"command": ("p", "{nothing}")},
            "there is no placeholder {nothing}; there are {effort}, ",
        ),
        (
            {"command": ("{model}",)},
            "the program itself, '{model}', cannot be a placeholder",
        ),
        ({"command": ("p", "-k", "sk-" + "a1" * 9)}, "a key must not stand in a command"),
        ({"environ": {"K": "sk-" + "a1" * 9}}, "a key must not stand in a command line"),
        ({"output": "jsonl"}, "where is the answer in a line of JSON"),
        ({"text": "a"}, 'places are for output = "jsonl", and it says "text"'),
        ({"output": "jsonl", "text": "a b"}, "'a b' is not a path"),
        ({"idle": -1.0}, "idle = -1 is not a time"),
        ({"window": 0}, "window = 0 is not a number of messages"),
    ],
)
def test_invalid_command_settings_are_refused_with_what_to_change(
    value: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence.replace("{", r"\{").replace("}", r"\}")):
        own_command(**value)


def test_command_name_with_invalid_characters_is_refused() -> None:
    with pytest.raises(BadInput, match="a name has letters, digits"):
        from_settings("a/b", ProgramSettings(command=("p",), tools="none"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "command/mina",
            "there is no command line 'command/mina'; did you mean command/mine",
        ),
        ("command/mine", "'command/mine' names no model: write command/mine/MODEL"),
    ],
)
def test_unknown_command_name_or_missing_model_is_refused_with_the_reason(
    name: str, sentence: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        parse_name(name, (own_command(command=("prog", "{model}")),))


def test_command_model_without_command_settings_is_refused_with_an_example() -> None:
    with pytest.raises(BadInput, match=r'\[commands.x\] command = \["prog", …\]'):
        parse_name("command/x")


def test_default_model_of_the_command_settings_is_used_when_none_is_named() -> None:
    spec = own_command(command=("prog", "{model}"), model="small")

    assert parse_name("command/MINE", (spec,)) == (spec, "small")
