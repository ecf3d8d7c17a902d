"""The server of PFNM with rounds: it sees weights and class counts, never data.

A site is known by its name. While rounds are matched it starts each from its own part of the global
network; one that missed rounds comes back to its own units, and one that is missing now is stood in
for by what it sent last, so that nothing of it is lost. Once rounds are averaged (`schedule.py`)
all sites train the whole network, and those that are there count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm.api import fuse_sites
from pfnm.conversion import SHARE_PROBES, with_inputs
from pfnm.fusing.atoms import part_of
from pfnm.fusing.doubts import estimated_shares
from pfnm.fusing.inputs import Inputs
from pfnm.fusing.joint import FIRST_ROUND, ROUND
from pfnm.fusing.probes import is_classifier, probe
from pfnm.fusing.sites import Sites, comparable, with_counts
from pfnm.lab.baselines import outputs_by_class, weighted_average
from pfnm.lab.schedule import matching_pays
from pfnm.matching.prior import RULES, Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, Network

PAPER_ROUNDS = Prior(prior_variance=1.0, site_variance=1.0, mass=1.0, rules="published")
# Above, and in later rounds, one matching was as good as the best of four, at a quarter of the time
# (docs/lab.md).
FEW_SITES = 30
MOST_TIMES = 30  # a site's weights the others': no training does that, a damaged file or a lie does
MOST_TIMES_WIDER = 100  # parameters: matching them would take the server's memory


@dataclass(frozen=True, eq=False)
class Server:
    """The global network, which of its units each site has, and what each site sent last.

    assignments: group to site name to units. counts: site name to examples of each class, of those
    sites that tell. agreement: how like its sites together a joint fusion answered. averaging:
    whether the sites have gone over to training the whole network (`schedule.py`).
    """

    network: Network | None = None
    assignments: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    sent: Mapping[str, Network] = field(default_factory=dict)
    objective: float | None = None
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    agreement: float | None = None
    averaging: bool = False

    @property
    def at_rest(self) -> bool:
        """Whether the network was matched, and so what batch normalisation remembers made up."""
        return bool(self.sent)

    def starts(self, name: str) -> bool:
        """Whether a site starts the next round from something of the server's."""
        return self.network is not None and (self.averaging or name in self.sent)

    def part(self, name: str) -> Network:
        """What such a site starts from: its own part, or once sites are averaged, all of it."""
        assert self.network is not None
        if self.averaging:
            return self.network
        units = {group: sites[name] for group, sites in self.assignments.items()}
        return part_of(self.network, units)


def combine(
    server: Server,
    returned: Mapping[str, Network],
    *,
    counts: Mapping[str, IntArray] | None,
    method: str,
    budget: float | int | None = None,
    polished: bool = False,
    estimated: bool = False,
    inputs: Inputs | str | ArrayLike | None = None,
    input_range: tuple[float, float] | None = None,
    rng: np.random.Generator,
) -> Server:
    """Match what the sites sent with what is known of the others; the next global network.

    method: "topdown" (the paper's: published rules, all variances and the mass 1, started from the
    last assignments) or "joint" (ours, afresh each round, and only as long as that pays: then what
    sites make of the whole network is averaged, see `schedule.py`). polished: whether the sites'
    networks then teach the global one. inputs, input_range: what is known of the inputs, as `fuse`
    has it. counts: what sites tell of their classes this time; used once all have told, or with
    `estimated`: those of the others then follow from what their networks answer. With fewer than
    two sites there is no matching yet. Modules are sent whole, with what batch normalisation
    remembers, and the global network is in that form too (see `modules.py`).
    """
    told = {**server.counts, **(counts or {})}
    if server.averaging:
        return averaged(server, returned, told)
    networks = {**server.sent, **returned}
    if len(networks) < 2:
        return replace(server, sent=networks, counts=told)
    names = sorted(networks, key=_natural)
    options: dict[str, Any] = {"method": method, "rng": rng, "measured": False}
    if method == "joint":
        options["budget"] = budget
        if next(iter(networks.values())).program.examples is None:
            alone = server.network is None and len(networks) <= FEW_SITES
            options["effort"] = FIRST_ROUND if alone else ROUND
    else:
        options |= {"prior": PAPER_ROUNDS, "sweeps": RULES["published"].round_sweeps}
        if server.network is not None:
            options["start"] = _start(server, networks, names)
    sites = sites_of(networks, told)
    estimated = estimated and sites.class_counts is None and is_classifier(sites.networks[0])
    if method == "joint" or polished or estimated:
        sites = with_inputs(sites, inputs, input_range)
    if estimated:
        sites = with_counts(sites, _estimated_counts(sites, told, rng))
    fusion = fuse_sites(sites, **options)
    if polished:
        fusion = fusion.polished(rng)
    assignments = {
        group: dict(zip(names, found, strict=True)) for group, found in fusion.assignments.items()
    }
    network = as_sent(fusion.network, networks[names[0]])
    after = Server(network, assignments, networks, fusion.objective, told, fusion.agreement)
    # A round in which nobody sent anything tells nothing.
    averaging = method == "joint" and bool(returned) and not matching_pays(server, after)
    return replace(after, averaging=averaging)


def averaged(
    server: Server, returned: Mapping[str, Network], counts: Mapping[str, IntArray]
) -> Server:
    """The mean of what sites made of the global network, by examples where all tell how many.

    Of modules what leads into a class is then averaged by that class's examples (docs/lab.md).
    """
    if not returned:
        return replace(server, counts=counts)
    weights = np.ones(len(returned))
    if returned.keys() <= counts.keys():
        told = [counts[name].sum() for name in returned]
        weights = np.maximum(told, 1).astype(float)  # rounded, few examples may be told as none
    networks = list(returned.values())
    network = weighted_average(networks, weights)
    if network.program.examples is not None and returned.keys() <= counts.keys():
        network = outputs_by_class(network, networks, seen([counts[name] for name in returned]))
    return Server(network, server.assignments, counts=counts, averaging=True)


def sites_of(networks: Mapping[str, Network], counts: Mapping[str, IntArray]) -> Sites:
    """Networks by name in one comparable form; class counts are used where all have told theirs."""
    names = sorted(networks, key=_natural)
    known = seen([counts[name] for name in names]) if networks.keys() <= counts.keys() else None
    return comparable([replace(matchable(networks[n]), name=n) for n in names], known)


def _estimated_counts(
    sites: Sites, told: Mapping[str, IntArray], rng: np.random.Generator
) -> Array:
    """Class counts (sites, classes): as told, or as a site's answers to made-up inputs suggest."""
    shares = estimated_shares(sites, probe(sites, SHARE_PROBES, rng))
    usual = float(np.mean([own.sum() for own in told.values()])) if told else 1.0
    table: Array = usual * shares / shares.sum(axis=1, keepdims=True)
    for place, name in enumerate(sites.names):
        if name in told:
            table[place] = told[name]
    table[:, table.sum(axis=0) == 0] = 1
    return table


def matchable(network: Network) -> Network:
    """A module's network without batch normalisation; a perceptron (and no PyTorch) as it is."""
    if network.program.examples is None:
        return network
    from pfnm.lab.modules import to_match

    return to_match(network)


def as_sent(network: Network, like: Network) -> Network:
    """What was matched in the form in which sites send theirs."""
    if network.program.examples is None:
        return network
    from pfnm.lab.modules import whole_again

    return whole_again(network, like)


def _start(
    server: Server, networks: Mapping[str, Network], names: list[str]
) -> dict[str, list[IntArray]]:
    """The last assignments; of a site that is new, units that nobody has."""
    start: dict[str, list[IntArray]] = {}
    for group, sites in server.assignments.items():
        free = 1 + max(int(units.max()) for units in sites.values())
        start[group] = []
        for name in names:
            width = networks[name].widths[group]
            own = sites.get(name)
            start[group].append(np.arange(free, free + width) if own is None else own)
            free += 0 if own is not None else width
    return start


def too_large(
    server: Server, returned: Mapping[str, Network], most: float = MOST_TIMES
) -> dict[str, str]:
    """Sites whose weights, or their number, dwarf what all others sent, now or last, and why they
    are left out.

    A site is compared with the median of the others, so that one cannot spoil the scale for all.
    """
    together = {**server.sent, **returned}
    sizes = {name: (network.parameters, _largest(network)) for name, network in together.items()}
    found = {}
    for name in returned:
        others = [size for other, size in sizes.items() if other != name]
        if not others:
            continue
        (number, largest), (usual_number, usual) = sizes[name], np.median(others, axis=0)
        if number > MOST_TIMES_WIDER * usual_number:
            found[name] = (
                f"its network has {number} parameters, the other sites' {usual_number:.0f}; "
                "train this site with fewer units"
            )
        elif usual > 0 and largest > most * usual:
            found[name] = (
                f"its largest weight is {largest:.3g}, the other sites' {usual:.3g}; "
                "train this site again"
            )
    return found


def _largest(network: Network) -> float:
    return max(float(np.abs(tensor).max()) for tensor in network.tensors.values())


def seen(counts: list[IntArray]) -> IntArray:
    """Class counts (sites, classes); of a class that none of these has seen, all count alike."""
    table = np.array(counts)
    table[:, table.sum(axis=0) == 0] = 1
    return table


def _natural(name: str) -> tuple[int, str]:
    return len(name), name
