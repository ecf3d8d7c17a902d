"""The prior, and the rules by which the paper and the authors' published code differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.network import Array, Network

SMALLEST, LARGEST = 1e-100, 1e100  # of a variance or mass: its square and inverse stay in range
SPREAD = 3.0  # site variance by the weights' variance: 1 to 10 do about as well (docs/deep.md)
MARGINAL_SPREAD = 0.1  # the same where atoms are integrated out: about what the evidence finds
PRIOR_TO_SITE = 10.0  # prior variance by site variance


@dataclass(frozen=True)
class Rules:
    """The choices in which the authors' published code differs from their paper, by name."""

    name: str
    class_share: bool
    """With class counts, a site's precision on what leads into a class is its share of it."""
    contrast: bool
    """Of two classes only the difference counts, and a site by how well it has seen both."""
    popularity_factor: float
    """What multiplies log(m / (J - m)) in the score of joining a unit that m sites use."""
    popularity_cap: int | None
    """m counts as at most this in that term."""
    width_cap: int | None
    """A site founds at most max(width_cap - L, 1) new units when the global layer has L."""
    bias_prior_mean: float | None
    """Prior mean of biases, the output layer's included; None: that of the weights."""
    round_sweeps: int | None
    """Sweeps of each matching in a federation with rounds; None: until settled."""
    listed_order: bool
    """Top-down matching takes units as the sites list them, by which ties fall; else by norm."""
    integrated: bool = False
    """Global atoms are integrated out, not maximised over: a new one costs what it explains."""
    numbered: bool = True
    """A site's k-th new unit costs log k more than its first, as if new units had an order."""


PAPER = Rules(
    name="paper",
    class_share=False,
    contrast=False,
    popularity_factor=2.0,
    popularity_cap=None,
    width_cap=None,
    bias_prior_mean=None,
    round_sweeps=None,
    listed_order=False,
)
PUBLISHED = Rules(
    name="published",
    class_share=True,
    contrast=False,
    popularity_factor=1.0,
    popularity_cap=10,
    width_cap=700,
    bias_prior_mean=0.1,
    round_sweeps=3,
    listed_order=True,
)
RECOMMENDED = Rules(
    name="recommended",
    class_share=True,
    contrast=True,
    popularity_factor=2.0,
    popularity_cap=None,
    width_cap=None,
    bias_prior_mean=None,
    round_sweeps=None,
    listed_order=False,
)
# Without an order of new units a step's gain is the gain of the whole, so the evidence never falls.
MARGINAL = replace(RECOMMENDED, name="marginal", integrated=True, numbered=False)
RULES: Mapping[str, Rules] = {
    rules.name: rules for rules in (PAPER, PUBLISHED, RECOMMENDED, MARGINAL)
}


@dataclass(frozen=True)
class Prior:
    """What is believed of global units before any site is seen.

    A global atom is N(prior_mean, prior_variance) in every dimension; a site's atom is the global
    one plus N(0, site_variance), one variance for all sites or one for each; `mass` says how
    readily new global units appear. `rules` is "paper" (the paper's own), "published" (the
    authors' code), "recommended" (the paper's scores with the published class-share precision) or
    "marginal" (the same with global atoms integrated out, by which their number is inferred).
    With `scales`, both variances are in units of a group's scale, as `Prior.fit` sets them. A
    group in `groups` has the prior there, as evidence finds them.
    """

    prior_variance: float = 10.0
    site_variance: float | tuple[float, ...] = 1.0
    mass: float = 1.0
    prior_mean: float = 0.0
    rules: str = "recommended"
    scales: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, Prior] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("prior_variance", "site_variance", "mass"):
            try:
                values = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            except (TypeError, ValueError):
                values = np.array([np.nan])
            if not ((values >= SMALLEST) & (values <= LARGEST)).all():
                raise PFNMError(f"{name} is {getattr(self, name)}, expected a positive number")
        if not abs(self.prior_mean) <= LARGEST:
            raise PFNMError(f"prior_mean is {self.prior_mean}, expected a finite number")
        if self.rules not in RULES:
            raise PFNMError(f"unknown rules {self.rules!r}; choose one of {', '.join(RULES)}")

    @classmethod
    def fit(
        cls,
        networks: Sequence[Network],
        *,
        spread: float | None = None,
        mass: float = 1.0,
        rules: str = "recommended",
    ) -> Prior:
        """Variances from the weights alone, group by group.

        The scale of a group is the mean variance, over sites, of the weights that lead to and from
        it; site_variance is `spread` of it (by default 3, and 0.1 under the marginal rules).
        Weights that are all larger by one factor thus get a prior under which the same units match.
        """
        if spread is None:
            spread = MARGINAL_SPREAD if rules == MARGINAL.name else SPREAD
        scales = {}
        for group in networks[0].graph.groups:
            variances = [weight_variance(network, group) for network in networks]
            # In single precision: the order in which a network lists its units must not show.
            scales[group] = max(float(np.float32(np.mean(variances))), SMALLEST)
        return cls(
            prior_variance=PRIOR_TO_SITE * spread,
            site_variance=spread,
            mass=mass,
            rules=rules,
            scales=scales,
        )

    @property
    def choices(self) -> Rules:
        """The rules themselves."""
        return RULES[self.rules]

    @property
    def bias_mean(self) -> float:
        """The prior mean of a bias."""
        rule = self.choices.bias_prior_mean
        return self.prior_mean if rule is None else rule

    def for_group(self, group: str) -> Prior:
        """The prior of one group, its variances no longer relative."""
        if group in self.groups:
            return self.groups[group]
        if group not in self.scales:
            return self
        scale = self.scales[group]
        site = tuple(np.atleast_1d(self.site_variance) * scale)
        return replace(
            self,
            prior_variance=self.prior_variance * scale,
            site_variance=site[0] if len(site) == 1 else site,
            scales={},
        )

    def site_variances(self, sites: int) -> Array:
        """sigma_j^2 of every site: (J,)."""
        variances = np.asarray(self.site_variance, dtype=float)
        if variances.size not in (1, sites):
            raise PFNMError(
                f"site_variance has {variances.size} values for {sites} sites; give one for all "
                "or one for each"
            )
        return np.broadcast_to(variances, (sites,))


def weight_variance(network: Network, group: str) -> float:
    """The mean variance of the weights (not the biases) at a group, each weight counting once."""
    names = network.graph.tensors_of(group)
    own = [name for name in names if network.graph.role(name) == "weight"] or names
    weights = [network.tensors[name] for name in own]
    sizes = [tensor.size for tensor in weights]
    return float(np.average([tensor.var(dtype=float) for tensor in weights], weights=sizes))
