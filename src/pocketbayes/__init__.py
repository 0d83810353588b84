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
    "Audit": "layers",
    "BayesClassifier": "estimators",
    "BayesRegressor": "estimators",
    "ClassPrediction": "prediction",
    "Compression": "compression",
    "ConversionError": "errors",
    "DataError": "errors",
    "CyclicalSGMCMC": "methods",
    "DeepEnsemble": "methods",
    "Deterministic": "methods",
    "FeatureReport": "report",
    "FileSummary": "codec",
    "FitResult": "training",
    "FormatError": "errors",
    "LabelPrediction": "prediction",
    "Laplace": "methods",
    "MCDropout": "methods",
    "MeanField": "methods",
    "Multiplications": "compression",
    "PocketBayesError": "errors",
    "ProgramError": "errors",
    "Prediction": "prediction",
    "Quantization": "compression",
    "Record": "prediction",
    "RigL": "methods",
    "IVON": "methods",
    "SWAG": "methods",
    "Sharing": "methods",
    "SharingSummary": "compression",
    "SpikeSlab": "methods",
    "Subspace": "methods",
    "TrainingError": "errors",
    "TrainingFlops": "training",
    "ValuePrediction": "prediction",
    "VariationalDropout": "methods",
    "audit": "layers",
    "bayesianize_": "layers",
    "calibrate_moments_": "prediction",
    "compress": "compression",
    "conformal": "prediction",
    "distill_": "distillation",
    "evaluate": "prediction",
    "Exported": "deploy",
    "export": "deploy",
    "feature_report": "report",
    "fit": "training",
    "inspect": "codec",
    "kl": "likelihoods",
    "load": "codec",
    "loss": "training",
    "multiplications": "compression",
    "named_posteriors": "layers",
    "one_draw": "layers",
    "parameter_groups": "training",
    "predict": "prediction",
    "prune_": "compression",
    "quantize_": "compression",
    "refresh_noise_": "training",
    "refresh_norms_": "training",
    "replace_posterior": "layers",
    "save": "codec",
    "sharing_summary": "compression",
    "shrink": "shrinking",
    "temperature_": "prediction",
    "training_flops": "training",
    "with_teacher": "training",
    "weight_figures": "report",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from pocketbayes.codec import FileSummary, inspect, load, save
    from pocketbayes.compression import (
        Compression,
        Multiplications,
        Quantization,
        SharingSummary,
        compress,
        multiplications,
        prune_,
        quantize_,
        sharing_summary,
    )
    from pocketbayes.deploy import Exported, export
    from pocketbayes.distillation import distill_
    from pocketbayes.errors import (
        ConversionError,
        DataError,
        FormatError,
        PocketBayesError,
        ProgramError,
        TrainingError,
    )
    from pocketbayes.estimators import BayesClassifier, BayesRegressor
    from pocketbayes.layers import (
        Audit,
        audit,
        bayesianize_,
        named_posteriors,
        one_draw,
        replace_posterior,
    )
    from pocketbayes.likelihoods import kl
    from pocketbayes.methods import (
        IVON,
        SWAG,
        CyclicalSGMCMC,
        DeepEnsemble,
        Deterministic,
        Laplace,
        MCDropout,
        MeanField,
        RigL,
        Sharing,
        SpikeSlab,
        Subspace,
        VariationalDropout,
    )
    from pocketbayes.prediction import (
        ClassPrediction,
        LabelPrediction,
        Prediction,
        Record,
        ValuePrediction,
        calibrate_moments_,
        conformal,
        evaluate,
        predict,
        temperature_,
    )
    from pocketbayes.report import FeatureReport, feature_report, weight_figures
    from pocketbayes.shrinking import shrink
    from pocketbayes.training import (
        FitResult,
        TrainingFlops,
        fit,
        loss,
        parameter_groups,
        refresh_noise_,
        refresh_norms_,
        training_flops,
        with_teacher,
    )


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"pocketbayes.{_HOME[name]}"), name)
    if name == "lightning":  # a module of its own, whose base class is another package's
        return import_module("pocketbayes.lightning")
    raise AttributeError(f"module 'pocketbayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
