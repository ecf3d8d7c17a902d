"""What a simulated federation is to do, checked; and the federation itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.fusing.kinds import Pictures
from pfnm.lab.data import Data
from pfnm.lab.partition import split
from pfnm.lab.training import LocalTraining, Recipe, initial_network, stacked
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor

# Each kind of randomness has its own stream, so that a resumed run draws what it would have drawn.
SPLITTING, STARTING, BATCHES, CHOOSING, FAILING, SERVER, SERVER_INPUTS, ADMITTING = range(8)
PERCEPTRON = "mlp"  # the paper's model
PICTURE = 3  # lengths: channels, height, width
LEAST_SITES = 2  # in a round: fusing needs two
# What is beyond these is a slip of the pen, and would fail late or take the memory of the machine.
MOST: Mapping[str, int] = {
    "sites": 10_000,
    "rounds": 1_000_000,
    "epochs": 1_000_000,
    "later_epochs": 1_000_000,
    "batch_size": 1_000_000,
}
MOST_PARAMETERS = 100_000_000  # of all sites' networks: 2 GB while they train
LARGEST_RATE = 1e30  # what training multiplies by must fit into 32 bits

# The paper's; on FedAvg's rate it is silent: chosen on the training data (studies/rates.py).
PAPER_TRAINING: Mapping[str, Mapping[str, float]] = {
    "cifar10": {"learning_rate": 0.001, "weight_decay": 1e-5, "sgd_rate": 0.03}
}
# Of modules, which begin as PyTorch makes them; FedAvg trains them with the same optimizer.
MODULE_TRAINING: Mapping[str, float | None] = {"learning_rate": 0.001, "sgd_rate": None}
TEXT_TRAINING: Mapping[str, Mapping[str, float]] = {
    "lstm": {"learning_rate": 0.004},
    "transformer": {"learning_rate": 0.002},
}


MakeNetwork = Callable[[np.random.Generator], Network]


@dataclass(frozen=True)
class Setting:
    """A simulation, whole: the paper's choices unless said otherwise (rounds and sites are few)."""

    data: str = "digits"
    sites: int = 10
    split: str = "dirichlet"
    alpha: float = 0.5
    methods: tuple[str, ...] = ()
    """Names of METHODS; none: all of them that the setting allows."""
    rounds: int = 5
    model: str = PERCEPTRON
    """Or a name of `models.MODELS`, or the user's class as package.module:Class."""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    """What the model is made with, beside what the data says."""
    hidden: tuple[int, ...] = (100,)
    """Of a perceptron."""
    epochs: int = 10
    """Before the first combining."""
    later_epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 0.01
    weight_decay: float = 1e-6
    rate_decay: float = 0.99
    """PFNM's learning rate is multiplied by this each round."""
    sgd_rate: float | None = 0.1
    """Of FedAvg and FedProx; None: they train as the others do."""
    proximal: float = 0.01
    """FedProx's mu."""
    budget: float | int | None = 2.0
    """Of the joint method."""
    polish: bool = False
    """Whether the server polishes what it fuses before it is sent out."""
    fraction: float = 1.0
    """Of the sites that take part in a round."""
    failures: float = 0.0
    """How probably a site that takes part is lost in the middle of the round."""
    joins: Mapping[str, int] = field(default_factory=dict)
    """Site name to the first round it can take part in, for those that join late."""
    share_counts: bool = True
    """Whether the server knows how many examples of each class a site has."""
    server_inputs: int = 0
    """How many of the training inputs, without their labels, the server holds."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise PFNMError(f"{name} is {getattr(self, name)}, expected 1 to {most}")
        if self.sites < LEAST_SITES:
            raise PFNMError(f"sites is {self.sites}, expected at least {LEAST_SITES}")
        if not self.hidden or min(self.hidden) < 1:
            raise PFNMError(f"hidden is {self.hidden}, expected the width of each hidden layer")
        for name in ("learning_rate", "sgd_rate", "rate_decay", "alpha"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PFNMError(f"{name} is {getattr(self, name)}, expected a positive number")
        for name in ("weight_decay", "proximal", "seed", "server_inputs"):
            if not 0 <= getattr(self, name) < inf:
                raise PFNMError(f"{name} is {getattr(self, name)}, expected zero or more")
        for name in ("learning_rate", "sgd_rate", "weight_decay", "proximal"):
            if (getattr(self, name) or 0) > LARGEST_RATE:
                raise PFNMError(
                    f"{name} is {getattr(self, name)}, expected at most {LARGEST_RATE:g}"
                )
        if not 0 < self.fraction <= 1 or not 0 <= self.failures < 1:
            raise PFNMError("fraction must lie in (0, 1], failures in [0, 1)")
        stray = sorted(set(self.joins) - set(self.names))
        if stray:
            raise PFNMError(f"there is no {stray[0]}; sites are called {self.names[0]} and so on")

    @property
    def names(self) -> tuple[str, ...]:
        """The sites' names."""
        return tuple(f"site{j}" for j in range(self.sites))

    @property
    def recipe(self) -> Recipe:
        """How a site trains for PFNM before the first combining."""
        return Recipe(
            hidden=self.hidden,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )

    def recipe_of(self, round_number: int) -> Recipe:
        """The same for a round (1, 2, ...): fewer epochs after the first, a falling rate."""
        rate = self.learning_rate * self.rate_decay ** (round_number - 1)
        epochs = self.epochs if round_number == 1 else self.later_epochs
        return replace(self.recipe, epochs=epochs, learning_rate=rate)

    def rng(self, *what: int) -> np.random.Generator:
        """The randomness of one purpose, round and site."""
        return stream(self.seed, *what)


def stream(seed: int, *what: int) -> np.random.Generator:
    """The randomness of one purpose, round and site of a run with this seed."""
    return np.random.default_rng([seed, *what])


def paper_training(data: str) -> dict[str, Any]:
    """What the paper's local training has for this data set in place of the usual values."""
    return dict(PAPER_TRAINING.get(data, {}))


def usual_training(data: str, model: str) -> dict[str, Any]:
    """The same of any model; of perceptrons it is the paper's."""
    if model == PERCEPTRON:
        return paper_training(data)
    return {**MODULE_TRAINING, **TEXT_TRAINING.get(model, {})}


@dataclass(frozen=True, eq=False)
class Federation:
    """Sites with their data, and how they train."""

    setting: Setting
    data: Data
    parts: Mapping[str, IntArray]
    """Each site's positions in the training examples."""
    train: LocalTraining
    make: MakeNetwork
    """A network before training."""

    @property
    def counts(self) -> dict[str, IntArray]:
        """Examples of each class at each site."""
        classes = len(self.data.classes)
        labels = self.data.train_labels
        return {
            name: np.bincount(labels[part].ravel(), minlength=classes)
            for name, part in self.parts.items()
        }

    @property
    def input_range(self) -> tuple[float, float]:
        """Between which values inputs lie, as the server knows it: from the test examples."""
        inputs = self.data.test_inputs
        return float(inputs.min()), float(inputs.max())

    @property
    def server_inputs(self) -> Tensor | None:
        """Inputs that the server holds, without their labels; None if it has none."""
        wanted, inputs = self.setting.server_inputs, self.data.train_inputs
        if not wanted:
            return None
        chosen = self.setting.rng(SERVER_INPUTS).permutation(len(inputs))[:wanted]
        return inputs[np.sort(chosen)].astype(np.float32)

    @property
    def known_inputs(self) -> dict[str, Any]:
        """What the server knows of the inputs, as `with_inputs` takes it."""
        real = self.server_inputs
        if real is not None:
            return {"inputs": real}
        if self.setting.model != PERCEPTRON and len(self.data.shape) == PICTURE:
            channels, height, width = self.data.shape
            return {"inputs": Pictures(channels, height, width, range=self.input_range)}
        return {"input_range": self.input_range}

    def start(self, site: int) -> Network:
        """A network before training; a site's own, whatever the method."""
        return self.make(self.setting.rng(STARTING, site))

    def at_home(self, name: str, network: Network) -> Network:
        """A network that comes from the server, as a site goes on with it: the same function.

        A module's batch normalisation then remembers the site's own inputs.
        """
        if network.program.examples is None:
            return network
        from pfnm.lab.modules import at_home

        return at_home(network, self.data.train_inputs[self.parts[name]])

    def trained(
        self, starts: Mapping[str, Network], recipe: Recipe, round_number: int
    ) -> dict[str, Network | PFNMError]:
        """Sites trained on their data, each from its start."""
        names = self.setting.names
        rngs = {n: self.setting.rng(BATCHES, round_number, names.index(n)) for n in starts}
        return self.train(starts, self.data, self.parts, recipe, rngs)

    def taking_part(self, round_number: int) -> tuple[list[str], dict[str, str]]:
        """The sites of a round, and those among them that are lost in it, with the reason."""
        setting = self.setting
        present = [n for n in setting.names if setting.joins.get(n, 1) <= round_number]
        number = max(LEAST_SITES, round(setting.fraction * len(present)))
        rng = setting.rng(CHOOSING, round_number)
        chosen = set(rng.choice(len(present), size=min(number, len(present)), replace=False))
        names = [name for place, name in enumerate(present) if place in chosen]
        lost = setting.rng(FAILING, round_number).random(setting.sites) < setting.failures
        reason = "lost in the middle of the round"
        return names, {n: reason for n in names if lost[setting.names.index(n)]}


def federation(setting: Setting, data: Data, train: LocalTraining | None = None) -> Federation:
    """The data split over the sites. train: how these do, if not as the lab does."""
    made = _perceptrons if setting.model == PERCEPTRON else _modules
    usual, make = made(setting, data)
    rng = setting.rng(SPLITTING)
    strata = data.train_labels if data.strata is None else data.strata
    parts = split(setting.split, strata, setting.sites, rng, setting.alpha)
    by_name = dict(zip(setting.names, parts, strict=True))
    return Federation(setting, data, by_name, train or usual, make)


def _perceptrons(setting: Setting, data: Data) -> tuple[LocalTraining, MakeNetwork]:
    if data.tokens:
        raise PFNMError(
            f"{setting.data} is text, which no perceptron takes; choose the model lstm or "
            "transformer"
        )
    sizes = (data.train_inputs.shape[1], *setting.hidden, len(data.classes))
    parameters = setting.sites * sum((below + 1) * above for below, above in pairwise(sizes))
    if parameters > MOST_PARAMETERS:
        raise PFNMError(
            f"hidden layers {', '.join(map(str, setting.hidden))} make {parameters:,} parameters "
            f"at {setting.sites} sites, which is too large (most: {MOST_PARAMETERS:,}); choose "
            "narrower layers or fewer sites"
        )
    return stacked, partial(initial_network, sizes[0], sizes[-1], setting.recipe)


def _modules(setting: Setting, data: Data) -> tuple[LocalTraining, MakeNetwork]:
    from pfnm.lab.models import Architecture
    from pfnm.lab.plain import modules

    return modules, Architecture(setting.model, setting.model_args, data).start
