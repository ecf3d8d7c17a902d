"""Local training with differential privacy, by Opacus, and what of the budget is spent.

Every step takes each example with the same small probability, cuts each example's gradient down to
a length, and adds noise to their sum. What that tells of any one example, over all steps of all
rounds ever, is (epsilon, delta); a ledger at the site counts it, whatever the server asks.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.flower.messages import number_in
from pfnm.formats.files import write_whole
from pfnm.lab.plain import module_of, network_of
from pfnm.lab.training import Recipe, optimizer_of
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor

KEY = "dp-epsilon"  # of the node's configuration: with it training is private
DELTA, NOISE, CLIP = 1e-5, 1.0, 1.0  # where the configuration says nothing else
# Of Renyi's divergence, by which epsilon is bounded; with few steps large ones serve best.
ORDERS = [*(1 + step / 10 for step in range(1, 100)), *range(11, 64), *range(64, 1024, 32)]


@dataclass(frozen=True)
class Spent:
    """One training: so many steps with this noise, each taking this share of the examples."""

    noise: float
    rate: float
    steps: int


@dataclass(frozen=True)
class Ledger:
    """All trainings on a site's data."""

    trainings: list[Spent] = field(default_factory=list)

    def epsilon(self, delta: float) -> float:
        """What all of them together tell of any one example."""
        accountant = _opacus().accountants.RDPAccountant()
        accountant.history = [(one.noise, one.rate, one.steps) for one in self.trainings]
        return float(accountant.get_epsilon(delta=delta, alphas=ORDERS))


@dataclass(frozen=True)
class Privacy:
    """What a site allows.

    epsilon, delta: of all its trainings together. noise: standard deviation of what is added to the
    sum of gradients, in units of `clip`, the length each example's gradient is cut down to.
    """

    epsilon: float
    ledger: Path
    delta: float = DELTA
    noise: float = NOISE
    clip: float = CLIP

    @classmethod
    def told(cls, config: Mapping[str, Any]) -> Privacy | None:
        """What the node's configuration says; None where training is not to be private."""
        if KEY not in config:
            return None
        if "dp-ledger" not in config:
            raise PFNMError(
                "training is to be private, but there is no ledger of what is spent; name a file "
                "that stays (--node-config 'dp-ledger=\"FILE\"')"
            )
        names = ("epsilon", "delta", "noise", "clip")
        told = {name: number_in(config, f"dp-{name}") for name in names if f"dp-{name}" in config}
        for name, value in told.items():
            most = 1.0 if name == "delta" else inf
            if not 0 < value < most:
                raise PFNMError(f"dp-{name} is {value}, expected above 0 and below {most}")
        return cls(ledger=Path(str(config["dp-ledger"])), **told)

    def spend(self, rate: float, steps: int) -> float:
        """Enter a training before it begins; epsilon after it, or an error where it is too much."""
        from msgspec import MsgspecError
        from msgspec.json import decode, encode

        try:
            content = self.ledger.read_bytes() if self.ledger.exists() else b"{}"
            before = decode(content, type=Ledger)
        except (OSError, MsgspecError) as error:
            raise PFNMError(f"{self.ledger}: no ledger can be read ({error})") from None
        after = Ledger([*before.trainings, Spent(self.noise, rate, steps)])
        epsilon = after.epsilon(self.delta)
        if epsilon > self.epsilon:
            raise PFNMError(
                f"this training would bring epsilon to {epsilon:.3g}, and {self.epsilon:g} is "
                "allowed; the site trains no more"
            )
        write_whole(self.ledger, encode(after), force=True)
        return epsilon


def train_one_privately(
    network: Network,
    inputs: Tensor,
    labels: IntArray,
    recipe: Recipe,
    rng: np.random.Generator,
    *,
    privacy: Privacy,
) -> Network:
    """A site's training that tells no more of any one example than allowed.

    Batches and noise are drawn from fresh entropy and not from `rng`: what a seed of the server's
    made, the server could take away again.
    """
    import torch

    module = module_of(network)
    opacus = _opacus()
    wrong = opacus.validators.ModuleValidator.validate(module.train(), strict=False)
    if wrong:
        raise PFNMError(f"this module cannot be trained privately: {str(wrong[0]).strip()}")
    examples = len(labels)
    rate = min(1.0, recipe.batch_size / examples)
    steps = recipe.epochs * ceil(1 / rate)
    privacy.spend(rate, steps)
    watched = opacus.GradSampleModule(module, loss_reduction="sum")
    optimizer = opacus.optimizers.DPOptimizer(
        optimizer_of(list(module.parameters()), recipe),
        noise_multiplier=privacy.noise,
        max_grad_norm=privacy.clip,
        expected_batch_size=max(1, round(rate * examples)),
        generator=torch.Generator().manual_seed(secrets.randbits(63)),
    )
    x, y = torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(labels)
    if network.program.examples is not None:
        (x,) = network.program.examples.tensors(inputs)
    chosen = np.random.default_rng(secrets.randbits(128))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing")  # inputs need no gradient
        for _ in range(steps):
            rows = torch.from_numpy(np.flatnonzero(chosen.random(examples) < rate))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(watched(x[rows]), y[rows], reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    watched.remove_hooks()
    return network_of(module.eval(), network)


def _opacus() -> Any:
    try:
        import opacus
        import opacus.accountants
        import opacus.optimizers
        import opacus.validators
    except ImportError:
        raise PFNMError(
            "Opacus is not installed; install it with pip install 'pfnm[flower,private]'"
        ) from None
    return opacus
