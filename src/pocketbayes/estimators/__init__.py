"""Bayesian networks as scikit-learn estimators; scikit-learn is needed to use them only."""

from pocketbayes.errors import optional_module

try:
    from pocketbayes.estimators.classifier import BayesClassifier
    from pocketbayes.estimators.regressor import BayesRegressor
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "sklearn":
        raise

    class BayesClassifier:  # type: ignore[no-redef]
        """Stands for the classifier where scikit-learn is missing."""

        def __init__(self, *args: object, **kwargs: object) -> None:
            optional_module("sklearn.base", extra="sklearn")

    class BayesRegressor(BayesClassifier):  # type: ignore[no-redef]
        """Stands for the regressor where scikit-learn is missing."""


__all__ = ["BayesClassifier", "BayesRegressor"]
