"""Which faults in JSON are repaired, and which never are."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.values.json_repair import repair_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
        ('{"a": "tab\there"}', {"a": "tab\there"}),
        ('{"a": [1, 2,], "b": {"c": 1 , },}', {"a": [1, 2], "b": {"c": 1}}),
        ('{"a": ",}"}', {"a": ",}"}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('"{\\"a\\": 1,}"', {"a": 1}),
        ('""', {}),
        ("null", {}),
        ('{}{"a": 1}', {"a": 1}),
        ('{"a": 1}{"a": 1}', {"a": 1}),
        ('{"a": "}{"}', {"a": "}{"}),
    ],
)
def test_json_repair_restores_the_intended_value(written: str, meant: object) -> None:
    repaired = repair_object(written)

    assert repaired is not None
    assert msgspec.json.decode(repaired) == meant
    assert b"\n" not in repaired


@pytest.mark.parametrize(
    "written",
    [
        '{"a": "cut', '{"a": 1', '{"a": [1, 2', '{"a": 1}}', "{'a': 1}", "{,}", '{"a":,}',
        '{"a": 1,,}', "[1]", '"text"', '"\\"{}\\""', '{"a": 1} and more', "3", "{a: 1}",
        '{"a": 1}{"a": 2}', '{"a": 1}{}',
    ],
)  # fmt: skip
def test_json_repair_does_not_guess(written: str) -> None:
    assert repair_object(written) is None


def test_json_repair_keeps_duplicate_keys() -> None:
    assert repair_object('{"a": 1, "a": 2,}') == b'{"a":1,"a":2}'


@given(OBJECTS)
def test_json_repair_does_not_change_valid_objects(value: dict[str, object]) -> None:
    for text in (json.dumps(value), json.dumps(json.dumps(value))):
        repaired = repair_object(text)
        assert repaired is not None
        assert json.loads(repaired) == value


@given(OBJECTS.filter(bool), st.data())
def test_json_repair_does_not_complete_truncated_objects(
    value: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))

    assert repair_object(text[:cut]) is None
