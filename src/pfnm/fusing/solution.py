"""What matching and averaging give: the global network, and where every unit went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pfnm.matching.matching import Matching, Sweep
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network


@dataclass(frozen=True)
class Candidate:
    """One fusion that was tried: how it was made, and its agreement with the sites on probes."""

    method: str
    emphasis: float | None
    joint_sweep: int | None
    ridge: float | None
    sure_agreement: float
    objective: float


@dataclass(frozen=True, eq=False)
class Solution:
    """A global network, and which of its units every site's units became.

    assignments: of each group an int array a site, units as the sites list them; popularity: of
    each group (L,), the sites of each global unit.
    """

    network: Network
    assignments: Mapping[str, tuple[IntArray, ...]]
    popularity: Mapping[str, IntArray]
    trace: Mapping[str, tuple[Sweep, ...]]
    objective: float
    """The log posterior of the assignments, all groups together, without normalising constants."""
    settled: bool
    agreement: float | None = None
    """The share of probes answered as the sites together answer, where it was measured."""
    site_agreement: float | None = None
    """The same of the best single site."""
    candidates: tuple[Candidate, ...] = ()
    """What was tried, where several fusions were."""

    @property
    def widths(self) -> dict[str, int]:
        """Global units of each group, bottom to top."""
        return self.network.widths

    @classmethod
    def of(
        cls,
        network: Network,
        matchings: Mapping[str, Matching],
        assignments: Mapping[str, tuple[IntArray, ...]],
    ) -> Solution:
        """From the groups' matchings, and the assignments for units as the sites list them."""
        return cls(
            network=network,
            assignments=assignments,
            popularity={group: matching.popularity for group, matching in matchings.items()},
            trace={group: matching.trace for group, matching in matchings.items()},
            objective=sum(matching.objective for matching in matchings.values()),
            settled=all(matching.settled for matching in matchings.values()),
        )
