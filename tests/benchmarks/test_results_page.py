"""The page of results and the README's numbers: in step with the JSON lines, and honest."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import plans  # noqa: E402
import tables  # noqa: E402
from pages import (  # noqa: E402
    common,
    corruptions,
    costs,
    headline,
    papers,
    peers,
    sharing,
    side_by_side,
    side_by_side_uci,
    subspace,
    training,
    uci,
)


def test_what_is_written_is_what_the_results_say():
    assert tables.PAGE.read_text() == tables.page()
    readme = tables.README.read_text()
    assert readme == tables.with_numbers(readme)


def test_every_part_is_linked_once():
    titles = [line[3:] for line in tables.page().splitlines() if line.startswith("## ")]
    links = [f"- [{title}](#{tables.anchor(title)})" for title in titles]
    assert len(set(links)) == len(links) > 20
    lines = tables.page().splitlines()
    begin = lines.index(links[0])
    assert lines[begin : begin + len(links)] == links
    assert tables.anchor("Baselines, ResNet-18, CIFAR-10") == "baselines-resnet-18-cifar-10"
    assert "docs/results.md#every-method-on-the-same-work" in tables.README.read_text()
    assert "every-method-on-the-same-work" in map(tables.anchor, titles)


@pytest.mark.parametrize(("count", "is_folded"), [(4, False), (5, True)])
def test_many_commands_are_folded(count, is_folded):
    made = [{"command": f"python x.py --lr {rate}", "commit": "c"} for rate in range(count)]
    shown = common.origins(made)
    assert shown.count("    python x.py --lr") == count
    assert ("<details><summary>5 commands</summary>" in shown) == is_folded
    assert shown.count("</details>") == is_folded


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Writes rows of a table; nothing else is there."""
    monkeypatch.setattr(common, "RESULTS", tmp_path)

    def write(table, *rows):
        lines = [json.dumps({"hardware": "H"} | row) + "\n" for row in rows]
        path = tmp_path / f"{table}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))

    return write


def subspace_row(seed, accuracy, estimator="weight", changed=None, **figures):
    settings = {"epochs": 200, "beta": 0.01, "weight_decay": 0.002}
    known = {"nll": 0.2, "ece": 0.01, "marginal_ce": 0.005, "auroc_entropy": 0.94}
    known |= {"accuracy": accuracy, "file_bytes": 8_000_000, "active_weights": 600_000}
    known |= {"density": 0.05, "seed": seed, "estimator": estimator, "method": "Subspace"}
    return known | {"settings": settings | (changed or {})} | figures


def line_of(page, method, network="resnet18"):
    start = f"| {network}, cifar10 | {method} |"
    (line,) = [line for line in page.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")]


METHOD = "Subspace, 95% sparse"


def test_means_and_standard_errors_are_over_seeds(results):
    results("subspace", *(subspace_row(seed, a) for seed, a in enumerate((0.94, 0.95, 0.96))))
    cells = line_of(headline.headline(), METHOD)
    assert cells[4:6] == ["3", "95.00 ± 0.58"]  # .01 / sqrt(3)
    assert cells[-1] == "yes"


def test_a_run_that_was_repeated_counts_once_as_it_was_last(results):
    results("subspace", subspace_row(0, 0.5), subspace_row(0, 0.94))
    assert line_of(headline.headline(), METHOD)[4:6] == ["1", "94.00"]


def test_repeated_runs_of_subspaces_have_a_line_for_each_commit(results):
    known = {"measured_on": "test", "torch": "2", "auroc_epistemic": 0.9, "train_seconds": 140}
    known |= {"command": "python subspace.py"}
    first = [subspace_row(s, 0.94, commit="old", **known) for s in (0, 1)]
    again = [subspace_row(s, 0.95, commit="new", file_bytes=1000 + s, **known) for s in (0, 1, 2)]
    cut_off = subspace_row(2, 0.5, commit="new", **known)
    other = subspace_row(0, 0.9, commit="new", changed={"beta": 0.1}, **known)
    results("subspace", *first, other, cut_off, *again)
    lines = [line for line in subspace.subspace().splitlines() if line.startswith("| Subspace")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(line[7], line[8], line[9]) for line in cells] == [
        ("old", "2", "94.00 ± 0.00"),
        ("new", "3", "95.00 ± 0.00"),  # beside the first, and what was run twice counts once
        ("new", "1", "90.00"),
    ]
    assert [line[-1] for line in cells[:2]] == ["8,000,000 (plain)", "1,001"]


def test_every_table_names_sections_that_are_there():
    assert papers.SECTIONS.keys() == plans.TABLES.keys()
    titles = {line[3:] for line in tables.page().splitlines() if line.startswith("## ")}
    assert {title for places in papers.SECTIONS.values() for title in places} <= titles


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"accuracy": 0.9373}, "no: accuracy"),
        ({"accuracy": 0.9374}, "yes"),
        ({"nll": 0.219}, "no: NLL 0.2190"),
        ({"marginal_ce": 0.007, "auroc_entropy": 0.92}, "no: marginal CE 0.0070, AUROC 0.9200"),
        ({"auroc_entropy": None}, "no: AUROC not measured"),
    ],
)
def test_what_a_paper_has_and_we_have_not_is_said(results, figures, said):
    results("subspace", subspace_row(0, **{"accuracy": 0.95} | figures))
    assert line_of(headline.headline(), METHOD)[-1] == said


@pytest.mark.parametrize(
    "other",
    [
        {"changed": {"validation": True}},
        {"changed": {"limit": 100}},
        {"changed": {"model": "resnet20"}},
        {"changed": {"beta": 0.02}},
        {"measured_on": "validation"},
        {"data": "cifar100"},
        {"method": "RigL"},
    ],
)
def test_other_runs_do_not_count(results, other):
    results("subspace", subspace_row(0, 0.94), subspace_row(0, 0.1, **other))
    assert line_of(headline.headline(), METHOD)[4:6] == ["1", "94.00"]


def test_sizes_of_two_formats_are_not_mixed(results):
    plain, coded = subspace_row(0, 0.94), subspace_row(1, 0.94, file_bytes=1_100_000)
    results("subspace", plain, coded)
    assert line_of(headline.headline(), METHOD)[10] == "1,100,000 (of 1)"
    results("subspace", coded)
    assert line_of(headline.headline(), METHOD)[10] == "1,100,000"
    results("subspace", plain)
    assert line_of(headline.headline(), METHOD)[10] == "8,000,000 (plain)"


DENSE = {"epochs": 200, "beta": 0.003, "weight_decay": 0.002, "lr": 0.2}


def test_networks_trained_in_two_ways_are_not_mixed(results):
    known = {"row": "mean-field", "stage": "file", "estimator": "weight", "file_bytes": 6_000_001}
    known |= {"accuracy": 0.94, "nll": 0.2, "ece": 0.01, "marginal_ce": 0.005, "seed": 0}
    local = known | {"settings": DENSE | {"estimator": "lrt"}}
    drawn = known | {"settings": DENSE | {"estimator": "weight"}, "accuracy": 0.95}
    others = ({"epochs": 100}, {"weight_decay": 0.1}, {"beta": 0.1}, {"lr": 1}, {"cutout": True})
    briefly = [
        local | {"settings": local["settings"] | changed, "seed": seed, "accuracy": 0.5}
        for seed, changed in enumerate(others, start=1)
    ]
    cut = {"settings": drawn["settings"] | {"lr": 0.4, "weight_decay": 0.001, "cutout": True}}
    larger = {"settings": drawn["settings"] | {"lr": 0.4, "weight_decay": 5e-4, "cutout": False}}
    cut, larger = drawn | cut | {"accuracy": 0.97}, drawn | larger | {"accuracy": 0.96}
    results(
        "sizes", local, *briefly, local | {"stage": "trained"}, drawn, drawn | {"seed": 1},
        cut, larger,
    )  # fmt: skip
    page = headline.headline()
    assert line_of(page, "mean-field VI")[4:6] == ["1", "94.00"]
    with_draws = line_of(page, "mean-field VI, trained with weight draws")
    assert with_draws[4:6] == ["2", "95.00 ± 0.00"]
    assert with_draws[-1] == "no: accuracy, marginal CE 0.0050"
    assert line_of(page, "mean-field VI, weight draws, larger steps")[4:6] == ["1", "96.00"]
    assert line_of(page, "mean-field VI, weight draws, cutout")[4:6] == ["1", "97.00"]


def test_lines_as_accurate_as_meant_after_200_epochs_are_named(results):
    known = {"row": "mean-field", "stage": "file", "estimator": "lrt", "file_bytes": 6_000_001}
    known |= {"accuracy": 0.951, "nll": 0.2, "ece": 0.01, "marginal_ce": 0.005, "seed": 0}
    known |= {"settings": DENSE | {"estimator": "lrt"}}
    other = known | {"estimator": "weight", "accuracy": 0.9}
    results("sizes", known, other)
    assert "met by (seeds): mean-field VI (1).\n" in headline.headline()
    results("sizes", known, known | {"seed": 1, "accuracy": 0.9509}, other)
    assert "met by (seeds): no line.\n" in headline.headline()


def test_what_was_trained_with_cutout_is_in_no_other_line(results):
    cut = subspace_row(1, 0.99)
    results(
        "subspace", subspace_row(0, 0.95), cut | {"settings": cut["settings"] | {"cutout": True}}
    )
    assert line_of(headline.headline(), METHOD)[4] == "1"


def test_a_shared_file_counts_if_its_parent_does(results):
    def row(**changed):
        known = {"row": "mean-field", "stage": "file", "seed": 0, "estimator": "lrt"}
        known |= {"accuracy": 0.95, "nll": 0.2, "ece": 0.01, "file_bytes": 6_000_001}
        known |= {"settings": DENSE | {"estimator": "lrt"}}
        return known | changed

    of_it = {"epochs": 10, "beta": 0.01, "share_std_lr": 0.001}
    shared = row(row="rate-distortion", stage="trained on", target_bytes=990_000, settings=of_it,
                 file_bytes=980_000, parent="mean-field-0", parent_bytes=6_000_001)  # fmt: skip
    first, trained_on = (
        f"Sharing, rate and distortion, {how}" for how in ("as made", "trained on")
    )
    results("sizes", row(), shared)
    page = headline.headline()
    assert [line_of(page, name)[4] for name in (first, trained_on)] == ["0", "1"]
    results("sizes", row(), shared | {"stage": "shared"})
    page = headline.headline()
    assert [line_of(page, name)[4] for name in (first, trained_on)] == ["1", "0"]
    results("sizes", row(), shared | {"parent_bytes": 5_000_000})
    assert line_of(headline.headline(), trained_on)[4] == "0"
    drawn = {"file_bytes": 5_000_000, "settings": DENSE | {"estimator": "weight"}}
    results("sizes", row(**drawn), shared | {"parent_bytes": 5_000_000})
    assert line_of(headline.headline(), trained_on)[4] == "0"


def test_rows_that_are_missing_are_named(results):
    results("subspace", *(subspace_row(seed, 0.95) for seed in range(3)))
    page = headline.headline()
    short = page.split("**Fewer than 3 seeds**:")[1].split("\n")[0]
    assert "Sharing, mixture (resnet20, cifar10)" in short
    assert f"{METHOD} (resnet18" not in short
    assert f"{METHOD} (resnet20" in short
    assert line_of(page, "deterministic")[5] == "not measured yet"


def chain_row(pruned, target, size, accuracy, seed=0, beta=0.01):
    parent = f"subspace-0.1-0{pruned}" if seed == 0 else f"subspace-0.1-{seed}{pruned}"
    known = {"row": "rate-distortion", "stage": "shared", "parent": parent, "seed": seed}
    known |= {"target_bytes": target, "file_bytes": size, "active_weights": 558_218}
    known |= {"nll": 0.2, "ece": 0.0123, "accuracy": accuracy, "estimator": "weight"}
    return known | {"settings": {"model": "resnet18", "beta": beta}}


THICK, THIN = "-pruned-0.06", "-pruned-0.06-pruned-0.035"


def test_the_readme_shows_the_smallest_file_of_todays_format(results):
    results(
        "sizes", chain_row(THICK, 890_000, 880_000, 0.95), chain_row(THIN, 490_000, 480_000, 0.94),
        chain_row(THIN, 490_000, 484_000, 0.96, seed=1),
    )  # fmt: skip
    results("subspace", subspace_row(0, 0.95, active_weights=10_000, file_bytes=100_000))
    said = " ".join(headline.in_short().split())
    assert "in 482 kB: 5.0% of its weights are left" in said
    assert "It gets 95.0%" in said
    assert "error of 0.012" in said
    assert "mean of 2 seeds" in said
    assert "| chain, smaller | 200 + 60 + 60 | 95.00 ± 1.00 |" in said
    assert METHOD not in said  # more bytes than its plain numbers: an older format
    assert "Five plain networks" not in said
    others = {"row": "deep-ensemble"}
    results("baselines", baseline_row(0.9) | others, baseline_row(0.95) | others,
            baseline_row(0.1) | others | {"data": "mnist"}, baseline_row(0.1))  # fmt: skip
    assert "Five plain networks (60 epochs each, one seed) get 95.0% right," in headline.in_short()
    alike = small_model(family="deep-ensemble", model="resnet18", data="cifar10", accuracy=0.96)
    results("side_by_side", alike, alike | {"model": "resnet20", "accuracy": 0.1})
    assert "Five plain networks (30 epochs each, one seed) get 96.0% right," in headline.in_short()


@pytest.mark.parametrize(
    "other",
    [
        chain_row(THICK, 490_000, 480_000, 0.1),  # pruned less
        chain_row(THIN, 890_000, 480_000, 0.1),
        chain_row(THIN, 490_000, 480_000, 0.1, beta=0.02),
        chain_row(THIN, 490_000, 480_000, 0.1) | {"stage": "trained on"},
        chain_row(THIN, 490_000, 480_000, 0.1) | {"parent": f"subspace-0.1-1{THIN}"},
    ],
)
def test_other_chains_do_not_count(results, other):
    results("sizes", chain_row(THIN, 490_000, 480_000, 0.94), other)
    assert line_of(headline.headline(), "chain, smaller")[4:6] == ["1", "94.00"]


def test_rows_of_a_small_network_come_from_where_all_methods_are(results):
    row = subspace_row(0, 0.9, changed={"epochs": 40}) | {"row": "subspace 0.05"}
    row |= {"model": "resnet20", "data": "cifar10", "measured_on": "test"}
    others = [row | {"row": "subspace 0.1"}, row | {"model": "resnet18"}]
    others.append(row | {"settings": row["settings"] | {"epochs": 1}})
    results("side_by_side", row, *(other | {"accuracy": 0.1} for other in others))
    assert line_of(headline.headline(), METHOD, "resnet20")[4:6] == ["1", "90.00"]


# Settings of a comparison of all methods.
COMPARED = {
    "timed_images": 1024, "samples": 30, "beta": 0.1, "sparse_beta": 0.2, "chain_beta": 0.3,
    "tune_epochs": 4, "share_epochs": 2,
}  # fmt: skip


def test_methods_are_shown_by_network_and_data(results):
    def row(name, data, seed=0, **changed):
        settings = {"epochs": 30, "lr": 0.1, "seeds": [seed], "families": [name]} | changed
        settings |= COMPARED
        known = {"row": name, "model": "lenet5", "data": data, "seed": seed, "settings": settings}
        known |= {
            "family": "rigl",
            "measured_on": "test",
            "estimator": "none",
            "hardware": "H",
            "commit": "c",
        }
        figures = dict.fromkeys(("nll", "ece", "brier", "train_seconds", "predict_seconds"), 1.0)
        figures |= {"accuracy": 0.9 + seed / 10, "active_weights": 7, "file_bytes": 9}
        return known | figures | {"command": "python side_by_side.py"}

    results(
        "side_by_side", row("a", "mnist", 1) | {"accuracy": 0.1}, row("a", "mnist"),
        row("a", "mnist", 1), row("b", "mnist"), row("a", "mnist", 2, lr=0.2),
        row("a", "fashion-mnist"),
    )  # fmt: skip
    page = side_by_side.side_by_side()
    digits, clothes = page.split("### ")[1:]
    lines = [line for line in digits.splitlines() if line.startswith("| a ")]
    assert ["95.00 ± 5.00" in line for line in lines] == [True, False]  # settings set them apart
    assert ["lr=0.1" in line for line in lines] == [True, False]
    assert "1,024 images x 30 samples. Of what was run again with the same seed (1 line)" in digits
    assert "accuracy differed by up to 90.00." in digits
    assert "run again" not in clothes
    assert "| b |" in digits
    assert "| b |" not in clothes


def small_model(**changed):
    """A row of a model, as `side_by_side.py` writes it."""
    settings = {"epochs": 30} | COMPARED
    known = {"row": "a", "model": "lenet5", "data": "mnist", "seed": 0, "settings": settings}
    known |= {
        "family": "rigl",
        "measured_on": "test",
        "estimator": "lrt",
        "hardware": "GPU",
        "commit": "c",
    }
    known |= dict.fromkeys(("nll", "ece", "brier", "train_seconds", "predict_seconds"), 1.0)
    known |= {"accuracy": 0.9, "active_weights": 7, "file_bytes": 9, "file": "a.pocket"}
    return known | {"command": "python side_by_side.py"} | changed


def timed_again(**changed):
    """A row of its prediction, as `prediction.py` writes it."""
    known = {"file": "a.pocket", "file_bytes": 9, "estimator": "lrt", "images": 1024, "samples": 30}
    known |= {"model": "lenet5", "command": "python prediction.py", "commit": "c"}
    return known | {"hardware": "GPU", "predict_seconds": 0.25} | changed


def test_settings_of_all_lines_are_named_where_a_family_has_them(results):
    def said(*families, **changed):
        known = small_model()
        results("side_by_side", *(
            known | {"family": name, "row": name, "settings": known["settings"] | more}
            for name, more in zip(families, [{}, changed], strict=False)
        ))  # fmt: skip
        return side_by_side.side_by_side().split("30 samples.")[1].split(" Not in")[0]

    epochs = " Epochs after each pruning: 4, after sharing: 2."
    after = " Beta is 0.1, for subspaces 0.2, for the chain after that 0.3."
    assert said("mean-field", "chain") == after + epochs
    assert said("rigl") == ""
    assert said("bayes-by-backprop") == " Beta is 0.1."
    assert said("mean-field", "bayes-by-backprop", beta=0.7) == epochs


def test_methods_with_the_later_weight_decay_are_found_where_they_are(results):
    earlier = baseline_row(0.9) | {"method": {"weight_decay": 0.0005}}
    rows = [earlier | {"row": name} for name in ("deep-ensemble", "mc-dropout")]
    longer = rows[0] | {"method": {"weight_decay": 0.002}, "epochs": 200}
    results("baselines", *rows, longer)
    assert "search chose: deep-ensemble, mc-dropout were not measured." in training.baselines()
    settings = {"epochs": 60, "weight_decay": 0.002} | COMPARED
    above = small_model(family="mc-dropout", model="resnet18", data="cifar10", settings=settings)
    others = (above | {"settings": settings | {"epochs": 30}}, above | {"model": "resnet20"})
    results("side_by_side", *(row | {"family": "deep-ensemble"} for row in others), above)
    said = training.baselines()
    assert "chose: mc-dropout are in [Every method on the same work](#every-method" in said
    assert "; deep-ensemble were not measured." in said
    results("baselines", rows[0] | {"method": {"weight_decay": 0.002}}, rows[1])
    assert "not measured" not in training.baselines()


def test_families_that_no_line_is_about_are_named(results):
    every = [small_model(family=family, row=family) for family in side_by_side.FAMILIES]
    others = [row | {"data": "fashion-mnist"} for row in every]
    looked_for = small_model(measured_on="validation", model="mlp")
    results("side_by_side", *every[:-2], *others, looked_for)
    digits, clothes, search = side_by_side.side_by_side().split("### ")[1:]
    assert "Not in this table: spike-slab, chain." in digits
    assert "Not in this table" not in clothes + search


def test_predictions_without_a_gpu_stand_beside_their_model(results):
    results("side_by_side", small_model())
    timed = timed_again(hardware="Pocket, 2 cores", predict_seconds=12.34)
    others = ({"file_bytes": 8}, {"estimator": "weight"}, {"samples": 5}, {"hardware": "GPU"})
    results("prediction", *(timed | other | {"predict_seconds": 99.0} for other in others))
    assert " s |  |" in side_by_side.side_by_side()
    assert costs.prediction().count("99.00 s") == 1  # of another model
    results("prediction", timed)
    assert "| 12.3 s |" in side_by_side.side_by_side()
    assert "Pocket" not in costs.prediction()  # it is shown once
    results("side_by_side")
    assert "| Pocket, 2 cores | lenet5 | a.pocket | 9 | lrt |" in costs.prediction()


def test_times_beside_other_work_are_marked_until_there_are_better_ones(results):
    known, timed = small_model(), timed_again()
    results("side_by_side", known)
    results("prediction", timed | {"predict_seconds": 2.0})
    assert "| 1 s | 1.000 s |" in side_by_side.side_by_side()
    results("prediction", timed)
    assert "| 1 s | 0.250 s |" in side_by_side.side_by_side()  # the fastest
    results("side_by_side", known | {"beside_other_work": True})
    assert "| 1 s* | 0.250 s |" in side_by_side.side_by_side()
    results("prediction", timed | {"beside_other_work": True})
    assert "| 1 s* | 1.000 s* |" in side_by_side.side_by_side()
    results("prediction", timed | {"predict_seconds": 0.75}, timed)
    results("side_by_side", known | {"beside_other_work": True},
            known | {"seed": 1, "file": "b.pocket", "predict_seconds": 0.35})  # fmt: skip
    assert "| 1 s | 0.300 ± 0.050 s |" in side_by_side.side_by_side()
    results("side_by_side", known | {"beside_other_work": True, "file": "b.pocket"},
            known | {"seed": 1, "beside_other_work": True})  # fmt: skip
    assert "| 1 ± 0 s* | 0.250 s |" in side_by_side.side_by_side()  # a good one counts alone
    results("side_by_side", known | {"beside_other_work": True})
    results("prediction", timed | {"hardware": "another GPU"})
    assert "| 1 s* | 1.000 s* |" in side_by_side.side_by_side()


def test_how_far_two_times_of_one_prediction_are_apart_is_said(results):
    results("side_by_side", small_model())
    timed = timed_again(hardware="Pocket, 2 cores", predict_seconds=10.0)
    slower = timed | {"predict_seconds": 15.0, "commit": "d"}
    starred = {"predict_seconds": 99.0, "beside_other_work": True}
    others = (
        starred, {"hardware": "Other, 2 cores"}, {"file": "b"}, {"estimator": "weight"},
        {"commit": "c"}, {"images": 1}, {"samples": 1},
    )  # fmt: skip
    on_a_gpu = [row | {"hardware": "GPU"} for row in (timed, slower)]
    results("prediction", timed, *(slower | other for other in others), *on_a_gpu)
    assert "timed at two commits" not in side_by_side.side_by_side()
    results("prediction", timed, slower, slower | starred)
    assert "of one name (1), one took up to 1.5 times as long" in side_by_side.side_by_side()


def test_a_file_that_was_made_again_is_timed_for_the_first(results):
    results("side_by_side", small_model())
    timed = timed_again(hardware="Pocket, 2 cores", predict_seconds=12.34, file_bytes=8)
    results("prediction", timed)
    assert "12.3 s" not in side_by_side.side_by_side()
    assert "Pocket" in costs.prediction()
    again = small_model(file_bytes=8, accuracy=0.01)
    results("again/side_by_side", again | {"settings": again["settings"] | {"epochs": 31}})
    assert "12.3 s" not in side_by_side.side_by_side()  # that is another network
    assert "Pocket" in costs.prediction()
    results("again/side_by_side", again)
    page = side_by_side.side_by_side()
    assert "| 12.3 s |" in page
    assert "| 1.00 |" not in page  # what was measured first counts
    assert "Pocket" not in costs.prediction()


def test_files_that_were_saved_again_stand_beside_what_they_were(results):
    results("side_by_side", small_model(file_bytes=2000), small_model(seed=1, file="b.pocket"))
    saved = {"command": "python resaved.py", "commit": "c", "hardware": "H", "file": "a.pocket"}
    first = saved | {"file_bytes": 2000, "bytes_now": 1500}
    results("resaved", first, saved | {"file_bytes": 2001, "bytes_now": 7})
    assert "| 7 | 1,004 |  | 1" in side_by_side.side_by_side()  # one of two only
    second = saved | {"file": "b.pocket", "file_bytes": 9, "bytes_now": 8}
    results("resaved", first | {"bytes_now": 1}, first, second)
    assert "| 7 | 1,004 | 754 | 1" in side_by_side.side_by_side()
    assert "resaved.py (c)" in side_by_side.side_by_side()


def test_methods_stand_by_family_and_by_the_weights_they_keep(results):
    names = [("chain", 3), ("subspace", 5), ("deterministic", 9), ("subspace", 7)]
    results("side_by_side", *(
        small_model(row=f"{family} {kept}", family=family, active_weights=kept)
        for family, kept in names
    ))  # fmt: skip
    lines = [line.split(" | ")[0] for line in side_by_side.side_by_side().splitlines()]
    shown = [line[2:] for line in lines if line.startswith(("| chain", "| sub", "| det"))]
    assert shown == ["deterministic 9", "subspace 7", "subspace 5", "chain 3"]


def peer_row(name, lr=0.2, seed=0, **changed):
    known = {"row": name, "model": "mlp", "data": "mnist", "seed": seed, "commit": "c"}
    settings = {"epochs": 20, "timed_images": 1024, "samples": 30, "lr": lr}
    known |= {"settings": settings, "hardware": "H", "command": "python peers/compare.py"}
    known |= {"accuracy": 0.9, "nll": 0.2, "ece": 0.01, "stored_bytes": 1000}
    return known | {"step_seconds": 0.01, "predict_seconds": 0.5} | changed


def test_peers_are_means_over_seeds_and_times_are_those_alone(results):
    beside = {"beside_other_work": True, "step_seconds": 9.0, "predict_seconds": 9.0}
    results(
        "peers", peer_row("a"), peer_row("a", seed=1, accuracy=0.8, **beside),
        peer_row("a", lr=0.5), peer_row("b", **beside), peer_row("c", model="resnet18"),
        peer_row("a", lr=0.5), peer_row("d", hardware="another"),
    )  # fmt: skip
    results("peers_search", peer_row("a", lr=0.05, nll=0.7))
    page, search = peers.peers().split("looked for on held-out")
    first, second = page.split("### resnet18")
    assert "| a | 2 | 0.2 | 85.00 ± 5.00 |" in first
    assert "| 1,000 | 10.0 ms | 0.500 s |" in first
    assert "| a | 1 | 0.5 |" in first
    assert "| 9000.0 ms* | 9.000 s* |" in first
    assert "| c | 1 |" in second
    assert "| d |" not in first
    assert "| a | 1 | 0.05 | 90.00 | 0.700 |" in search


def test_a_peer_that_was_repeated_counts_as_it_was_last(results):
    beside = {"beside_other_work": True, "step_seconds": 0.001, "predict_seconds": 0.001}
    results(
        "peers", peer_row("a", step_seconds=0.02, predict_seconds=0.3), peer_row("a", **beside),
        peer_row("a", accuracy=0.8, step_seconds=0.03, predict_seconds=0.2),
        peer_row("a", hardware="another", accuracy=0.7),
    )  # fmt: skip
    page = peers.peers()
    assert "*" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    assert "| a | 1 | 0.2 | 80.00 |" in page
    assert "| 1,000 | 30.0 ms | 0.200 s |" in page
    assert "| a | 1 | 0.2 | 70.00 |" in page


def test_our_own_rows_stand_before_those_of_other_libraries(results):
    results("peers", *map(peer_row, ("b", "pocketbayes, x", "a", "pocketbayes")))
    lines = [line.split(" | ")[0] for line in peers.peers().splitlines() if "90.00" in line]
    assert lines == ["| pocketbayes, x", "| pocketbayes", "| b", "| a"]


def uci_row(name, where, nll, split=0, family="mean-field", **settings):
    known = {"hidden": [8], "samples": 30, "sets": [where], "steps": 3, "tune_steps": 2}
    known |= {"share_steps": 1, "beta": 0.3, "chain": [0.5]} | settings
    row = {"row": name, "set": where, "split": split, "settings": known, "estimator": "x"}
    row |= {"measured_on": "test", "hardware": "H", "commit": "c", "command": "python u.py"}
    row |= {"coverage_90": 0.91, "train_seconds": 12, "predict_seconds": 0.345}
    row |= {"active_weights": 7777, "file_bytes": 999, "family": family}
    return row | {"nll": nll, "rmse": 10 - nll}


def test_methods_on_regressions_are_ranked_set_by_set(results):
    results(
        "side_by_side_uci", uci_row("a", "yacht", 9.0), uci_row("a", "yacht", 1.0),
        uci_row("a", "yacht", 3.0, 1), uci_row("b", "yacht", 1.5), uci_row("b", "yacht", 2.0, 1),
        uci_row("a", "energy", 5.0), uci_row("b", "energy", 6.0), uci_row("c", "energy", 6.0),
    )  # fmt: skip
    page = side_by_side_uci.side_by_side_uci()
    costs = "0.910 | 7,777 | 999 | 12 s | 0.345 s |"
    # In NLL: of 2 the second, of 3 the first; in RMSE the reverse. Equal ones share their places.
    assert f"| a | x | 2 x 1 to 2 | 1.5 | 2.0 | {costs}" in page
    assert f"| b | x | 2 x 1 to 2 | 1.8 | 1.8 | {costs}" in page
    assert f"| c | x | 1 x 1 | 2.5 | 1.5 | {costs}" in page
    nll, rmse = page.split("### ")[1:]
    assert "| a | x | 5.00 | 2.00 ± 1.00 |" in nll  # of a run that was repeated, the last
    assert "| c | x | 6.00 |  |" in nll
    assert "| a | x | 5.00 | 8.00 ± 1.00 |" in rmse


def test_regressions_of_other_settings_are_other_lines(results):
    results(
        "side_by_side_uci", uci_row("a", "yacht", 1.0), uci_row("a", "yacht", 2.0, beta=1),
        uci_row("b", "yacht", 1.0, chain=[0.1]), uci_row("b", "yacht", 3.0, split=1),
        uci_row("c", "yacht", 1.0, family="chain"),
        uci_row("c", "yacht", 1.0, family="chain", chain=[0.1]),
    )  # fmt: skip
    page = side_by_side_uci.side_by_side_uci()
    assert "| a beta=0.3 | x | 1 x 1 |" in page
    assert "| a beta=1 | x | 1 x 1 |" in page
    assert "| b | x | 1 x 2 |" in page  # a chain's settings are nothing to it
    assert "| c chain=[0.1] | x |" in page
    assert "rank of 5, NLL" in page


def test_a_search_on_regressions_stands_apart(results):
    searched = uci_row("a", "yacht", 1.0) | {"measured_on": "validation"}
    results("side_by_side_uci_search", searched)
    results("side_by_side_uci")
    page = side_by_side_uci.side_by_side_uci()
    assert "looked for on held-out" in page
    assert "### NLL\n" not in page
    results("side_by_side_uci", uci_row("b", "yacht", 2.0))
    test, held_out = side_by_side_uci.side_by_side_uci().split("looked for on held-out")
    assert ("| a | x |" in test, "| b | x |" in test) == (False, True)
    assert ("| a | x |" in held_out, "| b | x |" in held_out) == (True, False)


def test_a_difference_shows_a_figure_of_its_error():
    contest = uci.Contest(dense=[2.80, 2.82, 2.81], sparse=[2.804, 2.826, 2.815])
    assert contest.shown()[2] == "0.0050 ± 0.0006"
    assert uci.digits_of([1e-12]) == uci.MOST_DIGITS


def test_every_table_of_the_papers_is_named_with_what_is_there(monkeypatch):
    jobs = [plans.Job(("x.py",), "t", 1, seed, 1.0) for seed in range(3)]
    made = {"ssvi-figure-2": plans.Table("a curve", tuple(jobs), ("this", "that"))}
    monkeypatch.setattr(papers, "TABLES", made | {"ours": plans.Table("own", ())})
    monkeypatch.setattr(papers, "is_done", lambda job: job.seed < 2)
    monkeypatch.setattr(papers, "SECTIONS", {"ssvi-figure-2": ("A, b", "C"), "ours": ()})
    page = papers.papers_tables()
    cells = "Li et al. 2024, Figure 2 | a curve | [A, b](#a-b); [C](#c) | 2 of 3 | this; that"
    assert f"| `ssvi-figure-2` | {cells} |" in page
    assert "| `ours` |  | own |  | 0 of 0 |  |" in page
    assert papers.source_of("sharing-10") == "Lin et al. 2025, Table 10"


def baseline_row(accuracy, seed=0, **settings):
    row = {"row": "bayes-by-backprop", "model": "resnet18", "data": "cifar10", "epochs": 60}
    row |= {"method": {"beta": 0.01, "weight_decay": 0.002}, "estimator": "weight", "seed": seed}
    row |= {"accuracy": accuracy, "nll": 0.2, "ece": 0.01, "file_bytes": 7, "train_seconds": 50}
    row |= {"hardware": "H", "torch": "2", "command": "python b.py", "commit": "c"}
    return row | {"settings": settings}


def test_baselines_with_other_settings_are_other_lines(results):
    usual, repeated = baseline_row(0.5), baseline_row(0.93) | {"beside_other_work": True}
    results("baselines", usual, repeated, baseline_row(0.94, std_init=0.003))
    page = training.baselines()
    assert "| 0.01 | 0.002 |  | weight | 1 | 93.00 |" in page
    assert "| 0.01 | 0.002 | std_init=0.003 | weight | 1 | 94.00 |" in page
    assert page.count("| 50 s* |") == 1
    assert page.count("| 50 s |") == 1


def test_lines_of_dense_vi_that_are_as_good_as_meant_are_named(results):
    others = [
        {"accuracy": 0.93}, {"nll": 0.21}, {"ece": 0.02}, {"epochs": 200}, {"row": "deterministic"},
    ]  # fmt: skip
    lines = [baseline_row(0.94, prior_std=n) | o for n, o in enumerate(others)]
    results("baselines", *lines, baseline_row(0.93))
    assert "met in all three by no line." in training.baselines()
    results("baselines", *lines, baseline_row(0.93), baseline_row(0.941, seed=1))
    named = "met in all three by bayes-by-backprop (beta=0.01 weight_decay=0.002)."
    assert named in training.baselines()
    results("baselines", baseline_row(0.94, cutout=True))
    assert "(beta=0.01 weight_decay=0.002 cutout=True)." in training.baselines()


def spoilt_row(corruption, severity, accuracy, file="small-cifar10-rigl-0.05-0.pocket", **changed):
    known = {"file": file, "network": "small", "data": "cifar10", "samples": 10, "bytes": 1234}
    known |= {"corruption": corruption, "severity": severity, "accuracy": accuracy}
    known |= {"estimator": "weight", "nll": 1, "ece": 0.1, "command": "c.py", "commit": "c"}
    return known | changed


def test_corruptions_are_means_by_severity_and_by_kind(results):
    row, beside = spoilt_row, "small-cifar10-deterministic-0.pocket"
    results(
        "corruptions", row("fog", 5, 0.0), row("none", 0, 0.9),
        row("fog", 5, 0.5), row("fog", 1, 0.8), row("snow", 5, 0.2), row("snow", 1, 0.6),
        row("snow", 1, 0.4, beside, estimator="none"),
        row("fog", 1, 0.1) | {"network": "large"}, row("fog", 1, 0.3) | {"samples": 30},
        row("fog", 1, 0.3) | {"data": "svhn"},
    )  # fmt: skip
    page, other = corruptions.corruptions().split("### large, cifar10, 10 samples")
    assert "### small, cifar10, 10 samples" in page
    start = "| rigl-0.05-0 | 1,234 | weight |"
    first = page.index(f"{start} 0 | 1 | 90.00 | 1.000 | 0.1000 |")
    second = page.index(f"{start} 1 | 2 | 70.00 |")
    third = page.index(f"{start} 5 | 2 | 35.00 |")
    assert first < second < third < page.index(f"{start} all but 0 | 4 | 52.50 |")
    assert "| deterministic-0 | 1,234 |  | 1 | 1 | 40.00 |" in page
    assert "| corruption | deterministic-0 | rigl-0.05-0 |" in page  # as they stand elsewhere
    assert "| fog |  | 65.00 |" in page
    assert "| snow | 40.00 | 40.00 |" in page
    assert "none |" not in page
    assert "| 1 | 1 | 10.00 |" in other


def test_networks_at_a_glance_are_corruptt_apart_and_absent_methods_named(results):
    row = spoilt_row
    results("corruptions", row("fog", 1, 0.99, "long-0.pocket"), row("fog", 1, 0.5))
    page, longer = corruptions.corruptions().split("### small, cifar10, 10 samples, networks at a")
    absent = page.split("Not measured: ")[1].split("\n")[0]
    assert "rigl-0.05" not in absent
    assert {"deterministic", "subspace-0.01", "chain-shared."} <= set(absent.split(", "))
    assert "| long-0 |" in longer
    assert "Not measured" not in longer
    assert "long-0" not in page


def test_corruptt_networks_that_were_made_again_are_told(results):
    name = "small-cifar10-rigl-0.05-0.pocket"
    results("corruptions", spoilt_row("fog", 1, 0.5, bytes=8))
    first = small_model(file=name, accuracy=0.9)
    results("side_by_side", first)
    again = first | {"accuracy": 0.91, "file_bytes": 8, "command": "again.py"}
    results("again/side_by_side", again | {"file_bytes": 7})
    assert "made again" not in corruptions.corruptions()  # what is spoilt is another
    results("again/side_by_side", again, again | {"estimator": "weight", "accuracy": 0.0})
    page = corruptions.corruptions()
    assert "The files of 1 of these networks had been lost" in page
    assert "at most 1.00 percentage points (small-cifar10-rigl-0.05-0)" in page
    assert "again.py" in page
    results("side_by_side", first | {"accuracy": 0.1}, first)  # that was repeated
    assert "at most 1.00 percentage points" in corruptions.corruptions()
    results("side_by_side", small_model())
    assert "had been lost" not in corruptions.corruptions()  # there is none to compare it with


def test_of_corruptt_networks_of_one_name_the_one_that_is_whole_counts(results):
    name = "small-cifar10-rigl-0.05-0.pocket"
    first = [spoilt_row("fog", 1, 0.5, sha256="a"), spoilt_row("fog", 2, 0.4, sha256="a")]
    again = [row | {"accuracy": 0.9, "sha256": "b", "bytes": 8} for row in first]

    def shown(*found):
        results("corruptions", *found)
        return corruptions.corruptions().split("### small")[1]

    start = "| rigl-0.05-0 |"
    assert f"{start} 1,234 | weight | all but 0 | 2 | 45.00" in shown(*first, *again)
    assert (
        "Where two networks of the same settings and seed were measured (1)"
        in corruptions.corruptions()
    )
    assert "differs by up to 45.00" in corruptions.corruptions()
    assert f"{start} 8 | weight | all but 0 | 2 | 90.00" in shown(first[0], *again)
    assert "Where two networks" not in corruptions.corruptions()
    assert f"{start} 1,234 | weight | all but 0 | 2 | 45.00" in shown(*first, again[0])
    results("side_by_side", small_model(file=name, file_bytes=8))
    assert f"{start} 8 | weight | all but 0 | 2 | 90.00" in shown(*first, *again)


def test_sizes_of_corruptt_networks_are_those_of_todays_format(results):
    results("corruptions", spoilt_row("fog", 1, 0.5))
    saved = {"file": "small-cifar10-rigl-0.05-0.pocket", "bytes_now": 1000}
    results("resaved", saved | {"file_bytes": 99})
    assert "| rigl-0.05-0 | 1,234 |" in corruptions.corruptions()
    results("resaved", saved | {"file_bytes": 1234})
    assert "| rigl-0.05-0 | 1,000 |" in corruptions.corruptions()


def test_a_shared_network_that_was_repeated_counts_once(results):
    def row(accuracy, seed=0, **changed):
        settings = {"pretrain_epochs": 9, "epochs": 5, "beta": 0.01}
        known = {"row": "sharing", "model": "resnet20", "stage": "shared", "change": "none"}
        known |= {"estimator": "weight", "seed": seed, "settings": settings, "file_bytes": 7}
        known |= {"accuracy": accuracy, "nll": 0.2, "ece": 0.01}
        return known | {"command": "s.py", "commit": "c"} | changed

    results("sharing", row(0.1), row(0.9), row(0.8, seed=1))
    assert "| 9 + 5 | 0.01 | 2 | 85.00 ± 5.00 |" in sharing.sharing()
    parent = {"row": "mean-field", "stage": "", "file_bytes": 2_177_088}
    results("sharing", row(0.9, **parent))
    assert "| 2,177,088 (plain) |" in sharing.sharing()
    results("sharing", row(0.9, **parent), row(0.8, seed=1, **parent | {"file_bytes": 463_334}))
    assert "| 463,334 (of 1) |" in sharing.sharing()
