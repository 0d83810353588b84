"""Predictions: identities of the uncertainties, reproducibility, and manners."""

import math

import pytest
import torch
from small_models import classifier, regressor
from torch import nn
from torch.distributions import Normal

import pocketbayes as pb
from pocketbayes.prediction.inputs import examples_at_once


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def test_entropy_is_aleatoric_plus_epistemic():
    pred = pb.predict(classifier(), torch.randn(20, 4), num_samples=50, keep_samples=True)
    assert isinstance(pred, pb.ClassPrediction)
    assert pred.samples.shape == (50, 20, 3)
    torch.testing.assert_close(pred.probs, pred.samples.mean(0))
    torch.testing.assert_close(pred.entropy, -(pred.probs * pred.probs.log()).sum(1))
    torch.testing.assert_close(pred.entropy, pred.aleatoric + pred.epistemic * 49 / 50)
    torch.testing.assert_close(pred.variance, pred.samples.var(0))
    assert (pred.epistemic > 0).all()
    assert torch.equal(pred.label, pred.probs.argmax(1))
    assert torch.equal(pred.confidence, pred.probs.amax(1))


def test_averaging_logits_is_another_predictor():
    model, x = classifier(std=2.0), torch.randn(20, 4)
    by_probs = pb.predict(model, x, generator=seeded())
    by_logits = pb.predict(model, x, generator=seeded(), average="logits")
    assert by_logits.entropy.mean() < by_probs.entropy.mean()


def test_a_generator_makes_it_reproducible_and_the_global_one_is_left_alone():
    model, x = classifier(), torch.randn(600, 4)
    state = torch.get_rng_state()
    one = pb.predict(model, x, generator=seeded(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.probs, pb.predict(model, x, generator=seeded(3)).probs)
    assert not torch.equal(one.probs, pb.predict(model, x, generator=seeded(4)).probs)
    generator = seeded(3)
    pb.predict(model, x, generator=generator)
    assert not torch.equal(one.probs, pb.predict(model, x, generator=generator).probs)


def test_samples_agree_with_running_the_model():
    """The mean over 2,000 samples against the same from plain passes; |z| < 5."""
    model, x = classifier(std=0.5).eval(), torch.randn(3, 4)
    pred = pb.predict(model, x, num_samples=2000, keep_samples=True)
    with torch.no_grad():
        plain = torch.stack([model(x).softmax(1) for _ in range(2000)])
    error = (pred.variance / 2000 + plain.var(0) / 2000).sqrt()
    assert ((pred.probs - plain.mean(0)) / error).abs().max() < 5


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
def test_the_first_layers_moments_are_reused_but_not_its_noise(estimator):
    model = pb.bayesianize_(nn.Linear(4, 3), std_init=0.5)
    pred = pb.predict(model, torch.randn(5, 4), 6, keep_samples=True, estimator=estimator)
    assert (pred.samples.std(0) > 0).all()


def test_moments_are_not_reused_when_the_input_changes_under_the_model():
    class Drifting(nn.Module):
        """Adds one to its input in place: every pass would see another input."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x.add_(1))

    model = pb.bayesianize_(Drifting(), std_init=1e-9)
    x = torch.randn(5, 4)
    before = x.clone()
    pred = pb.predict(model, x, num_samples=5, keep_samples=True)
    assert torch.equal(x, before)
    torch.testing.assert_close(pred.samples[0], pred.samples[-1])


def test_shapes_single_examples_and_iterators():
    model = classifier()
    x = torch.randn(7, 4)
    assert pb.predict(model, x).probs.shape == (7, 3)
    assert pb.predict(model, x[:1]).probs.shape == (1, 3)
    single = pb.predict(model, x[0], keep_samples=True, num_samples=5)
    assert (single.probs.shape, single.entropy.shape) == ((3,), ())
    assert single.samples.shape == (5, 3)
    labels = torch.zeros(7)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), batch_size=3)
    assert pb.predict(model, loader).probs.shape == (7, 3)
    assert pb.predict(model, iter([x, x])).probs.shape == (14, 3)
    assert pb.predict(model, x, batch_size=2).probs.shape == (7, 3)


def batches_of(net, x):
    seen = []
    net.register_forward_pre_hook(lambda net, x: seen.append(len(x[0])))
    pb.predict(pb.bayesianize_(net), x, num_samples=1)
    return seen


def test_small_examples_are_taken_more_at_a_time():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(1024, 2))
    assert batches_of(flat, torch.zeros(1030, 1, 32, 32)) == [1024, 6]
    larger = nn.Sequential(nn.Flatten(), nn.Linear(1025, 2))
    assert batches_of(larger, torch.zeros(300, 1025)) == [256, 44]
    assert batches_of(nn.Linear(2, 4097), torch.zeros(300, 2)) == [256, 44]
    images = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(1024, 2))
    assert batches_of(images, torch.zeros(300, 1, 32, 32)) == [256, 44]
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4, 2))
    assert batches_of(words, torch.zeros(300, 1, dtype=torch.long)) == [256, 44]


@pytest.mark.parametrize(
    ("shape", "on_gpu", "on_cpu"), [((3, 32, 32), 1024, 256), ((4, 32, 33), 256, 256)]
)
def test_a_gpu_takes_more_images_at_a_time(shape, on_gpu, on_cpu):
    images = pb.bayesianize_(nn.Sequential(nn.Conv2d(shape[0], 1, 1), nn.Flatten()))
    x = torch.zeros(2, *shape)
    assert examples_at_once(images, x, torch.device("cuda")) == on_gpu
    assert examples_at_once(images, x, torch.device("cpu")) == on_cpu
    wide = pb.bayesianize_(nn.Linear(2, 4097))
    assert examples_at_once(wide, torch.zeros(2, 2), torch.device("cuda")) == 256


def test_a_single_image():
    model = pb.bayesianize_(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 5))
    )
    assert pb.predict(model, torch.randn(3, 6, 6)).probs.shape == (5,)
    assert pb.predict(model, torch.randn(2, 3, 6, 6)).probs.shape == (2, 5)


def test_everything_is_left_as_found_also_after_an_error():
    model = classifier()
    model[2].eval()
    modes = [m.training for m in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}

    def check():
        assert [m.training for m in model.modules()] == modes
        assert model[0]._posteriors.estimator == "lrt"
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
        assert torch.is_grad_enabled()

    pb.predict(model, torch.randn(3, 4), estimator="weight")
    check()
    with pytest.raises(pb.DataError, match=r"cannot run on an input of shape \(3, 5\)"):
        pb.predict(model, torch.randn(3, 5), estimator="weight", generator=seeded())
    check()


def test_dropout_is_off_and_the_mean_network_is_certain():
    model, x = classifier(), torch.randn(9, 4)
    pred = pb.predict(model, x, estimator="mean")
    assert pred.epistemic.abs().max() < 1e-6
    model.eval()
    torch.testing.assert_close(pred.probs, pb.predict(model, x, 1, estimator="mean").probs)


def test_regression_is_the_mixture_of_its_samples():
    model, x = regressor(noise=0.5), torch.randn(6, 4)
    pred = pb.predict(model, x, num_samples=400)
    assert isinstance(pred, pb.ValuePrediction)
    torch.testing.assert_close(pred.std.square(), pred.aleatoric + pred.epistemic)
    torch.testing.assert_close(pred.aleatoric, torch.full((6, 2), 0.25))
    torch.testing.assert_close(pred.mean, pred.samples.mean(0))
    low, high = pred.interval(0.9)
    torch.testing.assert_close(pred.cdf(low), torch.full((6, 2), 0.05), atol=1e-4, rtol=0)
    torch.testing.assert_close(pred.cdf(high), torch.full((6, 2), 0.95), atol=1e-4, rtol=0)
    y = Normal(pred.samples, 0.5).sample()
    inside = ((y >= low) & (y <= high)).double().mean()
    assert abs(inside - 0.9) < 5 * math.sqrt(0.09 / y.numel())


def test_regression_without_learned_noise_has_only_epistemic_variance():
    model = pb.bayesianize_(nn.Linear(4, 1), std_init=0.3)
    with pytest.warns(UserWarning, match="refresh_noise_"):
        pred = pb.predict(model, torch.randn(6, 4), likelihood="gaussian")
    assert pred.aleatoric.max() < 2e-12
    torch.testing.assert_close(pred.variance, pred.epistemic)
    low, high = pred.interval(0.5)
    assert (low < high).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "num_samples must be a whole number of at least 1; got 0"),
        ({"num_samples": 2.5}, "num_samples"),
        ({"batch_size": -1}, "batch_size"),
        ({"average": "mean"}, "average must be one of probs, logits"),
        ({"estimator": "mcmc"}, "estimator must be one of"),
        ({"likelihood": "cauchy"}, "likelihood must be one of"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.predict(classifier(), torch.randn(2, 4), **arguments)


@pytest.mark.parametrize("x", [torch.zeros(0, 4), [], "text", {"x": 1}, [{"x": 1}], 3])
def test_bad_inputs(x):
    with pytest.raises(pb.DataError):
        pb.predict(classifier(), x)


def test_other_refusals():
    with pytest.raises(pb.PocketBayesError, match="call bayesianize_"):
        pb.predict(nn.Linear(4, 3), torch.randn(2, 4))
    with pytest.raises(pb.DataError, match="returns a tuple"):
        pb.predict(pb.bayesianize_(nn.LSTM(4, 4)), torch.randn(2, 3, 4))
    with pytest.raises(pb.PocketBayesError, match="coverage"):
        pb.predict(regressor(), torch.randn(2, 4)).interval(90)
    flat = pb.bayesianize_(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)))
    with pytest.raises(pb.DataError, match="Is this a regression"):
        pb.predict(flat, torch.randn(2, 4))


def test_a_single_example_has_a_label_and_a_confidence():
    pred = pb.predict(classifier(), torch.randn(4))
    assert pred.label == pred.probs.argmax()
    assert pred.confidence == pred.probs.max()


def test_it_works_in_inference_mode():
    with torch.inference_mode():
        pred = pb.predict(classifier(), torch.randn(3, 4))
    assert pred.probs.shape == (3, 3)


def test_training_tells_what_a_batch_looks_like():
    class Unsqueezing(nn.Module):
        """Takes (N, 8, 8): to a guess from its convolution, one image with N channels."""

        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))

        def forward(self, x):
            return self.body(x.unsqueeze(1))

    model = pb.bayesianize_(Unsqueezing())
    x = torch.randn(6, 8, 8)
    assert pb.predict(model, x, single=False).probs.shape == (6, 3)
    pb.fit(model, [(x, torch.randint(3, (6,)))], epochs=1, progress=False, device="cpu")
    assert pb.predict(model, x).probs.shape == (6, 3)
    assert pb.predict(model, x[0]).probs.shape == (3,)
    assert pb.evaluate(model, [(x, torch.randint(3, (6,)))]).num_examples == 6


def test_two_output_sizes_on_the_same_input_are_kept_apart():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose1d(1, 1, 3, stride=2, padding=1)

        def forward(self, x):
            return self.up(x, output_size=[9]).sum(2) + self.up(x, output_size=[10]).sum(2)

    model = pb.bayesianize_(Twice())
    draws = pb.predict(model, torch.randn(4, 1, 5), likelihood="poisson").samples
    with torch.no_grad():
        assert model(torch.randn(4, 1, 5)).shape == draws.shape[1:]


def test_one_output_of_a_model_without_likelihood_is_asked_about():
    model = pb.bayesianize_(nn.Linear(3, 1))
    with pytest.raises(pb.DataError, match="pass likelihood="):
        pb.predict(model, torch.randn(2, 3))
    with pytest.raises(pb.DataError, match="pass likelihood="):
        pb.evaluate(model, [(torch.randn(2, 3), torch.randn(2))])
    assert pb.predict(model, torch.randn(2, 3), likelihood="poisson").mean.shape == (2, 1)


def test_double_inputs_are_told_how_to_be_converted():
    with pytest.raises(pb.DataError, match=r"\.float\(\)"):
        pb.predict(pb.bayesianize_(nn.Linear(3, 2)), torch.randn(2, 3).double())
