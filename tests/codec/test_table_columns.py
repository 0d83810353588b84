"""What `inspect` says of the columns of a table, also of a stranger's file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import pocketbayes as pb
from pocketbayes.codec.table_columns import column_facts
from pocketbayes.layers import update_description

TABLE = {
    "kind": "table",
    "columns": [
        {"name": "x", "mean": 10**400, "std": 2.0},
        {"name": "age", "mean": 40.123456, "std": 2.0, "fill": 35.5, "empty": True},
        {"name": "day", "mean": 1.0, "std": 2.0, "fill": 18262.0, "date": "day"},
        {"name": "seen", "mean": 1.0, "std": 2.0, "fill": 18262.7, "date": "time", "empty": True},
        {"name": "c", "values": ["a", "b"], "empty": True, "other": True},
        {"name": "long", "values": [f"word{n}" for n in range(50)]},
    ],
    "target": {"name": "y", "mean": 0.5, "std": 3.0},
    "dropped": {"id": "asked"},
}


def test_every_column_is_told():
    assert dict(column_facts(TABLE)) == {
        "x": f"number, mean {10**400}, std 2",
        "age": "number, mean 40.12, std 2, if empty 35.5 and a feature of its own",
        "day": "date: days, year, week, if empty 2020-01-01",
        "seen": "time: days, year, week, hour, if empty 2020-01-01 and a feature of its own",
        "c": "2 words: a, b, (empty), (other)",
        "long": "50 words: word0, word1, word2, word3, word4, word5, word6, word7, word...",
        "id": "left out: asked",
        "y": "target: number, mean 0.5, std 3",
    }
    assert column_facts(TABLE | {"target": {"name": "y"}})[-1] == ("y", "target: class")
    assert column_facts(None) == column_facts({"kind": "image"}) == []


def test_a_file_shows_its_columns_without_driving_the_terminal(tmp_path):
    model = pb.bayesianize_(nn.Linear(3, 1))
    update_description(model, preprocess=TABLE | {"dropped": {"\x1b[31mred": "\x1b[0m"}})
    pb.save(model, tmp_path / "a.pocket")
    text = str(pb.inspect(tmp_path / "a.pocket"))
    assert "\nage " in text
    assert "\x1b" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "values", "mean", "std", "fill", "date", "empty", "other"]),
            inner,
        )
    ),
    max_leaves=8,
)


@given(JSON, JSON, JSON)
def test_nonsense_is_told_as_it_is(columns, target, dropped):
    facts = {"kind": "table", "columns": [columns], "target": target, "dropped": dropped}
    for found in (facts, facts | {"columns": columns}):
        for name, words in column_facts(found):
            assert isinstance(name, str)
            assert isinstance(words, str)


@pytest.mark.parametrize("fill", [1e300, float("nan"), "soon", None])
def test_days_that_are_no_date(fill):
    column = {"name": "d", "mean": 0.0, "std": 1.0, "fill": fill, "date": "day"}
    ((_, words),) = column_facts({"kind": "table", "columns": [column]})
    assert words.endswith(f"if empty {fill}")
