"""The result of a fusion, and what can be done with it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfnm import evaluate as measuring
from pfnm import threads
from pfnm.conversion import same_kind
from pfnm.formats import check_target, save
from pfnm.formats.files import write_whole
from pfnm.formats.states import save_state
from pfnm.fusing.assumptions import Assumption, assumed_told, assumptions
from pfnm.fusing.atoms import part_of
from pfnm.fusing.confidence import confidences
from pfnm.fusing.inputs import Given, Like
from pfnm.fusing.probes import CHECK_PROBES, agreement, probe, site_agreements
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Solution
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array, Network
from pfnm.pages.account import account
from pfnm.pages.fusion import fusion_page
from pfnm.pages.page import Page
from pfnm.polishing import Polished, check_ready, polished
from pfnm.teaching import OnEpoch
from pfnm.verdicts import size_warning, tell, verdict

MOST_CONFIDENT = 5000  # units of all sites: a report waits for how sure no more matches are
MOST_NAMES = 6  # of sites in a representation


@dataclass(frozen=True)
class Check:
    """How like the sites together a network answers on made-up inputs, and the best single site."""

    agreement: float
    best_site: str
    site_agreement: float
    assumed: tuple[Assumption, ...] = ()
    """What was assumed of the sites because nobody told."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Fusion(Solution):
    """A solution, with the sites it was made of and how it was asked for.

    Examples
    --------
    >>> import pfnm
    >>> rng = np.random.default_rng(0)
    >>> def state_dict():
    ...     return {"0.weight": rng.normal(size=(9, 3)), "2.weight": rng.normal(size=(2, 9))}
    >>> fusion = pfnm.fuse([state_dict() for _ in range(3)], labels=[["no", "yes"]] * 3)
    >>> fusion.predict([[0.5, 0.5, 0.5]]).shape
    (1,)
    >>> [one.option for one in fusion.assumed]
    ['activation', 'inputs', 'input_range', 'head', 'class_counts']
    """

    sites: Sites
    prior: Prior
    options: Mapping[str, Any]
    """How it was asked for."""
    template: Any = None
    """The first of the networks as it was given."""
    polish_record: Polished | None = None
    doubts: tuple[str, ...] = ()
    """Where what the sites know may differ."""

    @cached_property
    def model(self) -> Any:
        """The global network as what the sites were given as (a scikit-learn estimator, say)."""
        return same_kind(self.network, self.template, self.sites.inputs)

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """What was assumed because nobody told, each with the option that tells it."""
        return assumptions(self.sites)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the result may be less than it seems, and what to do."""
        record = self.polish_record
        by_labels = record is not None and record.judged_on == "labels" and record.kept
        found = [
            size_warning(self.network, self.sites),
            None
            if by_labels
            else verdict(
                self.agreement,
                self.site_agreement,
                polished=record is not None,
                network=self.network,
                real=isinstance(self.sites.inputs, Given | Like),
            ),
        ]
        return tuple(text for text in found if text is not None) + self.doubts

    @cached_property
    def confidence(self) -> Mapping[str, tuple[Array, ...]]:
        """How sure each match is, from 0 to 1: of each group an array a site, as `assignments`.

        Worked out when it is asked for: how often a unit stays with those it was matched with (or
        alone) where assignments are drawn by chance, likelier the better they are.
        """
        self.sites.check_unchanged()
        with threads.limited():
            return confidences(self.sites, self.assignments, np.random.default_rng(0))

    def site_part(self, site: int) -> Network:
        """The global network cut down to the units of one site, in that site's order."""
        mine = {group: assignments[site] for group, assignments in self.assignments.items()}
        return replace(part_of(self.network, mine), name=self.sites.names[site])

    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """The label, or the values, that the global network gives to each input."""
        return self.network.predict(inputs)

    def evaluate(self, inputs: ArrayLike, targets: ArrayLike, **wanted: bool) -> dict[str, Any]:
        """How good the global network is on labelled data; see `pfnm.evaluate.evaluate`."""
        return measuring.evaluate(self.network, inputs, targets, **wanted)

    def check(self, *, seed: int = 0) -> Check:
        """How like the sites together it answers, on fresh made-up inputs."""
        return checked(self.network, self.sites, np.random.default_rng(seed))

    def polish(
        self,
        data: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        *,
        probes: bool = True,
        seconds: float | None = None,
        seed: int = 0,
        on_epoch: OnEpoch | None = None,
    ) -> Fusion:
        """The fusion with its network taught by the sites' networks, on made-up or real inputs.

        data: real inputs (examples, inputs), of which the sites say what they are; with targets
        (labels or values), those are what is taught. Real inputs are half of what is taught, or
        more where there are many, made-up ones the rest; with probes=False they are all of it.
        seconds: be done by then.

        The network is kept as it was where it does not get better: on other made-up inputs, or on
        real ones that were held out. Units stay where they are, so assignments and a site's part
        stay meaningful.
        """
        fusion = self.polished(
            np.random.default_rng(seed),
            data=data,
            targets=targets,
            probes=probes,
            seconds=seconds,
            on_epoch=on_epoch,
        )
        tell([text for text in fusion.warnings if text not in self.warnings])
        return replace(fusion, options={**fusion.options, "polish_seed": int(seed)})

    def polished(self, rng: np.random.Generator, **how: Any) -> Fusion:
        """The same with a generator, and without a word; for rounds."""
        self.sites.check_unchanged()
        check_ready(self.sites, how.get("data"))  # and loads PyTorch, whose threads are limited
        with threads.limited():
            network, record = polished(self.sites.scaled(self.network), self.sites, rng, **how)
        return replace(
            self,
            network=self.sites.plain(network) if record.kept else self.network,
            agreement=record.agreement,
            site_agreement=record.site_agreement,
            polish_record=record,
        )

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the global network with the record of its making; the ending says the format."""
        if self.network.program.examples is None:
            save(replace(self.network, metadata=self.record()), path, force=force)
            return
        notes = {**self.record(), "version": version("pfnm")}
        if Path(path).suffix.lower() == ".onnx":
            from pfnm.tracing.modules import to_graph

            check_target(path, force=force)
            write_whole(Path(path), to_graph(self.network, notes, self.sites.inputs), force=force)
        else:
            state = {name: tensor.numpy() for name, tensor in self.state_dict().items()}
            save_state(state, notes, path, force=force)

    def state_dict(self) -> dict[str, Any]:
        """Of modules: the fused tensors as a state dict, whatever the module's code allows."""
        from pfnm.tracing.modules import to_state

        return to_state(self.network, self.sites.inputs)

    def report(self, path: str | PathLike[str] | None = None, *, force: bool = False) -> Page:
        """The fusion on one HTML page that loads nothing; needs `pfnm[report]`.

        Parameters
        ----------
        path
            Where to write it (.html); without one it is only given back, and a notebook shows it.
        force
            Replace a file of that name.
        """
        told = account(self.record(), "the fusion")
        units = sum(own.size for group in self.assignments.values() for own in group)
        page = fusion_page(
            told,
            self.network,
            self.network.parameters,
            solution=self,
            sites=self.sites,
            confidence=self.confidence if units <= MOST_CONFIDENT else None,
        )
        if path is not None:
            page.save(path, force=force)
        return page

    def record(self) -> dict[str, Any]:
        """What is written beside the network: everything needed to make it again."""
        hashes = self.sites.hashes or (None,) * len(self.sites.names)
        return {
            "kind": "fusion",
            "versions": dict(versions()),
            "options": dict(self.options),
            "assumed": assumed_told(self.assumed),
            "warnings": list(self.warnings),
            "sites": [
                {
                    "name": site.name,
                    "sha256": found,
                    "widths": site.widths,
                    "parameters": parameters,
                }
                for site, found, parameters in zip(
                    self.sites.networks, hashes, self.sites.parameters, strict=True
                )
            ],
            "widths": self.widths,
            "shared": {
                group: np.bincount(popularity, minlength=len(hashes) + 1)[1:].tolist()
                for group, popularity in self.popularity.items()
            },
            "objective": self.objective,
            "trace": {group: [asdict(own) for own in found] for group, found in self.trace.items()},
            "candidates": [asdict(own) for own in self.candidates],
            "settled": self.settled,
            "agreement": self.agreement,
            "site_agreement": self.site_agreement,
            **({} if self.polish_record is None else {"polish": self.polish_record.told()}),
        }

    def __repr__(self) -> str:
        together = sum(self.sites.parameters)
        widths = ", ".join(f"{group} {width}" for group, width in self.widths.items())
        likeness = "not measured"
        if self.agreement is not None and self.site_agreement is not None:
            likeness = f"{self.agreement:.0%} (best single site {self.site_agreement:.0%})"
        assumed = ", ".join(one.option for one in self.assumed) or "nothing"
        return "\n".join(
            [
                f"Fusion of {len(self.sites.names)} networks: {_listed(self.sites.names)}",
                f"  global units: {widths}",
                f"  {self.network.parameters:,} parameters (the sites together {together:,})",
                f"  likeness to the sites together on made-up inputs: {likeness}",
                f"  assumed, not told: {assumed}; warnings: {len(self.warnings)}",
            ]
        )

    def _repr_html_(self) -> str:
        title, *rows = repr(self).splitlines()
        lines = "".join(f"<li>{html.escape(row.strip())}</li>" for row in rows)
        more = "".join(f"<li>{html.escape(text)}</li>" for text in self.warnings)
        return f"<p><b>{html.escape(title)}</b></p><ul>{lines}</ul>" + (
            f"<p>Warnings</p><ul>{more}</ul>" if more else ""
        )


def checked(network: Network, sites: Sites, rng: np.random.Generator) -> Check:
    """How like the sites together a network answers on made-up inputs."""
    sites.check_unchanged()
    with threads.limited():
        probing = probe(sites, CHECK_PROBES, rng, to_judge=True)
    shares = site_agreements(sites, probing)
    best = int(np.argmax(shares))
    found = max(0.0, agreement(sites.scaled(network), probing))
    return Check(found, sites.names[best], max(0.0, shares[best]), assumptions(sites))


@cache
def versions() -> Mapping[str, str]:
    """Of what a fusion depends on."""
    return {name: version(name) for name in ("pfnm", "numpy", "scipy")}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
