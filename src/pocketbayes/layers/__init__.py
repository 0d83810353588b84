"""Bayesian layers, conversion of plain networks, and what a converted network says of itself."""

from pocketbayes.layers.auditing import Audit, audit
from pocketbayes.layers.bayesian import (
    BayesianModule,
    LinearLayer,
    bayesian_modules,
    drawing_by,
    estimator_of,
    set_estimator,
)
from pocketbayes.layers.checks import explained_failure, require_module, require_tensor
from pocketbayes.layers.conversion import (
    adopt_posteriors_,
    bayesianize_,
    named_posteriors,
    owners_of,
    replace_posterior,
    require_parameters,
)
from pocketbayes.layers.description import (
    NOISE,
    Description,
    add_noise_parameter,
    attach_description,
    describe,
    forget_calibration,
    has_description,
    is_description,
    noise_log_std,
    set_description,
    unwrapped,
    update_description,
)
from pocketbayes.layers.ensembles import Ensemble, members_of
from pocketbayes.layers.estimators import ESTIMATORS
from pocketbayes.layers.modes import dropout_modules, restored_mode
from pocketbayes.layers.selection import library_type

__all__ = [
    "ESTIMATORS",
    "NOISE",
    "Audit",
    "BayesianModule",
    "Description",
    "Ensemble",
    "LinearLayer",
    "add_noise_parameter",
    "adopt_posteriors_",
    "attach_description",
    "audit",
    "bayesian_modules",
    "bayesianize_",
    "describe",
    "drawing_by",
    "dropout_modules",
    "estimator_of",
    "explained_failure",
    "forget_calibration",
    "has_description",
    "is_description",
    "library_type",
    "members_of",
    "named_posteriors",
    "noise_log_std",
    "owners_of",
    "replace_posterior",
    "require_module",
    "require_parameters",
    "require_tensor",
    "restored_mode",
    "set_description",
    "set_estimator",
    "unwrapped",
    "update_description",
]
