"""Tables as they are found: empty cells, dates, truths, words never seen, columns left out."""

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from table_files import write_csv, write_parquet
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset, table_from_file, with_validation
from pocketbayes.data.dates import date_parts, days_of

NUMBERS = [4.0, 1.0, 2.0, 8.0, 5.0, 7.0, 3.0, 6.0, 9.0, 11.0]


def both(folder, columns):
    """The same table in both formats; None is an empty cell."""
    return {
        "csv": write_csv(folder / "table.csv", columns),
        "parquet": write_parquet(folder / "table.parquet", columns),
    }


def opened(kind, file, split="train", **options):
    """All rows of one file, as training and test set."""
    return open_dataset(kind, split, file=file, test_file=file, **options)


def test_empty_numbers_become_the_median_and_a_feature(tmp_path):
    x = [None, 1.0, 2.0, 3.0, 100.0, None, 4.0, 5.0, 6.0, 7.0]
    for kind, file in both(tmp_path, {"x": x, "z": NUMBERS, "y": NUMBERS}).items():
        data = opened(kind, file)
        assert data.feature_names == ("x", "x is empty", "z")
        known = np.array([value for value in x if value is not None])
        column = data.preprocess["columns"][0]
        assert (column.pop("least"), column.pop("most")) == (1.0, 100.0)
        assert column == {"name": "x", "mean": pytest.approx(known.mean()), "fill": 4.5,
                          "std": pytest.approx(known.std()), "empty": True}  # fmt: skip
        inputs, _ = data.batch(range(10))
        assert inputs[0].tolist()[:2] == pytest.approx([(4.5 - known.mean()) / known.std(), 1])
        assert inputs[:, 1].tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
        assert data.unfamiliar == ()


@pytest.mark.parametrize("word", ["", "?", "NA", "n/a", "#N/A", "NaN", "null", "None", "<NA>"])
def test_spellings_of_nothing(tmp_path, word):
    columns = {"x": [word, *NUMBERS[1:]], "c": [word, *"ababababb"], "y": NUMBERS}
    data = opened("csv", write_csv(tmp_path / "a.csv", columns))
    assert torch.isnan(data.features[0, 0])
    # as a word of a category, NA may be Namibia and none may be a kind
    is_word = word.lower() in ("na", "none")
    assert ("c=(empty)" in data.feature_names) != is_word


def test_scales_and_medians_are_those_of_the_training_part(tmp_path):
    rng = np.random.default_rng(0)
    x = [None if rng.random() < 0.2 else float(v) for v in rng.lognormal(size=200)]
    file = write_csv(tmp_path / "a.csv", {"x": x, "y": rng.normal(size=200).tolist()})
    train, validation = with_validation(open_dataset("csv", "train", file=file))
    known = train.features[:, 0][~train.features[:, 0].isnan()]
    column = train.preprocess["columns"][0]
    assert column["fill"] == pytest.approx(float(known.quantile(0.5)))
    assert column["mean"] == pytest.approx(float(known.mean()))
    assert validation.preprocess == train.preprocess
    assert len(known) < len(train)
    test = open_dataset("csv", "test", file=file, like=train.preprocess)
    inputs, _ = test.batch(range(len(test)))
    assert torch.isfinite(inputs).all()
    filled = inputs[:, 0][inputs[:, 1] == 1]
    assert filled.tolist() == pytest.approx(
        [(column["fill"] - column["mean"]) / column["std"]] * len(filled), rel=1e-5
    )


def test_cells_that_are_empty_only_in_prediction_are_told(tmp_path):
    when = [f"2020-01-{day:02}" for day in range(1, 11)]
    columns = {"x": NUMBERS, "c": [*"ababababab"], "d": when, "y": NUMBERS}
    data = opened("csv", write_csv(tmp_path / "a.csv", columns))
    empty = {"x": [None, 1.0], "c": [None, "a"], "d": [None, "2020-01-05"]}
    for file in both(tmp_path, empty).values():
        inputs, _, unfamiliar = table_from_file(file, data.preprocess)
        assert unfamiliar == ("x is empty, c is empty, d is empty", "")
        features = dict(zip(data.feature_names, inputs[0].tolist(), strict=True))
        assert features["x"] == pytest.approx((5.5 - np.mean(NUMBERS)) / np.std(NUMBERS))
        assert [features[f"c={word}"] for word in ("a", "b", "(other)")] == [0, 0, 1]
        assert features["d year sin"] == features["d week cos"] == 0


def test_words_empty_rare_and_never_seen(tmp_path):
    colours = ["red", "blue", None, "red", "blue", "red", "jade", "red", None, "teal"]
    for kind, file in both(tmp_path, {"c": colours, "y": NUMBERS}).items():
        data = opened(kind, file)
        assert data.feature_names == ("c=blue", "c=red", "c=(empty)", "c=(other)")
        places = {"blue": 0, "red": 1, None: 2, "jade": 3, "teal": 3}
        assert data.features.argmax(1).tolist() == [places[colour] for colour in colours]
        assert data.features.sum(1).tolist() == [1] * 10
    for file in both(tmp_path, {"c": ["mauve", "red", "", "Red", "x" * 99]}).values():
        inputs, _, unfamiliar = table_from_file(file, data.preprocess)
        assert inputs.argmax(1).tolist() == [3, 1, 2, 3, 3]
        assert unfamiliar == ("c=mauve", "", "", "c=Red", f"c={'x' * 40}...")


def test_unfamiliar_rows_of_a_test_set_keep_their_place(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.choice(["a", "b"], 100).tolist()
    columns = {"c": words, "y": rng.normal(size=100).tolist()}
    like = open_dataset("csv", "train", file=write_csv(tmp_path / "a.csv", columns)).preprocess
    changed = {"c": [f"new{n}" if n % 2 else c for n, c in enumerate(words)], "y": columns["y"]}
    file = write_csv(tmp_path / "b.csv", changed)
    test = open_dataset("csv", "test", file=file, like=like)
    position = {value: n for n, value in enumerate(columns["y"])}
    for words, target in zip(test.unfamiliar, test.targets.tolist(), strict=True):
        n = position[target]
        assert words == (f"c=new{n}" if n % 2 else "")


def test_of_many_words_the_most_frequent_have_features(tmp_path):
    words = [f"w{n:03}" for n in range(120) for _ in range(3 if n >= 60 else 2)]
    columns = {"c": words, "y": np.linspace(0, 1, len(words)).tolist()}
    data = opened("csv", write_csv(tmp_path / "a.csv", columns))
    assert data.preprocess["columns"][0]["values"] == [
        f"w{n:03}" for n in range(120) if n < 40 or n >= 60
    ]
    assert "20 of 120 words" in data.notes[0]


def test_truths_have_one_spelling(tmp_path):
    spellings = ["yes", "No", "YES", "no", None, "Yes", "no", "yes", "no", "NO"]
    file = write_csv(tmp_path / "a.csv", {"t": spellings, "y": NUMBERS})
    assert opened("csv", file).feature_names == ("t=no", "t=yes", "t=(empty)", "t=(other)")
    for kind, file in both(tmp_path, {"x": NUMBERS, "t": [True, False] * 5}).items():
        data = opened(kind, file)
        assert data.classes == ("False", "True")
        assert data.targets.tolist() == [1, 0] * 5
        other = write_csv(tmp_path / "b.csv", {"x": [1, 2, 3], "t": ["no", "TRUE", "true"]})
        again = opened("csv", other, "test", like=data.preprocess, classes=data.classes)
        assert again.targets.tolist() == [0, 1, 1]
    mixed = ["TRUE", "false", "yes", "no", "True", "False", "no", "yes", "no", "true"]
    data = opened("csv", write_csv(tmp_path / "c.csv", {"x": NUMBERS, "t": mixed}))
    assert data.classes == ("false", "true")
    assert data.targets.tolist() == [1, 0, 1, 0, 1, 0, 0, 1, 0, 1]


def test_dates_and_times_in_both_formats(tmp_path):
    days = [dt.date(2020, 1, 1) + dt.timedelta(37 * n) for n in range(9)] + [None]
    times = [dt.datetime(2021, 3, 1, n, 30) for n in range(10)]
    columns = {"day": days, "time": times, "y": NUMBERS}
    sets = [opened(kind, file) for kind, file in both(tmp_path, columns).items()]
    assert sets[0].preprocess == sets[1].preprocess
    torch.testing.assert_close(*(data.features for data in sets), equal_nan=True)
    assert sets[0].feature_names == (
        "day", "day year sin", "day year cos", "day week sin", "day week cos", "day is empty",
        "time", "time year sin", "time year cos", "time week sin", "time week cos",
        "time day sin", "time day cos",
    )  # fmt: skip
    inputs, _ = sets[0].batch(range(10))
    assert inputs[9, 1:6].tolist() == [0, 0, 0, 0, 1]
    assert torch.isfinite(inputs).all()
    aware = pa.array([dt.datetime(2021, 3, 1, 2, 30)], pa.timestamp("ns", "America/New_York"))
    table = {"time": aware, "day": pa.array([days[1]], pa.date64())}
    write_parquet(tmp_path / "b.parquet", table)
    (tmp_path / "b.csv").write_text("time,day\n2021-03-01 03:30:00+01:00,2020-02-07T00:00Z\n")
    first, second = (
        table_from_file(tmp_path / f"b.{kind}", sets[0].preprocess).inputs
        for kind in ("parquet", "csv")
    )
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(second[0, 6:], inputs[2, 6:])
    write_parquet(tmp_path / "b.parquet", {"day": [5], "time": [dt.datetime(2021, 1, 1)]})
    with pytest.raises(pb.DataError, match=r"row 1, column 'day'.*'5\.0'.*a date"):
        table_from_file(tmp_path / "b.parquet", sets[0].preprocess)


@given(st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)))
def test_dates_are_days_and_circles(moment):
    days = days_of([moment.isoformat()])
    assert dt.datetime(1970, 1, 1) + dt.timedelta(days=float(days[0])) - moment < dt.timedelta(
        microseconds=10
    )
    now, next_week, tomorrow = (date_parts(days + ahead, "time")[0] for ahead in (0, 7, 1))
    assert now[3:5] == pytest.approx(next_week[3:5], abs=1e-6)
    assert now[5:7] == pytest.approx(tomorrow[5:7], abs=1e-6)
    assert now[3:5] != pytest.approx(tomorrow[3:5], abs=0.1)
    for sine, cosine in now[1:].reshape(3, 2):
        assert sine**2 + cosine**2 == pytest.approx(1)
    year = (moment - dt.datetime(moment.year, 1, 1)) / dt.timedelta(days=365.2425)
    angle = np.arctan2(now[1], now[2]) / (2 * np.pi) - year
    assert abs(angle - round(angle)) < 1.6 / 365  # leap years shift it by less than two days


def test_columns_are_left_out(tmp_path):
    columns = {
        "id": [f"u{n}" for n in range(10)], "row": list(range(1, 11)), "one": ["a"] * 10,
        "fixed": [1.5] * 10, "none": [None] * 10, "some": [1.0, None] * 5, "x": NUMBERS,
        "y": NUMBERS,
    }  # fmt: skip
    for kind, file in both(tmp_path, columns).items():
        with pytest.raises(pb.DataError, match="--drop id"):
            opened(kind, file)
        data = opened(kind, file, drop=("id",))
        assert data.feature_names == ("row", "some", "some is empty", "x")
        assert data.preprocess["dropped"] == {
            "id": "asked", "one": "constant", "fixed": "constant", "none": "always empty",
        }  # fmt: skip
        assert any("'row' numbers the rows" in note for note in data.notes)
        assert len(data.notes) == 4
        assert json.loads(json.dumps(data.preprocess)) == data.preprocess
        # what was left out may be there in prediction, and hold anything
        inputs = table_from_file(file, data.preprocess).inputs
        assert torch.equal(inputs, data.batch(range(10))[0])


def test_columns_of_a_type_without_use_can_be_left_out(tmp_path):
    columns = {"c": [[n] for n in range(10)], "x": NUMBERS, "y": [*NUMBERS[:9], None]}
    file = write_parquet(tmp_path / "a.parquet", columns)
    data = opened("parquet", file, drop=["c"], drop_empty_targets=True)
    assert data.feature_names == ("x",)
    assert len(data) == 9


@pytest.mark.parametrize("targets", [["a", None, "b", "a", None, "b"], [1.5, None, 2, 3, None, 4]])
def test_rows_without_a_target_can_be_left_out(tmp_path, targets):
    columns = {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "y": targets}
    for kind, file in both(tmp_path, columns).items():
        data = opened(kind, file, drop_empty_targets=True)
        assert data.features.flatten().tolist() == [1, 3, 4, 6]
        again = opened(
            kind, file, "test", drop_empty_targets=True, like=data.preprocess, classes=data.classes
        )
        assert torch.equal(again.targets, data.targets)
        columns["x"] = [1.0, 2.0, 3.0, 4.0, 5.0, "six"]
    file = write_csv(tmp_path / "a.csv", columns)
    with pytest.raises(pb.DataError, match="line 7, column 'x'"):  # as counted in the file
        opened("csv", file, drop_empty_targets=True)


def test_all_targets_empty(tmp_path):
    for kind, file in both(tmp_path, {"x": NUMBERS, "y": [None] * 10}).items():
        with pytest.raises(pb.DataError, match="empty in every row"):
            opened(kind, file, drop_empty_targets=True)


def test_a_model_of_an_older_version_reads_tables_as_it_did(tmp_path):
    old = {"kind": "table", "target": {"name": "y"}, "columns": [
        {"name": "x", "mean": 2.0, "std": 4.0}, {"name": "c", "values": ["False", "True"]},
    ]}  # fmt: skip
    path = tmp_path / "a.csv"
    path.write_text("c,x\nTrue,6\nFalse,2\n")
    inputs, _, unfamiliar = table_from_file(path, old)
    assert inputs.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert unfamiliar == ("", "")
    for text, message in (
        ("c,x\nTrue,\n", "line 2, column 'x'.*is missing"),
        ("c,x\n?,1\n", "line 2, column 'c'.*is missing"),
        ("c,x\nTrue,1\nmaybe,1\n", "line 3, column 'c'.*'maybe'.*False, True"),
    ):
        path.write_text(text)
        with pytest.raises(pb.DataError, match=message):
            table_from_file(path, old)


def test_weights_of_words_never_seen_end_at_their_prior_and_make_unsure(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.choice(list("abcd"), 200)
    y = rng.normal(size=4)[[*map("abcd".index, words)]] + 0.1 * rng.normal(size=200)
    file = write_csv(tmp_path / "a.csv", {"c": words.tolist(), "y": y.tolist()})
    data = opened("csv", file)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
    model = pb.bayesianize_(net, prior_std=0.3)
    method = pb.MeanField(beta=0.1, lr=0.02, std_lr=0.05)
    pb.fit(model, MemoryLoader(data, 50, shuffle=True), method, epochs=100, likelihood="gaussian")
    mean, variance = dict(pb.named_posteriors(model))["0.weight"].moments()
    assert mean[:, 4].abs().max() < 0.02
    assert variance[:, 4].sqrt().tolist() == pytest.approx([0.3] * 32, rel=0.05)
    file = write_csv(tmp_path / "b.csv", {"c": [*"abcdx"]})
    generator = torch.Generator().manual_seed(0)
    inputs = table_from_file(file, data.preprocess).inputs
    epistemic = pb.predict(model, inputs, 200, generator).epistemic.squeeze(1)
    assert epistemic[4] > 2 * epistemic[:4].max()


def test_numbers_and_dates_far_out_are_unfamiliar(tmp_path):
    """Training saw ages from 20 to 60 and two years of dates: half of that beyond is far."""
    rows = "".join(f"{20 + i % 41},202{2 + i % 2}-0{1 + i % 9}-01,{i % 2}\n" for i in range(80))
    (tmp_path / "t.csv").write_text("age,joined,y\n" + rows)
    data = open_dataset("csv", "train", file=tmp_path / "t.csv", target="y")
    (tmp_path / "n.csv").write_text(
        "age,joined\n30,2023-01-01\n79,2022-05-05\n81,2023-05-05\n-1,2023-01-01\n900,2030-01-31\n"
    )
    unfamiliar = table_from_file(tmp_path / "n.csv", data.preprocess).unfamiliar
    assert unfamiliar == ("", "", "age=81", "age=-1", "age=900, joined=2030-01-31")


def test_dates_of_another_form_are_noted(tmp_path):
    rows = "".join(f"{1 + i % 28:02}.05.2022,{i % 2}\n" for i in range(80))
    (tmp_path / "t.csv").write_text("joined,y\n" + rows)
    data = open_dataset("csv", "train", file=tmp_path / "t.csv", target="y")
    assert any("looks like dates" in note for note in data.notes)
