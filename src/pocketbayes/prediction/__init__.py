"""Predictions with uncertainty, what they hold, and how good they are."""

from pocketbayes.prediction.alone import fetched
from pocketbayes.prediction.calibrating import conformal, temperature_
from pocketbayes.prediction.calibration import Conformal
from pocketbayes.prediction.choosing import chosen_estimator
from pocketbayes.prediction.compilation import compiling
from pocketbayes.prediction.doubts import why_unsure
from pocketbayes.prediction.draws import (
    drawing,
    drawn_alone,
    draws_of,
    networks_to_run,
    one_after_another,
)
from pocketbayes.prediction.evaluation import Answers, Record, answered, evaluate, record_of
from pocketbayes.prediction.faults import fault_in_numbers, require_finite
from pocketbayes.prediction.gaussian_outputs import (
    draws_of_gaussian,
    full_precision,
    spread_normals,
)
from pocketbayes.prediction.inputs import (
    float_dtype,
    input_batches,
    labelled_batches,
    unpack,
    whole_inputs,
)
from pocketbayes.prediction.metrics import risk_coverage
from pocketbayes.prediction.moment_calibration import calibrate_moments_
from pocketbayes.prediction.moment_outputs import moment_draws
from pocketbayes.prediction.one_pass import one_pass_draws
from pocketbayes.prediction.predicting import predict
from pocketbayes.prediction.predictions import (
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
)
from pocketbayes.prediction.predictives import drawn, has_gaussian_outputs
from pocketbayes.prediction.scoring import scored
from pocketbayes.prediction.summaries import summarised

__all__ = [
    "Answers",
    "ClassPrediction",
    "Conformal",
    "LabelPrediction",
    "Prediction",
    "Record",
    "ValuePrediction",
    "answered",
    "calibrate_moments_",
    "chosen_estimator",
    "compiling",
    "conformal",
    "drawing",
    "drawn",
    "drawn_alone",
    "draws_of",
    "draws_of_gaussian",
    "evaluate",
    "fault_in_numbers",
    "fetched",
    "float_dtype",
    "full_precision",
    "has_gaussian_outputs",
    "input_batches",
    "labelled_batches",
    "moment_draws",
    "networks_to_run",
    "one_after_another",
    "one_pass_draws",
    "predict",
    "record_of",
    "require_finite",
    "risk_coverage",
    "scored",
    "spread_normals",
    "summarised",
    "temperature_",
    "unpack",
    "whole_inputs",
    "why_unsure",
]
