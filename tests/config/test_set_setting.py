"""Changing one setting in a user's file leaves everything else unchanged."""

import tomllib
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.config.toml_edit import set_key, unset_key
from refold.config.toml_text import as_toml, lines_of
from refold.errors import BadInput

WRITTEN = '''# mine
model = "a/b"   # the good one
[limits]  # bounds
steps = 3
wrap_up_steps = [
  1, # x ]
  2,
]
text = """a ] # "
b""" # c

# providers of mine
[providers."x.y"]
quirks = {a = true, b = "c}"}
'''
names = st.text(alphabet="ab._ \"'", min_size=1, max_size=3)
values = st.one_of(
    st.integers(-9, 9), st.booleans(), st.text(max_size=4), st.lists(st.text(max_size=3), max_size=2)
)  # fmt: skip
documents = st.recursive(
    st.dictionaries(names, values, max_size=3),
    lambda inner: st.dictionaries(names, inner | values, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("path", "value", "was", "now"),
    [
        (("model",), "x", 'model = "a/b"   #', 'model = "x"   #'),
        (("limits", "steps"), 5, "steps = 3\n", "steps = 5\n"),
        (("limits", "wrap_up_steps"), 1, "[\n  1, # x ]\n  2,\n]", "1"),
        (("limits", "text"), "é\n", '"""a ] # "\nb""" #', '"é\\n" #'),
        (("limits", "new"), True, "# c\n", "# c\nnew = true\n"),
        (("limits", "in", "x"), 1, "# c\n", "# c\nin.x = 1\n"),
        (("effort",), "high", "one\n", 'one\neffort = "high"\n'),
        (("providers", "x.y", "quirks", "b"), "d", '"c}"', '"d"'),
        (("providers", "x.y", "window"), 9, '"c}"}\n', '"c}"}\nwindow = 9\n'),
        (("http", "idle_seconds"), 2.5, '"c}"}\n', '"c}"}\n\n[http]\nidle_seconds = 2.5\n'),
        (("prices", "a/b", "input"), 1.0, '"c}"}\n', '"c}"}\n\n[prices."a/b"]\ninput = 1.0\n'),
    ],
)  # fmt: skip
def test_setting_a_value_preserves_comments_and_order(
    path: tuple[str, ...], value: object, was: str, now: str
) -> None:
    assert set_key(WRITTEN, path, value) == WRITTEN.replace(was, now, 1)


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ("", ("effort",), "effort = 1\n"),
        ("", ("a", "b"), "[a]\nb = 1\n"),
        ("x = 2", ("y",), "x = 2\ny = 1\n"),
        ("[t]\nx = 2", ("t", "y"), "[t]\nx = 2\ny = 1\n"),
        ("[t]\nx = 2\n", ("y",), "y = 1\n[t]\nx = 2\n"),
        ("# of all\n\n# of t\n[t]\n", ("y",), "# of all\ny = 1\n\n# of t\n[t]\n"),
        ("# of t\n[t]\n", ("y",), "y = 1\n# of t\n[t]\n"),
        ("# of all\n", ("y",), "# of all\ny = 1\n"),
        ("a.b = 2 # c\n[t]\n", ("a", "c"), "a.b = 2 # c\na.c = 1\n[t]\n"),
        ("a = {b = 2}\n", ("a", "c"), "a = {b = 2, c = 1}\n"),
        ("[t]\n[t.u]\nx = 1\n", ("t", "x"), "[t]\nx = 1\n[t.u]\nx = 1\n"),
        ("[t]\r\n# of u\r\n[u]\r\n", ("t", "x"), "[t]\r\nx = 1\r\n# of u\r\n[u]\r\n"),
        ("[t.u]\ny = 2\n", ("t", "x"), "[t]\nx = 1\n\n[t.u]\ny = 2\n"),
        ("[[r]] # c\na = 2\n", ("t", "x"), "[[r]] # c\na = 2\n\n[t]\nx = 1\n"),
        ("'t'.\"u\" = 'v' # c\n", ("t", "u"), "'t'.\"u\" = 1 # c\n"),
    ],
)
def test_a_new_setting_is_added_to_its_table(
    text: str, path: tuple[str, ...], after: str
) -> None:
    assert set_key(text, path, 1) == after


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        (("model",), 'model = "a/b"   # the good one\n'),
        (("limits", "wrap_up_steps"), "wrap_up_steps = [\n  1, # x ]\n  2,\n]\n"),
        (("providers", "x.y", "quirks"), 'quirks = {a = true, b = "c}"}\n'),
        (("limits", "nothing"), ""),
        (("limits",), ""),
    ],
)
def test_unsetting_a_setting_removes_its_line(path: tuple[str, ...], gone: str) -> None:
    if path == ("limits",):  # a table is not a setting
        with pytest.raises(BadInput, match="edited by hand"):
            unset_key(WRITTEN, path)
    else:
        assert unset_key(WRITTEN, path) == WRITTEN.replace(gone, "", 1)


def test_comments_stay_when_the_last_key_of_a_table_is_removed() -> None:
    text = "[t] # mine\nx = 1\n# note\n[u]\n[t.v]\nq = 1\n"

    assert unset_key(text, ("t", "x")) == text.replace("x = 1\n", "")


def test_unsetting_an_empty_table_removes_it() -> None:
    assert unset_key("[a]\n[b]\nx = 1\n", ("a",)) == "[b]\nx = 1\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a = 1\n", ("a", "b")),
        ("[[a.b]]\nrule = 1\n", ("a", "b")),
        ("[a]\nb.c = 1\n[a.b.d]\n", ("a", "b")),
    ],
)
def test_setting_a_value_that_cannot_be_changed_by_line_is_an_error(
    text: str, path: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput, match="refold config edit"):
        set_key(text, path, 1)


@given(documents, st.lists(names, min_size=1, max_size=3), values)
def test_any_value_that_is_set_is_read_back_and_no_other_value_changes(
    document: dict[str, object], path: list[str], value: object
) -> None:
    text = as_toml(document)
    try:
        after = set_key(text, tuple(path), value)
    except BadInput:
        return

    wanted = tomllib.loads(text)
    inside = wanted
    for name in path[:-1]:
        inside = inside.setdefault(name, {})
    inside[path[-1]] = value
    assert tomllib.loads(after) == wanted


def test_lines_of_a_document_maps_each_key_to_its_line() -> None:
    assert lines_of(WRITTEN) == {
        ("model",): 2, ("limits",): 3, ("limits", "steps"): 4, ("limits", "wrap_up_steps"): 5,
        ("limits", "text"): 9, ("providers",): 13, ("providers", "x.y"): 13,
        ("providers", "x.y", "quirks"): 14,
    }  # fmt: skip


@given(documents)
def test_lines_of_any_document_include_every_key(document: dict[str, object]) -> None:
    text = as_toml(document)

    read: dict[str, object] = tomllib.loads(text)
    assert set(leaves(read)) <= set(lines_of(text))


def leaves(
    document: dict[str, object], before: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    texts = list[tuple[str, ...]]()
    for name, value in document.items():
        if isinstance(value, dict):
            texts += leaves(cast("dict[str, object]", value), (*before, name))
        else:
            texts.append((*before, name))
    return texts
