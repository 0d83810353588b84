"""What kind of doubt a prediction has, in words."""

from pocketbayes.prediction.gaussian_outputs import MOMENTS, ONE_PASS
from pocketbayes.prediction.predictions import Prediction

_NOTHING_DRAWN = {ONE_PASS: "by one pass, draws would", MOMENTS: "by moments, draws would"}


def why_unsure(aleatoric: float, epistemic: float, pred: Prediction) -> str:
    """The larger part of the doubt and its share; one draw alone cannot tell the parts apart."""
    if pred.num_samples == 1:
        return "not known: a single network cannot tell"
    share = epistemic / max(aleatoric + epistemic, 1e-30)
    draws = _NOTHING_DRAWN.get(pred.estimator or "", "its draws")
    if share > 0.5:
        return f"{share:.0%} epistemic: {draws} disagree"
    return f"{1 - share:.0%} aleatoric: {draws} agree that it is ambiguous"
