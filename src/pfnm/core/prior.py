"""The prior, and the rules by which the paper and the authors' published code differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.network import Array


@dataclass(frozen=True)
class Rules:
    """The choices in which the authors' published code differs from their paper, by name."""

    name: str
    class_share: bool
    """With class counts, a site's precision on what leads into a class is its share of it."""
    popularity_factor: float
    """What multiplies log(m / (J - m)) in the score of joining a unit that m sites use."""
    popularity_cap: int | None
    """m counts as at most this in that term."""
    width_cap: int | None
    """A site founds at most max(width_cap - L, 1) new units when the global layer has L."""
    bias_prior_mean: float | None
    """Prior mean of biases, the output layer's included; None: that of the weights."""
    round_sweeps: int | None
    """Sweeps of a matching that starts from a previous round's assignments; None: until settled."""
    stop_when_settled: bool
    """Stop after a sweep that changed nothing; otherwise every sweep asked for is run."""


PAPER = Rules(
    name="paper",
    class_share=False,
    popularity_factor=2.0,
    popularity_cap=None,
    width_cap=None,
    bias_prior_mean=None,
    round_sweeps=None,
    stop_when_settled=True,
)
PUBLISHED = Rules(
    name="published",
    class_share=True,
    popularity_factor=1.0,
    popularity_cap=10,
    width_cap=700,
    bias_prior_mean=0.1,
    round_sweeps=3,
    stop_when_settled=False,
)
RECOMMENDED = Rules(
    name="recommended",
    class_share=True,
    popularity_factor=2.0,
    popularity_cap=None,
    width_cap=None,
    bias_prior_mean=None,
    round_sweeps=None,
    stop_when_settled=True,
)
RULES: Mapping[str, Rules] = {rules.name: rules for rules in (PAPER, PUBLISHED, RECOMMENDED)}


@dataclass(frozen=True)
class Prior:
    """What is believed of global units before any site is seen.

    A global atom is N(prior_mean, prior_variance) in every dimension; a site's atom is the global
    one plus N(0, site_variance), one variance for all sites or one for each; `mass` says how
    readily new global units appear. `rules` is "paper" (the paper's own), "published" (the
    authors' code) or "recommended" (the paper's scores with the published class-share precision).
    """

    prior_variance: float = 10.0
    site_variance: float | tuple[float, ...] = 1.0
    mass: float = 1.0
    prior_mean: float = 0.0
    rules: str = "recommended"

    def __post_init__(self) -> None:
        for name in ("prior_variance", "site_variance", "mass"):
            values = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise PFNMError(f"{name} is {getattr(self, name)}, expected a positive number")
        if not np.isfinite(self.prior_mean):
            raise PFNMError(f"prior_mean is {self.prior_mean}, expected a finite number")
        if self.rules not in RULES:
            raise PFNMError(f"unknown rules {self.rules!r}; choose one of {', '.join(RULES)}")

    @property
    def choices(self) -> Rules:
        """The rules themselves."""
        return RULES[self.rules]

    @property
    def bias_mean(self) -> float:
        """The prior mean of a bias."""
        rule = self.choices.bias_prior_mean
        return self.prior_mean if rule is None else rule

    def site_precisions(self, sites: int, site_weights: Sequence[float] | None = None) -> Array:
        """1 / sigma_j^2 of every site, times its weight: shape (J,)."""
        variances = np.asarray(self.site_variance, dtype=float)
        if variances.ndim and variances.shape != (sites,):
            raise PFNMError(
                f"site_variance has {variances.size} values for {sites} sites; give one for all "
                "or one for each"
            )
        weights = np.ones(sites) if site_weights is None else np.asarray(site_weights, dtype=float)
        if weights.shape != (sites,) or not (np.isfinite(weights).all() and (weights > 0).all()):
            raise PFNMError(
                f"site weights {weights.tolist()}: expected {sites} positive numbers, one a site"
            )
        result: Array = weights / variances
        return result
