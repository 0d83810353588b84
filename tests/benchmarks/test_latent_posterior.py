"""LP-BNN: what its weights are, the terms of its loss, and what its file brings back."""

import sys
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal, kl_divergence

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import latent_posterior  # noqa: E402

import pocketbayes as pb  # noqa: E402
from pocketbayes.models import build_network  # noqa: E402

MLP = {"input_shape": (5,), "num_outputs": 1, "hidden": (8,)}
IMAGE = {"input_shape": (1, 12, 12), "num_outputs": 3}


def plain(base, **options):
    torch.manual_seed(0)
    return latent_posterior.scaled_(build_network(base, **options))


def made(base="mlp", **options):
    return latent_posterior.encoded_(plain(base, **(options or MLP)))


def layers_of(model):
    return [m for m in model.modules() if hasattr(m, "parametrizations")]


def scales_of(layer):
    return layer.parametrizations.weight[0]


def of_members(layer, draws=40):
    """Draws of a layer's weight over its point, by whose turn it was."""
    point, scales = layer.parametrizations.weight.original, scales_of(layer)
    found = {}
    for _ in range(draws):
        scales.turn(None, ())
        found.setdefault(scales.turn.member, []).append((layer.weight / point).detach())
    return found


@pytest.mark.parametrize(("base", "options"), [("mlp", MLP), ("lenet5", IMAGE)])
def test_a_draw_is_the_point_times_two_vectors_of_one_member(base, options):
    """Any member's turn comes in 40 draws: false alarm 4e-5. Outputs differ by members alone."""
    for layer in layers_of(made(base, **options)):
        found = of_members(layer)
        assert sorted(found) == list(range(latent_posterior.MEMBERS))
        for member, draws in found.items():
            outputs = scales_of(layer).outputs[member].detach()
            first, last = (
                d.flatten(2)[..., 0] if d.dim() > 2 else d for d in draws[:: len(draws) - 1]
            )
            for ratio in (first, last):
                values = torch.linalg.svdvals(ratio)
                assert values[1:].sum() < 1e-5 * values[0]
            torch.testing.assert_close(
                first[:, 0] / first[0, 0], outputs / outputs[0], rtol=1e-4, atol=1e-5
            )
            assert not torch.allclose(first, last)  # the inputs' vector is drawn


def test_all_layers_have_the_same_members_turn():
    model = made()
    turns = {id(scales_of(layer).turn) for layer in layers_of(model)}
    assert len(turns) == 1
    seen = set()
    for _ in range(40):
        model(torch.zeros(2, 5))
        seen.add(scales_of(layers_of(model)[0]).turn.member)
    assert len(seen) == latent_posterior.MEMBERS


def test_the_loss_has_the_kl_of_the_latents_and_the_error_of_decoding():
    """The error against 20,000 draws: within 5 standard errors, false alarm 6e-7."""
    model = made()
    for layer in layers_of(model):
        scales = scales_of(layer)
        (_, q), *_ = pb.named_posteriors(scales)
        with torch.no_grad():
            q.to_log_std.weight.normal_()
            latents = Normal(q.mean, q.std)
            decoded = scales.decoder(latents.sample((20_000,)))
            errors = (q.fixed - decoded).square().sum((1, 2))
            expected = kl_divergence(latents, Normal(0.0, 1.0)).sum() + errors.mean()
            assert abs(q.kl() - expected) < 5 * errors.std() / 20_000**0.5


def test_encoders_and_decoders_learn_and_a_file_brings_back_what_they_say(tmp_path):
    torch.manual_seed(1)
    x = torch.randn(256, 5)
    loader = list(zip(x.split(64), x.sum(1).split(64), strict=True))
    model, options = made(), {"likelihood": "gaussian", "progress": False}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    method = pb.MeanField(beta=1.0, prior="fixed", lr=1e-2)
    model = pb.fit(model, loader, method, epochs=20, **options).model
    parts = ("to_mean", "to_log_std", "decoder", "outputs", "original")
    for name, parameter in model.named_parameters():
        if any(part in name for part in parts):
            assert not torch.equal(parameter, before[name]), name
    latents = {name: (q.mean.detach(), q.std.detach()) for name, q in pb.named_posteriors(model)}
    model = latent_posterior.settled_(model)
    for name, q in pb.named_posteriors(model):
        torch.testing.assert_close((q.mean.detach(), q.std.detach()), latents[name])
    pb.save(model, tmp_path / "a.pocket", tolerance=1e-3)
    again = pb.load(tmp_path / "a.pocket", plain("mlp", **MLP))
    first, second = (
        pb.predict(m, x[:50], 20, generator=torch.Generator().manual_seed(0)).mean
        for m in (model, again)
    )
    torch.testing.assert_close(first, second, atol=0.02, rtol=0)
    assert float((first.flatten() - x[:50].sum(1)).square().mean()) < 0.3 * 5  # of variance 5
