"""A model as one ONNX graph, from inputs to answers."""

import json
from typing import Any

import torch
from torch import nn

from pocketbayes import __version__
from pocketbayes.deploy.coded_weights import code_weights_
from pocketbayes.deploy.onnx_draws import NAMES, looped
from pocketbayes.deploy.onnx_tracing import refuse_hidden_draws, slim_, traced
from pocketbayes.deploy.plans import Plan
from pocketbayes.deploy.traced_modules import Answers, OneDraw, OutputDraws, Together
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import describe


def onnx_model(model: nn.Module, plan: Plan, tolerance: float | None) -> Any:
    """The ModelProto; the model's weights become codes of this tolerance."""
    known = describe(model)
    answers = Answers(model, plan.likelihood, plan.learned, plan.estimator, plan.level).eval()
    like = plan.outputs[:1].expand(plan.num_samples, *plan.outputs.shape[1:])
    answers(like)  # so it knows what it tells
    _require_free_names(plan, answers.names)
    if tolerance is not None:
        code_weights_(model, tolerance)
    names, axes = list(plan.names), [0] * len(plan.names)
    if plan.is_drawn:
        number = torch.zeros((), dtype=torch.int64)
        drawn = OneDraw(model, plan.estimator, plan.keys).eval()
        whole = [*plan.rows, number, number.clone()]
        one = traced(drawn, whole, [*names, "seed", "number"], ["output"], [*axes, None, None])
        told = traced(answers, [like], ["draws"], answers.names, [1])
        for part in (one, told):
            slim_(part)
        made = looped(one, told, plan.num_samples)
    else:
        draws = OutputDraws(model, plan.estimator, plan.num_samples, plan.keys)
        made = traced(Together(draws, answers), plan.rows, names, answers.names, axes)
        slim_(made)
    refuse_hidden_draws(made)
    facts = {
        "likelihood": plan.likelihood.name,
        "class_names": known.class_names,
        "preprocess": known.preprocess,
        "estimator": plan.estimator,
        "num_samples": plan.num_samples,
        "version": __version__,
    }
    made.metadata_props.add(key="pocketbayes", value=json.dumps(facts, sort_keys=True))
    made.producer_name, made.producer_version = "pocketbayes", facts["version"]
    return made


def _require_free_names(plan: Plan, answers: list[str]) -> None:
    """An error if an input is called as something else in the graph is."""
    for name in plan.keys or ():
        if name in answers or (plan.is_drawn and name in NAMES):
            what = "an answer" if name in answers else "a part"
            raise PocketBayesError(
                f'forward has an input named "{name}", as {what} of the ONNX file is: pass the '
                "example as a tuple, in the order of forward, and inputs are x1, x2, ..."
            )
