"""What classifier and regressor share: parameters, training, draws, files."""

import copy
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    validate_data,
)
from torch import Tensor, nn

from pocketbayes.codec import FileSummary, load, save
from pocketbayes.errors import FormatError, require_count, require_truth
from pocketbayes.estimators.rows import RowLoader
from pocketbayes.estimators.scaling import column_scales, set_input_scales_
from pocketbayes.layers import bayesianize_, describe, update_description
from pocketbayes.likelihoods import likelihood_of
from pocketbayes.methods import Method
from pocketbayes.models import ScaledMLP, build_network
from pocketbayes.posteriors import isolated_randomness
from pocketbayes.prediction import Prediction, chosen_estimator, one_after_another, predict
from pocketbayes.training import fit, suitable_batch_size

NETWORK = "scaled_mlp"
_ROWS_AT_ONCE = 1024
_ONE_AT_A_TIME = threading.RLock()  # torch's generators belong to the whole process


class BayesEstimator(BaseEstimator):  # type: ignore[misc]
    """A fully connected Bayesian network behind scikit-learn's interface."""

    def __init__(
        self,
        hidden: tuple[int, ...] = (64, 64),
        *,
        method: Method | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        num_samples: int = 30,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def save(self, path: str | os.PathLike[str]) -> FileSummary:
        """Writes `model_` into one small file, scales and names included; see `pb.save`."""
        check_is_fitted(self)
        return save(self.model_, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **params: Any) -> Self:
        """An estimator that predicts by the model in a file of `save`.

        Args:
            path: the file.
            params: parameters of the estimator, `num_samples` for instance; `hidden` is the
                file's, and so are the draws, unless `random_state` is given.
        """
        model = load(path)
        known = describe(model)
        if (known.network or {}).get("name") != NETWORK:
            raise FormatError(f"{path} was not written by {cls.__name__}.save: use pb.load")
        assert known.network is not None
        options = known.network["options"]
        estimator = cls(**{"hidden": tuple(options["hidden"]), **params})
        estimator.model_ = model
        estimator.n_features_in_ = int(np.prod(options["input_shape"]))
        facts = known.preprocess or {}
        columns, target = facts.get("columns", []), facts.get("target", {})
        named = [c["name"] for c in columns if isinstance(c, dict) and "name" in c]
        if not isinstance(target, dict) or len(named) != len(columns):
            raise FormatError(f"{path} does not say what its columns and its target are")
        if facts.get("named"):
            estimator.feature_names_in_ = np.array(named, dtype=object)
        estimator._seed = _stored_seed(facts, estimator.random_state)
        estimator._restore(known.class_names, target, path)
        return estimator

    def _trained(
        self, X: np.ndarray, targets: Tensor, weights: Tensor, outputs: int, likelihood: str
    ) -> nn.Module:
        """A network for these rows, trained; of a regression, on standardised targets."""
        require_truth(self.verbose, "verbose")
        require_count(self.num_samples, "num_samples")
        size = self.batch_size
        size = suitable_batch_size(len(X)) if size is None else require_count(size, "batch_size")
        self._seed = _seed_from(self.random_state)
        loader = RowLoader(torch.tensor(X), targets, weights, size)
        with _ONE_AT_A_TIME, isolated_randomness(torch.device("cpu")):
            torch.manual_seed(self._seed)
            net = build_network(
                NETWORK, input_shape=(X.shape[1],), num_outputs=outputs, hidden=self.hidden
            )
            assert isinstance(net, ScaledMLP)
            set_input_scales_(net, *column_scales(X))
            result = fit(
                bayesianize_(net), loader, self.method, epochs=self.epochs, likelihood=likelihood,
                seed=self._seed, device=self.device, precision="fp32", progress=self.verbose,
            )  # fmt: skip
        self.history_ = result.history
        return result.model.cpu()

    def _describe(self, target: dict[str, Any], class_names: tuple[str, ...] | None) -> None:
        """What the file is to say, so that it can be read back, and by the command line, too."""
        named = getattr(self, "feature_names_in_", None)
        names = [f"x{i}" for i in range(self.n_features_in_)] if named is None else named
        columns = [{"name": str(name), "mean": 0.0, "std": 1.0} for name in names]
        preprocess = {
            "kind": "table",
            "columns": columns,
            "target": {"name": "target", **target},
            "named": named is not None,
            "seed": self._seed,
        }
        update_description(self.model_, class_names=class_names, preprocess=preprocess)

    def _restore(self, names: tuple[str, ...] | None, target: dict[str, Any], path: Any) -> None:
        raise NotImplementedError

    def _predictions(self, X: Any) -> Iterator[Prediction]:
        """Predictions of some rows at a time, in float64.

        Where they are drawn, it is by the same draws of the weights, so what is said of a row does
        not depend on the rows beside it. One row alone is predicted twice, since for one row
        `predict` draws the outputs, not the weights; `of_rows` cuts that.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        model = copy.deepcopy(self.model_).double()
        by = chosen_estimator(model, None, likelihood_of(model, None)) or "weight"
        for part in torch.split(torch.tensor(X), _ROWS_AT_ONCE):
            part = part if len(part) > 1 else part.repeat(2, 1)
            generator = torch.Generator().manual_seed(self._seed)
            with _ONE_AT_A_TIME, one_after_another():
                found = predict(
                    model, part, self.num_samples, generator, estimator=by, single=False
                )
            yield found


def of_rows(parts: Iterable[Tensor], X: Any) -> np.ndarray:
    """What was said of the rows of X, in one array."""
    found: np.ndarray = torch.cat(list(parts))[: _num_samples(X)].numpy()
    return found


def _stored_seed(facts: Mapping[str, Any], random_state: Any) -> int:
    """The seed of a file's draws, unless another is given; older files have none."""
    stored = facts.get("seed")
    if random_state is None and type(stored) is int and 0 <= stored < 2**63:
        return stored
    return _seed_from(random_state)


def _seed_from(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def rows_that_count(X: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, Tensor]:
    """Numbers and weights of the rows of weight above 0."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    rows = np.flatnonzero(weights)
    if len(rows) == 0:
        raise ValueError("every sample_weight is 0: there is nothing to fit")
    return rows, torch.from_numpy(weights[rows])
