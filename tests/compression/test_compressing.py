"""`compress`: files that fit, the front, the head; what it leaves alone, what it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.compression import chain
from pocketbayes.compression.chain import Chain, Settings
from pocketbayes.compression.traits import density_of, tuning_of
from pocketbayes.data import MemoryLoader, open_dataset, with_validation


@pytest.fixture(scope="module", autouse=True)
def _fast():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chain, "_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def digits():
    train, validation = with_validation(open_dataset("digits", "train"))
    return MemoryLoader(train, 128, shuffle=True), MemoryLoader(validation, 500)


def network(*layers):
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Flatten(), *layers))


@pytest.fixture(scope="module")
def model(digits):
    made = network(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    pb.fit(made, digits[0], epochs=20, progress=False)
    return made


def compressed(model, digits, **options):
    known = {"epochs": 8, "num_samples": 5, "progress": False, "one_pass": False}
    return pb.compress(model, *digits, **(known | options))


@pytest.fixture(scope="module")
def small(model, digits):
    return compressed(model, digits, target_bytes=2600)


def test_the_whole_file_fits_and_is_what_was_measured(small, digits, tmp_path):
    path = tmp_path / "small.pocket"
    assert small.save(path) == path.stat().st_size == small.bytes <= 2600
    assert small.bytes == small.chosen.bytes > 0.85 * 2600
    back = pb.load(path, nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(),
                                       nn.Linear(64, 10)))  # fmt: skip
    for found in (back, small.model):
        record = pb.evaluate(found, digits[1], 5, generator=torch.Generator().manual_seed(0))
        assert record.nll == pytest.approx(small.chosen.record.nll, abs=1e-6)


def test_the_best_of_the_front_is_chosen_and_shown(small):
    fitting = [c for c in small.front if c.bytes <= 2600]
    assert small.chosen.record.nll == min(c.record.nll for c in fitting)
    assert small.chosen.record.nll < small.before.record.nll + 0.15
    assert [row["chosen"] for row in small.rows()].count(True) == 1
    lines = str(small).splitlines()
    assert sum(line.startswith("> ") for line in lines) == 1
    assert sum("before: " in line for line in lines) == 1
    best = min(small.front, key=lambda c: c.record.nll)
    assert f"{best.bytes:,}" in str(small)
    shown = [c for c in small.front if f" {c.bytes:,} " in str(small)]
    assert 2 < len(shown) < len(small.front)  # what others beat in everything is left out
    sizes = [row["bytes"] for row in small.rows()]
    assert sizes == sorted(sizes)
    dense = 64 * 64 + 64 * 10
    assert small.before.multiplications == dense
    assert small.chosen.multiplications == round(small.chosen.density * dense)
    assert all(c.milliseconds > 0 for c in small.front)


def test_the_given_model_and_the_generators_stay_as_they_were(model, digits):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    compressed(model, digits, epochs=0, target_bytes=3000)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert model.training


def test_the_same_seed_gives_the_same_bytes(model, digits):
    first, again = (compressed(model, digits, target_bytes=2600, epochs=2) for _ in "ab")
    assert first.file == again.file


def test_what_was_given_is_what_is_compared_with(digits):
    """Inclusion variables go with the first pruning, and not before."""
    made = network(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    pb.fit(made, digits[0], pb.SpikeSlab(), epochs=20, progress=False)
    small = compressed(made, digits, max_drop=0.02, epochs=20)
    generator = torch.Generator().manual_seed(0)
    given = pb.evaluate(made, digits[1], 5, generator=generator)
    assert small.before.density == 1
    assert small.before.record.nll == pytest.approx(given.nll, abs=0.02)
    assert small.chosen.record.accuracy >= given.accuracy - 0.03


def test_files_of_own_networks_run_without_torch(digits, tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x.flatten(1)).relu()

    torch.manual_seed(0)
    made = pb.bayesianize_(Own())
    pb.fit(made, digits[0], epochs=2, progress=False)
    small = compressed(made, digits, target_bytes=10**5)
    assert small.save(tmp_path / "m.pocket") == small.bytes
    assert pb.inspect(tmp_path / "m.pocket").program is not None


def test_an_ensemble_is_said_not_to_be_trained(digits, capfd):
    made = network(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    result = pb.fit(made, digits[0], pb.DeepEnsemble(members=2), epochs=2, progress=False)
    compressed(result.model, digits, target_bytes=10**5, progress=True)
    assert "not trained on" in capfd.readouterr().err


def test_training_on_pays(model, digits, small):
    untrained = compressed(model, digits, target_bytes=2600, epochs=0)
    assert small.chosen.record.nll < untrained.chosen.record.nll


def test_an_unsure_model_does_not_teach_its_doubt(digits):
    """After few epochs it is far less sure than right; labels alone mend that."""
    made = network(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    pb.fit(made, digits[0], epochs=8, progress=False)
    small = compressed(made, digits, target_bytes=3200, epochs=40)
    taught = compressed(made, digits, target_bytes=3200, epochs=40, teacher=made)
    assert small.chosen.density < 1
    assert small.chosen.record.nll < small.before.record.nll - 0.1
    assert small.chosen.record.nll < taught.chosen.record.nll - 0.1


def test_beta_goes_on_as_it_was(digits):
    followed = network(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    pb.fit(followed, digits[0], epochs=1, progress=False)
    method = tuning_of(followed)
    assert (method.least_beta, method.beta) == (0.05, 0.3)
    pb.fit(followed, digits[0], pb.MeanField(beta=0.7), epochs=1, progress=False)
    method = tuning_of(followed)
    assert (method.least_beta, method.beta) == (None, 0.7)


def test_tuning_begins_without_a_heavy_kl(digits):
    made = network(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    assert tuning_of(made).warmup == 0.5  # nothing is known of it
    for beta, warmup in ((0.01, 0), (0.09, 0), (0.1, 0.5), (1.0, 0.5)):
        pb.fit(made, digits[0], pb.MeanField(beta=beta), epochs=1, progress=False)
        assert tuning_of(made).warmup == warmup


def test_a_small_table_learned_in_a_short_time_is_not_forgotten():
    """The KL of stds that had no time to widen would pull all weights to the prior."""
    data = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    x, y = torch.tensor(data.data).float(), torch.tensor(data.target)
    x = (x - x.mean(0)) / x.std(0)
    hidden = [nn.Linear(30, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
    made = network(*hidden, nn.Linear(128, 2))
    loader = DataLoader(TensorDataset(x[:340], y[:340]), 128, shuffle=True)
    pb.fit(made, loader, epochs=10, progress=False)
    pb.prune_(made, 0.34, by="snr")
    pb.fit(made, loader, tuning_of(made), epochs=80, progress=False)
    record = pb.evaluate(made, [(x[340:], y[340:])], 10, generator=torch.Generator())
    assert record.nll < 0.4  # the labels' own entropy is 0.63


def test_without_a_size_the_smallest_file_that_loses_little(model, digits):
    small = compressed(model, digits, max_drop=0.02)
    least = small.before.record.accuracy - 0.02 - 1e-9
    most = small.before.record.nll + 0.08 + 1e-9
    good = [c for c in small.front if c.record.accuracy >= least and c.record.nll <= most]
    assert small.bytes <= 1.02 * min(c.bytes for c in good) < small.before.bytes
    assert len(good) < len(small.front)  # it went as far as it could


def test_multiplications_are_kept_to(model, digits):
    small = compressed(model, digits, max_multiplications=900)
    assert small.chosen.multiplications <= 900
    assert pb.multiplications(small.model, next(iter(digits[1]))[0][:1]).sparse <= 900


@pytest.mark.parametrize("size", [3000, 100_000])
def test_limits_of_bytes_and_multiplications_are_kept_together(model, digits, size):
    small = compressed(model, digits, max_multiplications=900, target_bytes=size, epochs=2)
    assert small.chosen.multiplications <= 900
    assert small.bytes <= size


def test_a_head_keeps_to_the_limits_too(digits, monkeypatch):
    made = network(nn.Linear(64, 150), nn.ReLU(), nn.Linear(150, 10))
    pb.fit(made, digits[0], epochs=10, progress=False)
    measured = chain.Chain.measured

    def worse_by_one_pass(self, model):
        found = measured(self, model)
        is_head = found.estimator == "one_pass"
        return replace(found, accuracy=found.accuracy - 0.01) if is_head else found

    monkeypatch.setattr(chain.Chain, "measured", worse_by_one_pass)
    options = {"target_bytes": 10**6, "one_pass": True, "epochs": 0}
    assert compressed(made, digits, **options, max_drop=0.02).one_pass is not None
    before = compressed(made, digits, **options, max_drop=0.0)
    assert before.one_pass is None


def test_a_head_is_part_of_the_file_and_of_its_limit(digits):
    made = network(nn.Linear(64, 150), nn.ReLU(), nn.Linear(150, 10))
    pb.fit(made, digits[0], epochs=40, progress=False)
    small = compressed(made, digits, target_bytes=15_000, one_pass=True)
    assert small.one_pass is not None
    assert small.bytes == small.one_pass.bytes <= 15_000
    x = next(iter(digits[1]))[0]
    assert pb.predict(small.model, x).estimator == "one_pass"
    assert small.one_pass.record.estimator == "one_pass"
    assert small.chosen.bytes < small.one_pass.bytes


def test_a_head_that_would_fill_the_file_is_left_out(model, digits, capfd):
    small = compressed(model, digits, max_drop=0.02, one_pass=True, progress=True)
    assert small.one_pass is None
    assert small.bytes == small.chosen.bytes
    assert "the one-pass head is left out" in capfd.readouterr().err


def test_a_loss_of_all_accuracy_is_no_limit(model, digits):
    with pytest.raises(pb.PocketBayesError, match="one point"):
        compressed(model, digits, max_drop=1.5)


def test_an_unreachable_size_names_the_smallest_file(model, digits):
    with pytest.raises(pb.PocketBayesError, match=r"300 bytes.*smallest file was [0-9,]+"):
        compressed(model, digits, target_bytes=300)
    with pytest.raises(pb.PocketBayesError, match=r"2,500 bytes and a loss of at most 0.*smallest"):
        compressed(model, digits, target_bytes=2500, max_drop=0, epochs=0)


def test_values(monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = (2 * x[:, :1] + x[:, 1:2] ** 2) / 2 + 0.1 * torch.randn(400, 1)
    loaders = [DataLoader(TensorDataset(*part), 64, shuffle=True) for part in
               ((x[:300], y[:300]), (x[300:], y[300:]))]  # fmt: skip
    made = pb.bayesianize_(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    pb.fit(made, loaders[0], epochs=60, likelihood="gaussian", progress=False)
    small = compressed(made, loaders, max_drop=0.1, epochs=40)
    assert small.bytes < small.before.bytes
    assert small.chosen.record.rmse <= 1.1 * small.before.record.rmse + 1e-9


@pytest.mark.parametrize("kind", ["plain", "ensemble", "dropout", "spike-and-slab"])
def test_other_kinds_of_models(kind, digits):
    layers = nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 10)
    method = {"plain": pb.Deterministic(), "ensemble": pb.DeepEnsemble(members=2),
              "dropout": pb.MCDropout(), "spike-and-slab": pb.SpikeSlab()}[kind]  # fmt: skip
    made = pb.fit(network(*layers), digits[0], method, epochs=4, progress=False).model
    size = compressed(made, digits, max_drop=0.99, epochs=0).before.bytes
    target = round(0.9 * size)
    small = compressed(made, digits, target_bytes=target, epochs=1, one_pass=True)
    assert small.bytes <= target
    assert small.chosen.density < 1 or small.chosen.tolerance > 0.01
    by = {"plain": pb.Deterministic, "dropout": pb.MCDropout, "spike-and-slab": pb.MeanField}
    assert kind == "ensemble" or type(tuning_of(made)) is by[kind]


def test_training_lasts_a_quarter_of_the_models_own_and_500_steps(model, digits, tmp_path):
    settings = Settings(None, None, 8, 2, 0, "categorical", {})
    x = next(iter(digits[1]))[0][:1]
    made = Chain(model, model, digits[0], list(digits[1]), x, tmp_path, settings)
    assert len(digits[0]) * (made.epochs() - 1) < 500 <= len(digits[0]) * made.epochs()
    few = Chain(model, model, [0] * 1000, list(digits[1]), x, tmp_path, settings)
    assert few.epochs() == math.ceil(20 / 4)


def test_density_leaves_vectors_out():
    made = pb.bayesianize_(nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10)))
    pb.prune_(made, 0.25)
    assert density_of(made) == 0.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_bytes": 0}, "target_bytes"),
        ({"max_drop": -1}, "max_drop"),
        ({"max_multiplications": 1.5}, "max_multiplications"),
        ({"epochs": -1}, "epochs"),
        ({"num_samples": 0}, "num_samples"),
        ({"components": 1}, "components"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_calls(model, digits, options, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        compressed(model, digits, **options)


def test_there_must_be_validation_data_and_a_model(model, digits):
    with pytest.raises(pb.PocketBayesError, match="val_loader is empty"):
        pb.compress(model, digits[0], [])
    with pytest.raises(pb.PocketBayesError):
        pb.compress("model", *digits)
    with pytest.raises(pb.PocketBayesError, match="bayesianize_"):
        pb.compress(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), *digits)
