"""`BayesRegressor`: values with their standard deviations and intervals."""

import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import validate_data  # type: ignore[import-untyped]
from torch import Tensor

from pocketbayes.errors import FormatError, require_number
from pocketbayes.estimators.base import BayesEstimator, of_rows, rows_that_count
from pocketbayes.estimators.scaling import column_scales, set_output_scales_
from pocketbayes.layers import describe
from pocketbayes.prediction import ValuePrediction


class BayesRegressor(RegressorMixin, BayesEstimator):  # type: ignore[misc]
    """A Bayesian network as a scikit-learn regressor, of one output or several.

    Inputs and targets are standardised inside. The noise is learned, one std per output.

    Args:
        hidden: widths of the hidden layers.
        method: how to train, a config such as `Subspace(density=0.1)`; None: `MeanField()`.
        epochs: passes over the data; None: as `fit` does.
        batch_size: rows in a batch; None: by the number of rows.
        num_samples: draws of the weights that a prediction averages; of one output there are none.
        random_state: a number makes training and predictions repeat.
        device: where to train, "cpu", "cuda" or "auto"; afterwards the model is on the CPU.
        verbose: show a progress bar on stderr.

    Attributes:
        model_: the Bayesian torch model, with the scales inside: `pb.predict(model_, x)` takes
            inputs and gives values in their own units.
        n_features_in_: number of features.
        feature_names_in_: their names, if the inputs had any.
        history_: loss, rmse, ... of each epoch, of standardised targets.

    Example:
        >>> regressor = BayesRegressor(random_state=0).fit(X_train, y_train)
        >>> mean, std = regressor.predict(X_test, return_std=True)
        >>> low, high = regressor.predict_interval(X_test, coverage=0.9)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on rows `X` with targets `y`, (rows,) or (rows, outputs).

        Weights are relative: a row of weight 2 is seen twice as often as one of weight 1, and one
        of weight 0 not at all; the number of examples in the KL's scale stays that of rows.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        self._single = y.ndim == 1
        rows, weights = rows_that_count(X, sample_weight)
        columns = y.reshape(len(y), -1)[rows].astype(np.float64)
        mean, std = column_scales(columns)
        targets = torch.from_numpy((columns - mean) / std).float()
        self.model_ = self._trained(X[rows], targets, weights, columns.shape[1], "gaussian")
        set_output_scales_(self.model_, mean, std)
        scale = {"mean": 0.0, "std": 1.0} if self._single else {"outputs": columns.shape[1]}
        self._describe(scale, None)
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of each row and, if asked, its std: sqrt(aleatoric + epistemic variance)."""
        mean, std = self._asked(X, lambda pred: (pred.mean, pred.std))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval (low, high) that holds this share of the probability."""
        share = require_number(coverage, "coverage", above=0, most=1 - 1e-9)
        return self._asked(X, lambda pred: pred.interval(share))

    def _asked(
        self, X: Any, question: Callable[[ValuePrediction], tuple[Tensor, Tensor]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two answers about each row, in the shape that targets had."""
        preds = self._predictions(X)
        parts = [question(pred) for pred in preds if isinstance(pred, ValuePrediction)]
        first, second = (of_rows(column, X) for column in zip(*parts, strict=True))
        return (first[:, 0], second[:, 0]) if self._single else (first, second)

    def _restore(
        self, names: tuple[str, ...] | None, target: dict[str, Any], path: str | os.PathLike[str]
    ) -> None:
        if names:
            raise FormatError(f"{path} holds a classification: use BayesClassifier.load")
        network = describe(self.model_).network or {"options": {}}
        one = network["options"].get("num_outputs") == 1
        self._single = one and bool(target) and "outputs" not in target

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
