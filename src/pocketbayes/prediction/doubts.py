"""What kind of doubt a prediction has, in words."""

from pocketbayes.prediction.predictions import Prediction


def why_unsure(aleatoric: float, epistemic: float, pred: Prediction) -> str:
    """The larger part of the doubt and its share; one draw alone cannot tell the parts apart."""
    if pred.num_samples == 1:
        return "not known: a single network cannot tell"
    share = epistemic / max(aleatoric + epistemic, 1e-30)
    if share > 0.5:
        return f"{share:.0%} epistemic: its draws disagree"
    return f"{1 - share:.0%} aleatoric: its draws agree that it is ambiguous"
