"""`BayesClassifier`: classes with calibrated probabilities."""

import os
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils.multiclass import (  # type: ignore[import-untyped]
    check_classification_targets,
)
from sklearn.utils.validation import validate_data  # type: ignore[import-untyped]

from pocketbayes.errors import FormatError
from pocketbayes.estimators.base import BayesEstimator, of_rows, rows_that_count
from pocketbayes.prediction import ClassPrediction


class BayesClassifier(ClassifierMixin, BayesEstimator):  # type: ignore[misc]
    """A Bayesian network as a scikit-learn classifier; inputs are standardised inside.

    Args:
        hidden: widths of the hidden layers.
        method: how to train, a config such as `Subspace(density=0.1)`; None: `MeanField()`.
        epochs: passes over the data; None: as `fit` does.
        batch_size: rows in a batch; None: by the number of rows.
        num_samples: draws of the weights that a prediction averages.
        random_state: a number makes training and predictions repeat.
        device: where to train, "cpu", "cuda" or "auto"; afterwards the model is on the CPU.
        verbose: show a progress bar on stderr.

    Attributes:
        model_: the Bayesian torch model, with the scales inside: `pb.predict(model_, x)` takes
            inputs in their own units.
        classes_: the labels, in the order of the columns of `predict_proba`.
        n_features_in_: number of features.
        feature_names_in_: their names, if the inputs had any.
        history_: loss, accuracy, ... of each epoch.

    Example:
        >>> classifier = BayesClassifier(random_state=0).fit(X_train, y_train)
        >>> classifier.predict_proba(X_test)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on rows `X` with labels `y`.

        Weights are relative: a row of weight 2 is seen twice as often as one of weight 1, and one
        of weight 0 not at all; the number of examples in the KL's scale stays that of rows.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        rows, weights = rows_that_count(X, sample_weight)
        targets = torch.from_numpy(numbers[rows].astype(np.int64))
        count = len(self.classes_)
        self.model_ = self._trained(X[rows], targets, weights, count, "categorical")
        self._describe(_storable(self.classes_), tuple(map(str, self.classes_)))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, classes) probabilities, averaged over draws of the weights."""
        parts = [p.probs for p in self._predictions(X) if isinstance(p, ClassPrediction)]
        return of_rows(parts, X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms, finite also where a probability is 0 in floating point."""
        probs = self.predict_proba(X)
        logs: np.ndarray = np.log(np.maximum(probs, np.finfo(probs.dtype).tiny))
        return logs

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        numbers = self.predict_proba(X).argmax(1)  # first: it says so if nothing is fitted
        labels: np.ndarray = self.classes_[numbers]
        return labels

    def _restore(
        self, names: tuple[str, ...] | None, target: dict[str, Any], path: str | os.PathLike[str]
    ) -> None:
        if not names:
            raise FormatError(f"{path} holds a regression: use BayesRegressor.load")
        try:
            self.classes_ = np.array(target.get("labels", names), target.get("dtype"))
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: its labels are not {target.get('dtype')!r}") from error
        if self.classes_.shape != (len(names),):
            raise FormatError(f"{path} has {len(names)} classes, but not as many labels")


def _storable(classes: np.ndarray) -> dict[str, Any]:
    """Labels as JSON and their type; nothing for others, of which a file holds the names only."""
    labels = classes.tolist()
    plain = all(isinstance(label, str | int | float) for label in labels)
    return {"labels": labels, "dtype": classes.dtype.str} if plain else {}
