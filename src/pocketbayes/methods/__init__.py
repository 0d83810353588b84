"""The methods: a closed table from name to config."""

from pocketbayes.methods.base import (
    Method,
    StartContext,
    StepContext,
    VariationalMethod,
    make_points_,
    unshare_,
)
from pocketbayes.methods.csg_mcmc import CyclicalSGMCMC
from pocketbayes.methods.deep_ensemble import DeepEnsemble, restart_
from pocketbayes.methods.deterministic import Deterministic
from pocketbayes.methods.exchanging import ExchangingMethod
from pocketbayes.methods.ivon import IVON, trained_by_pairs
from pocketbayes.methods.laplace import Laplace
from pocketbayes.methods.mc_dropout import MCDropout
from pocketbayes.methods.mean_field import MeanField
from pocketbayes.methods.processes import (
    agree_on_state,
    agreed,
    averaged,
    gathered,
    never_broadcast,
    summed,
)
from pocketbayes.methods.rigl import RigL
from pocketbayes.methods.schedules import lr_scale
from pocketbayes.methods.sharing import Sharing
from pocketbayes.methods.spike_slab import SpikeSlab
from pocketbayes.methods.subspace import Subspace
from pocketbayes.methods.swag import SWAG
from pocketbayes.methods.variational_dropout import VariationalDropout

METHODS: dict[str, type[Method]] = {
    "csg-mcmc": CyclicalSGMCMC,
    "deterministic": Deterministic,
    "deep-ensemble": DeepEnsemble,
    "ivon": IVON,
    "laplace": Laplace,
    "mc-dropout": MCDropout,
    "mean-field": MeanField,
    "rigl": RigL,
    "sharing": Sharing,
    "spike-slab": SpikeSlab,
    "subspace": Subspace,
    "swag": SWAG,
    "variational-dropout": VariationalDropout,
}

__all__ = [
    "IVON",
    "METHODS",
    "SWAG",
    "CyclicalSGMCMC",
    "DeepEnsemble",
    "Deterministic",
    "ExchangingMethod",
    "Laplace",
    "MCDropout",
    "MeanField",
    "Method",
    "RigL",
    "Sharing",
    "SpikeSlab",
    "StartContext",
    "StepContext",
    "Subspace",
    "VariationalDropout",
    "VariationalMethod",
    "agree_on_state",
    "agreed",
    "averaged",
    "gathered",
    "lr_scale",
    "make_points_",
    "never_broadcast",
    "restart_",
    "summed",
    "trained_by_pairs",
    "unshare_",
]
