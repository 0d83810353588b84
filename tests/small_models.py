"""Two small Bayesian models that several tests predict with."""

import math

import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.description import add_noise_parameter, update_description


def classifier(std=0.3, **options) -> nn.Module:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 3))
    return pb.bayesianize_(net, std_init=std, **options)


def regressor(noise=0.5, outputs=2) -> nn.Module:
    torch.manual_seed(1)
    model = pb.bayesianize_(nn.Linear(4, outputs), std_init=0.3)
    add_noise_parameter(model, (outputs,))
    model.noise_log_std.data.fill_(math.log(noise))
    update_description(model, likelihood="gaussian")
    return model
