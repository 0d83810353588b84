"""Options read off configs and factories: types, helps, YAML and what is refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketbayes.commands.compress import compress_flags
from pocketbayes.commands.demo import DemoOptions
from pocketbayes.commands.evaluate import EvaluateOptions, evaluate_flags
from pocketbayes.commands.flags import (
    UsageError,
    add_flags,
    described,
    given_options,
    merged,
    options_in,
    read_config,
)
from pocketbayes.commands.planning import TrainOptions, planned, train_flags
from pocketbayes.commands.predict import PredictOptions
from pocketbayes.data import DATASETS
from pocketbayes.methods import METHODS, MeanField, Method, Subspace
from pocketbayes.models import MODELS
from pocketbayes.training import suitable_batch_size


@dataclass(frozen=True, kw_only=True)
class Fancy(Method):
    """A method of a plug-in.

    Attributes:
        sparkle: how much of it, in
            glitters per second.
        stages: widths.
    """

    sparkle: float = 0.5
    stages: tuple[int, ...] = (3, 4)
    place: Path | None = None
    loud: bool = False


FLAGS = options_in(Fancy, "Options of methods", "fancy")


def config(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def test_every_option_of_every_command_is_explained():
    things = [TrainOptions, EvaluateOptions, PredictOptions, DemoOptions]
    things += [*METHODS.values(), *MODELS.values(), *DATASETS.values()]
    for thing in things:
        for flag in options_in(thing, skip=("like", "classes")).values():
            assert flag.help, (thing, flag.name)


def test_a_new_method_brings_its_flags_with_no_change_here(monkeypatch):
    monkeypatch.setitem(METHODS, "fancy", Fancy)
    flags = train_flags()
    assert flags["sparkle"].help == "how much of it, in glitters per second."
    assert "fancy" in flags["method"].help
    assert set(flags["lr"].defaults) == set(METHODS)
    given = {"data": "digits", "model": "mlp", "method": "fancy", "sparkle": 0.1, "lr": 0.2}
    assert planned(given, flags).method == Fancy(sparkle=0.1, lr=0.2)


def test_what_is_not_said_is_left_to_fit():
    plan = planned({"data": "friedman", "model": "mlp"}, train_flags())
    assert (plan.method.beta, plan.method.prior, plan.options.prior_std) == (None, None, None)
    assert plan.options.epochs is None
    plan = planned({"data": "friedman", "model": "mlp", "beta": 0.02}, train_flags())
    assert plan.method.beta == 0.02


def test_flags_have_types_defaults_and_owners():
    assert (FLAGS["sparkle"].kind, FLAGS["sparkle"].shape) == (float, "single")
    assert (FLAGS["stages"].kind, FLAGS["stages"].shape) == (int, "list")
    assert FLAGS["place"].kind is Path
    assert FLAGS["loud"].kind is bool
    assert FLAGS["lr"].help.startswith("peak learning rate")
    help_text = FLAGS["sparkle"].parameter().annotation.__metadata__[0].help
    assert help_text.endswith("(fancy; default 0.5)")


def test_shared_names_keep_each_owners_default():
    both = merged([FLAGS, options_in(MeanField, "Options of methods", "mean-field")])
    assert set(both["lr"].defaults) == {"fancy", "mean-field"}

    @dataclass(frozen=True)
    class Other:
        sparkle: int = 1

    with pytest.raises(TypeError, match="two types"):
        merged([FLAGS, options_in(Other)])

    @dataclass(frozen=True)
    class Odd:
        mapping: dict = None

    with pytest.raises(TypeError, match="cannot be"):
        options_in(Odd)


def test_descriptions_of_base_classes_count():
    assert described(MeanField)["beta"].startswith("weight of the KL")
    assert described(MeanField)["momentum"] == "of SGD."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sparkle: 1", {"sparkle": 1.0}),
        ("sparkle: 1e-3", {"sparkle": 1e-3}),
        ("stages: [5, 6]", {"stages": (5, 6)}),
        ("stages: 5,6", {"stages": (5, 6)}),
        ("stages: []", {"stages": ()}),
        ("clip-norm: 3", {"clip_norm": 3.0}),
        ("clip_norm: null", {}),
        ("loud: true", {"loud": True}),
        ("place: here", {"place": Path("here")}),
        ("", {}),
        ("# nothing", {}),
    ],
)
def test_yaml_values(text, value, tmp_path):
    assert read_config(config(tmp_path, text), FLAGS) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sparkel: 1", "no option is called 'sparkel'; did you mean 'sparkle'"),
        ("sparkle: much", "sparkle must be a number; got 'much'"),
        ("sparkle: true", "sparkle must be a number; got True"),
        ("sparkle: [1]", "sparkle must be a number"),
        ("stages: 5", "stages must be a list"),
        ("stages: [a]", "stages must be a whole number; got 'a'"),
        ("stages: [1.5]", "stages must be a whole number"),
        ("loud: 1", "loud must be true or false"),
        ("place: 3", "place must be a path"),
        ("- a", "must hold `name: value` lines"),
        ("a: [", "is not YAML"),
        ("lr: 0.1\nlr: 0.2", "'lr' is given twice"),
        ("!!python/object/apply:os.system [echo]", "is not YAML"),
    ],
)
def test_bad_yaml(text, message, tmp_path):
    with pytest.raises(UsageError) as caught:
        read_config(config(tmp_path, text), FLAGS)
    assert message in str(caught.value)
    assert "run.yaml" in str(caught.value)


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        read_config(tmp_path / "nowhere.yaml", FLAGS)


def test_flags_win_over_the_file(tmp_path):
    path = config(tmp_path, "sparkle: 0.1\nlr: 0.2")
    given = given_options({"sparkle": 0.9, "lr": None, "stages": "1,2"}, path, FLAGS)
    assert given == {"sparkle": 0.9, "lr": 0.2, "stages": (1, 2)}


@pytest.mark.parametrize(("value", "size"), [("2kB", 2000), (3000, 3000), ("1MiB", 2**20)])
def test_sizes_are_read_alike_everywhere(value, size, tmp_path):
    for flags in (train_flags(), compress_flags()):
        assert given_options({"target_bytes": value}, None, flags) == {"target_bytes": size}
        path = config(tmp_path, f"target-bytes: {value}")
        assert read_config(path, flags) == {"target_bytes": size}
        for wrong in ("lots", True, 0):
            with pytest.raises(UsageError, match=r"target.bytes.*(not|must be) a size"):
                flags["target_bytes"].parsed(wrong, "--")


def test_typer_sees_the_flags():
    def command(path: int, **values):
        pass

    parameters = add_flags(command, FLAGS).__signature__.parameters
    assert list(parameters)[:2] == ["path", "lr"]
    assert "values" not in parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "say --data"),
        ({"data": "digits"}, "say --model"),
        ({"data": "digit", "model": "mlp"}, "did you mean 'digits'"),
        ({"data": "digits", "model": "mpl"}, "did you mean 'mlp'"),
        ({"data": "digits", "model": "mlp", "method": "meanfield"}, "did you mean 'mean-field'"),
        (
            {"data": "digits", "model": "mlp", "members": 3},
            "--members is an option of csg-mcmc, deep-ens",
        ),
        ({"data": "digits", "model": "mlp", "stem": "cifar"}, "--stem is an option of resnet18"),
        ({"data": "digits", "model": "mlp", "noise": 1.0}, "--noise is an option of friedman"),
    ],
)
def test_options_that_do_not_belong_together(given, message):
    with pytest.raises(UsageError) as caught:
        planned(given, train_flags())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("examples", "size"), [(20, 16), (288, 16), (1167, 32), (1500, 64), (50_000, 128)]
)
def test_small_data_gets_small_batches(examples, size):
    assert suitable_batch_size(examples) == size


def test_evaluation_has_the_options_of_data_but_not_of_methods():
    assert "test_file" in evaluate_flags()
    assert "beta" not in evaluate_flags()


def test_a_table_is_given_as_text_or_as_a_mapping():
    flag = options_in(Subspace)["densities"]
    assert (flag.kind, flag.shape) == (float, "table")
    wanted = {"a.weight": 0.5, "b=c": 1.0}
    assert flag.parsed("a.weight=0.5,b=c=1", "--") == wanted
    assert flag.parsed({"a.weight": 0.5, "b=c": 1}, "run.yaml: ") == wanted
    for wrong in ("a", "=1", "a=x", ["a"], {"a": "x"}):
        with pytest.raises(UsageError, match="densities"):
            flag.parsed(wrong, "--")


def test_the_prior_of_a_method_that_has_its_own_reaches_it():
    given = {"data": "digits", "model": "mlp", "method": "ivon", "prior_std": 0.1}
    plan = planned(given, train_flags())
    assert (plan.method.prior_std, plan.options.prior_std) == (0.1, None)
    assert plan.to_config()["prior_std"] == 0.1
    later = planned(given | {"parent": Path("a")}, train_flags())  # which has posteriors already
    assert later.method.prior_std == 0.1
