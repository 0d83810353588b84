"""pocketbayes: turn any PyTorch model into a small Bayesian one that knows how sure it is.

    import pocketbayes as pb

    model = pb.bayesianize_(net)                      # in place; print(pb.audit(model))
    result = pb.fit(model, train_loader, epochs=30)   # variational inference
    pred = pb.predict(model, x)                       # .probs .entropy .aleatoric .epistemic
    record = pb.evaluate(model, test_loader)          # accuracy, NLL, ECE, ...
    pb.save(model, "mine.pocket")                     # one safe file; pb.load brings it back

With a loop of your own: `loss = nll + pb.kl(model) / dataset_size`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Loaded when first used: `import pocketbayes` costs next to nothing.
_HOME = {
    "Audit": "auditing",
    "ClassPrediction": "predictive",
    "ConversionError": "errors",
    "DataError": "errors",
    "DeepEnsemble": "methods",
    "Deterministic": "methods",
    "FeatureReport": "features",
    "FileSummary": "codec",
    "FitResult": "composition",
    "FormatError": "errors",
    "MCDropout": "methods",
    "MeanField": "methods",
    "PocketBayesError": "errors",
    "Prediction": "predictive",
    "Quantization": "quantization",
    "Record": "evaluation",
    "RigL": "methods",
    "Sharing": "methods",
    "SharingSummary": "counting",
    "SpikeSlab": "methods",
    "Subspace": "methods",
    "TrainingError": "errors",
    "TrainingFlops": "flops",
    "ValuePrediction": "predictive",
    "VariationalDropout": "methods",
    "audit": "auditing",
    "bayesianize_": "convert",
    "evaluate": "evaluation",
    "feature_report": "features",
    "fit": "fitting",
    "inspect": "codec",
    "kl": "elbo",
    "load": "codec",
    "named_posteriors": "convert",
    "predict": "prediction",
    "prune_": "pruning",
    "quantize_": "quantization",
    "refresh_noise_": "noise",
    "refresh_norms_": "norms",
    "replace_posterior": "convert",
    "save": "codec",
    "sharing_summary": "counting",
    "shrink": "shrinking",
    "training_flops": "flops",
    "weight_figures": "figures",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from pocketbayes.auditing import Audit, audit
    from pocketbayes.codec import FileSummary, inspect, load, save
    from pocketbayes.composition import FitResult
    from pocketbayes.convert import bayesianize_, named_posteriors, replace_posterior
    from pocketbayes.counting import SharingSummary, sharing_summary
    from pocketbayes.elbo import kl
    from pocketbayes.errors import (
        ConversionError,
        DataError,
        FormatError,
        PocketBayesError,
        TrainingError,
    )
    from pocketbayes.evaluation import Record, evaluate
    from pocketbayes.features import FeatureReport, feature_report
    from pocketbayes.figures import weight_figures
    from pocketbayes.fitting import fit
    from pocketbayes.flops import TrainingFlops, training_flops
    from pocketbayes.methods import (
        DeepEnsemble,
        Deterministic,
        MCDropout,
        MeanField,
        RigL,
        Sharing,
        SpikeSlab,
        Subspace,
        VariationalDropout,
    )
    from pocketbayes.noise import refresh_noise_
    from pocketbayes.norms import refresh_norms_
    from pocketbayes.prediction import predict
    from pocketbayes.predictive import ClassPrediction, Prediction, ValuePrediction
    from pocketbayes.pruning import prune_
    from pocketbayes.quantization import Quantization, quantize_
    from pocketbayes.shrinking import shrink


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"pocketbayes.{_HOME[name]}"), name)
    raise AttributeError(f"module 'pocketbayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
