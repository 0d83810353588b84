"""The picture of accuracy against bytes: which results it shows, and that it can be read."""

import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WEIGHTS = 11_164_352
ROW = {
    "row": "subspace", "seed": 0, "model": "resnet18", "stage": "file", "file_bytes": 1_000_000,
    "bits_back_bytes": 150_000.0, "active_weights": WEIGHTS // 20, "estimator": "weight",
    "accuracy": 0.94, "hardware": "H",
}  # fmt: skip
SETTINGS = {
    "data": "cifar10", "model": "resnet18", "limit": None, "validation": False, "beta": 0.01,
    "epochs": 200, "estimator": "weight", "seeds": [0], "weight_decay": 0.002,
}  # fmt: skip
SHARED = {"row": "rate-distortion", "stage": "trained on", "target_bytes": 500_000}


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Writes rows, changes of ROW, as a results file; settings are changes of SETTINGS."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr("pages.common.RESULTS", tmp_path)

    def write(*changes, name="sizes"):
        lines = [ROW | c | {"settings": SETTINGS | c.get("settings", {})} for c in changes]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    yield write
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] in ("pages", "size_figure", "label_places")
    ]:
        del sys.modules[name]


def found():
    from pages.size_points import measured_files

    return measured_files()


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"limit": 512}},
        {"settings": {"validation": True}},
        {"measured_on": "validation"},
        {"settings": {"data": "cifar100"}},
        {"settings": {"cutout": True}},
        {"model": "resnet20"},
        {"change": "draw=shared"},
    ],
)
def test_only_whole_runs_of_this_network_on_the_test_set_are_shown(results, change):
    results({}, change | {"seed": 1})
    (files,) = found()
    assert files.all_bytes == (1_000_000,)


def test_flags_that_older_rows_lack_make_no_kind_of_their_own(results):
    results({}, {"seed": 1, "settings": {"cutout": False, "table": None}})
    (files,) = found()
    assert len(files.all_bytes) == 2


def test_rates_tell_kinds_apart(results):
    results({"settings": {"lr": 0.2}}, {"settings": {"lr": 0.4}})
    assert [files.name.rsplit(", ", 1)[1] for files in found()] == ["rate 0.2", "rate 0.4"]


def test_of_several_settings_those_with_most_seeds_and_the_most_accurate_are_shown(results):
    results(
        {}, {"seed": 1}, {"settings": {"beta": 1}, "accuracy": 0.9},
        {"settings": {"beta": 2}, "accuracy": 0.96}, {"settings": {"beta": 3}, "accuracy": 0.95},
    )  # fmt: skip
    assert [files.name.rsplit(", ", 1)[1] for files in found()] == ["β 0.01", "β 2"]


def test_the_plain_network_has_one_decay_and_each_seed_once(results):
    def row(seed, accuracy, decay, size=19_000_000):
        known = {"row": "deterministic", "data": "cifar10", "epochs": 200, "seed": seed}
        return known | {"accuracy": accuracy, "method": {"weight_decay": decay}, "file_bytes": size}

    results(
        row(0, 0.91, 5e-4, 45_000_000), row(0, 0.92, 2e-3), row(0, 0.94, 2e-3), row(1, 0.96, 2e-3),
        row(2, 0.99, 2e-3) | {"epochs": 60},
        row(3, 0.99, 1e-3) | {"settings": {"cutout": True}}, name="baselines",
    )  # fmt: skip
    from pages.size_points import deterministic_network

    files = deterministic_network()
    assert files.accuracies == pytest.approx((94, 96))
    assert files.size == 19_000_000


def test_a_table_is_one_mark_however_it_was_trained_on(results):
    first = SHARED | {"stage": "shared", "parent": "subspace-0.1-0-pruned-0.06"}
    again = {"settings": {"epochs": 8, "share_lr": 0.003, "no_compile": True}, "seed": 1}
    results(first, first | again)
    (files,) = found()
    assert len(files.accuracies) == 2


def test_what_has_no_file_is_not_shown(results, tmp_path):
    results({"stage": "trained"})
    path = tmp_path / "sizes.jsonl"
    path.write_text(path.read_text().replace("file_bytes", "other_bytes"))
    assert found() == []


def test_of_two_predictions_of_one_file_its_own_counts(results):
    results({"accuracy": 0.93}, {"accuracy": 0.95, "estimator": "lrt"}, name="subspace")
    (files,) = found()
    assert files.accuracies == (pytest.approx(93),)
    # What is compressed keeps its estimator, whatever the settings of that run say.
    results({"settings": {"estimator": "lrt"}, **SHARED, "parent": "subspace-0"})
    assert [files.name for files in found()] == ["subspace 5% → shared", "subspace 5%"]
    # A parent may be measured in both ways.
    parent = {"row": "mean-field", "stage": "file"}
    results(parent | {"accuracy": 0.93}, parent | {"accuracy": 0.95, "estimator": "lrt"})
    assert [files.accuracies for files in found() if files.origin == "mean-field"] == [
        (pytest.approx(93),)
    ]


def test_seeds_are_one_point_with_its_mean_and_a_repeated_run_counts_once(results):
    results(
        {"accuracy": 0.80},
        {"accuracy": 0.94, "settings": {"seeds": [0, 1], "tune_epochs": 20, "new": None}},
        {"accuracy": 0.93, "seed": 1, "file_bytes": 2_000_000},
    )
    (files,) = found()
    assert files.accuracies == (pytest.approx(94), pytest.approx(93))
    assert files.size == 1_500_000
    assert files.limit == 150_000


def test_parents_of_several_seeds_are_one_point(results):
    results(*(SHARED | {"parent": f"subspace-{seed}"} for seed in range(3)))
    (files,) = found()
    assert len(files.accuracies) == 3


def test_names_tell_the_chain_and_the_share_of_weights(results):
    pruned = {"active_weights": round(0.027 * WEIGHTS)}
    dense = {"active_weights": WEIGHTS}
    results(
        {"active_weights": WEIGHTS // 10},
        {"row": "mean-field"} | dense,
        {"row": "pruned", "parent": "subspace-0", "stage": "trained on"} | pruned,
        SHARED | {"parent": "mean-field-0"} | dense,
        SHARED | {"parent": "subspace-0-pruned"} | pruned,
    )
    assert [(files.name, files.step) for files in found()] == [
        ("subspace 10%", "trained"),
        ("mean-field", "trained"),
        ("subspace → pruned 2.7%", "pruned"),
        ("mean-field → shared", "shared"),
        ("subspace → pruned 2.7% → shared", "shared"),
    ]


def test_one_name_for_two_settings_says_which(results):
    results({}, {"settings": {"beta": 0.004, "weight_decay": 1}})
    assert [files.name for files in found()] == ["subspace 5%, β 0.01", "subspace 5%, β 0.004"]


def test_kinds_that_no_one_setting_tells_apart_are_named_by_two(results):
    kinds = [{"epochs": 100}, {}, {"estimator": "lrt"}]
    results(*({"settings": kind, "estimator": kind.get("estimator", "weight")} for kind in kinds))
    assert [files.name for files in found()] == [
        "subspace 5%, epochs 100, weight",
        "subspace 5%, epochs 200, weight",
        "subspace 5%, epochs 200, lrt",
    ]


def test_a_setting_that_one_kind_does_not_have_tells_nothing(results):
    results({"settings": {"epochs": 100}}, {"settings": {"epochs": None}})
    assert {files.name for files in found()} == {"subspace 5%"}


def test_epochs_of_a_parent_are_those_before_sharing(results):
    results({}, {"settings": {"epochs": 5, "pretrain_epochs": 150, "weight_decay": 0.002}})
    assert [files.name for files in found()] == [
        "subspace 5%, epochs 200",
        "subspace 5%, epochs 150",
    ]


def test_a_table_after_training_on_belongs_to_the_one_before(results):
    trained = SHARED | {"parent": "subspace-0"}
    before = trained | {"stage": "shared", "accuracy": 0.92}
    results(trained, before, before | {"target_bytes": 250_000})
    both, alone = found()
    assert both.accuracy == pytest.approx(92)
    assert both.after.accuracy == pytest.approx(94)
    assert alone.after is None


def test_epochs_of_sharing_say_nothing_about_what_was_only_pruned(results):
    pruned = {"row": "pruned", "parent": "subspace-0", "stage": "trained on"}
    options = {"beta": 0.01, "weight_decay": 1, "tune_epochs": 5}
    results(pruned | {"settings": options | {"epochs": 8}},
            pruned | {"settings": options | {"epochs": 60}, "accuracy": 0.95})  # fmt: skip
    (one,) = found()
    assert one.accuracies == pytest.approx((95,))


def test_files_of_plain_numbers_are_told_from_coded_ones(results):
    results(
        {"file_bytes": 7999, "active_weights": 1000},
        {"file_bytes": 80_000, "active_weights": 10_000},
    )
    assert [files.is_coded for files in found()] == [True, False]


def test_plain_files_give_way_to_coded_ones_of_their_name(results):
    coded, plain = {"file_bytes": 7999}, {"file_bytes": 8000, "settings": {"beta": 1}}
    results(coded | {"active_weights": 1000}, plain | {"active_weights": 1000})
    assert [files.is_coded for files in found()] == [True]


def test_published_sizes_count_what_the_papers_store(results):
    from pages.published import PUBLISHED

    sizes = {p.name: p.size for p in PUBLISHED}
    assert sizes["dense VI"] == 8 * WEIGHTS
    assert sizes["SSVI 95%"] == pytest.approx(5.88e6, rel=0.01)
    assert sizes["2DGBNN"] == pytest.approx(12.2e6, rel=0.01)


def crowd():
    """A dozen files of about one size and accuracy, with limits and earlier stages."""
    for i in range(6):
        shared = SHARED | {"parent": "subspace-0", "active_weights": WEIGHTS // (10 + i)}
        shared |= {"file_bytes": 490_000, "accuracy": 0.938 + 0.001 * i}
        yield shared
        yield shared | {"stage": "shared", "accuracy": 0.93}
        yield shared | {"target_bytes": 900_000, "file_bytes": 890_000, "accuracy": 0.944}


def picture():
    from size_figure import drawn

    return drawn(found()).axes[0]


def test_labels_cover_neither_each_other_nor_marks_nor_the_edge(results):
    results(*crowd())
    axes = picture()
    notes = [note for note in axes.texts if hasattr(note, "xyann")]
    boxes = [note.get_window_extent() for note in notes]
    assert len(boxes) > 20
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
    marks = [line.get_window_extent() for line in axes.lines if len(line.get_xdata()) == 1]
    assert len(marks) > 30
    assert not any(box.overlaps(mark) for box in boxes for mark in marks)
    frame = axes.get_window_extent()
    for box in boxes:
        assert np.all(box.min >= frame.min)
        assert np.all(box.max <= frame.max)


def test_a_leader_through_another_point_costs_more_than_a_far_place(results):
    from label_places import Scene, no_boxes

    scene = Scene(np.array([-99.0, -99, 99, 99]), no_boxes(), no_boxes(), np.array([[0.0, 20]]))
    through, beside, far = scene.costs(
        np.array([[-9.0, 40, 9, 50], [40, -5, 58, 5], [-9, -90, 9, -80]]), np.array([0.0, 0])
    )
    assert max(beside, far) + 1000 < through


@pytest.mark.parametrize(("size", "is_named"), [(7999, False), (8000, True)])
def test_the_older_format_is_explained_if_a_file_has_it(results, size, is_named):
    from size_figure import drawn

    results({"active_weights": 1000, "file_bytes": size})
    words = [text.get_text() for text in drawn(found()).legends[0].get_texts()]
    assert ("file of plain float32 (older format)" in words) == is_named


def test_limits_are_joined_to_their_files(results):
    results({})
    axes = picture()
    lines = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
    assert [150_000, 1_000_000] in [list(line) for line in lines]


def test_what_lies_outside_the_axis_is_named(results):
    results({}, {"accuracy": 0.8, "active_weights": WEIGHTS // 100})
    axes = picture()
    assert any("subspace 1%: 1 MB, 80.0%" in text.get_text() for text in axes.texts)


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    from size_figure import write_figure

    results({})
    for name in ("one", "two"):
        write_figure(path=tmp_path / name)
    for ending in (".svg", ".png"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one.svg").read_bytes()


def test_the_page_shows_the_picture_and_where_published_points_come_from(results):
    from pages.files import sizes
    from size_figure import PICTURE

    origin = {"command": "python sizes.py", "commit": "0", "nll": 0.2, "ece": 0.01}
    results(origin)
    page = sizes()
    assert f"(images/{PICTURE.name}.svg)" in page
    assert (PICTURE.parent.parent / "images" / f"{PICTURE.name}.svg").exists()
    assert "| SSVI 95% | 93.74 | 5.9 MB |" in page
