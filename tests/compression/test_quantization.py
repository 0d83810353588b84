"""Rounded posteriors: as many values as bits allow, no error larger than half a step."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.compression.quantization import rounded_symmetric, rounded_to_centres


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_values_errors_and_ends(bits):
    values = torch.randn(5000, dtype=torch.float64)
    centres = rounded_to_centres(values, bits)
    width = (values.max() - values.min()) / 2**bits
    assert len(centres.unique()) <= 2**bits
    assert (centres - values).abs().max() <= width / 2 + 1e-12
    if bits > 1:
        steps = rounded_symmetric(values, bits)
        scale = values.abs().max() / (2 ** (bits - 1) - 1)
        assert len(steps.unique()) <= 2**bits - 1
        assert (steps - values).abs().max() <= scale / 2 + 1e-12
        assert torch.equal(rounded_symmetric(-values, bits), -steps)
        torch.testing.assert_close(rounded_symmetric(steps, bits), steps)


def test_tensors_of_one_value_stay():
    for values in (torch.zeros(4), torch.full((4,), -3.0)):
        torch.testing.assert_close(rounded_symmetric(values, 8), values)
        assert torch.equal(rounded_to_centres(values, 4), values)


def test_a_model_is_rounded_in_place_and_its_bytes_are_counted():
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)))
    posteriors = [q for _, q in pb.named_posteriors(model)]
    with torch.no_grad():
        for q in posteriors:
            q.log_std.add_(torch.randn_like(q.log_std))
    done = pb.quantize_(model, std_bits=2)
    assert done.weights == 300
    assert done.packed_bytes == 300 * 10 / 8 + 2 * 12
    for q in posteriors:
        assert len(q.log_std.unique()) == 4
        assert q.mean.requires_grad
    with pytest.raises(pb.PocketBayesError, match="std_bits"):
        pb.quantize_(model, std_bits=0)


def test_what_has_no_std_cannot_be_quantised():
    model = pb.bayesianize_(nn.Linear(3, 2))
    data = [(torch.randn(8, 3), torch.randint(2, (8,)))]
    pb.fit(model, data, pb.Deterministic(), epochs=0, dataset_size=8, progress=False)
    with pytest.raises(pb.PocketBayesError, match="nothing to quantise"):
        pb.quantize_(model)
