"""Runs the programs of models by the reference in numpy, beside the models themselves."""

import numpy as np
import torch

import pocketbayes as pb
from pocketbayes.codec.state import plain_state
from pocketbayes.layers import drawing_by, restored_mode
from pocketbayes.programs import Weight, run, weight_names
from pocketbayes.tracing import inputs_of, program_of
from pocketbayes.tracing.networks import means_in


def names_of(model):
    return weight_names([name for name, _ in pb.named_posteriors(model)], plain_state(model))


def traced(model, *example):
    """The program of a model; `save` would also run it, which is left to the tests here."""
    return program_of(model, inputs_of(example), names_of(model))


def arrays_for(program, model):
    means, names = means_in(model), names_of(model)
    read = {o for step in program.operations for o in step.operands() if isinstance(o, Weight)}
    return {o.number: means[names[o.number]].detach().float().numpy() for o in read}


def computed(program, model, *inputs):
    """What the reference gives for each example of a batch, one by one."""
    arrays = arrays_for(program, model)
    examples = zip(*(t.numpy() for t in inputs), strict=True)
    return np.stack([run(program, arrays, *example).output for example in examples])


@torch.no_grad()
def mean_outputs(model, *inputs):
    with restored_mode(model), drawing_by(model, "mean"):
        return model.eval()(*(t.clone() for t in inputs))


def assert_same_outputs(model, *inputs, atol=1e-5):
    program = traced(model, *inputs)
    expected = mean_outputs(model, *inputs).float().numpy()
    given = computed(program, model, *inputs)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(given, expected, rtol=0, atol=atol * scale)
    return program
