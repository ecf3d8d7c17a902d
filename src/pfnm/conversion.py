"""What people hold (files, live objects, networks) <-> `Network`s and `Sites`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError
from pfnm.formats import load, renamed, site_names
from pfnm.formats.folders import expanded
from pfnm.formats.onnx_graphs import holds_convolutions, read_graphs
from pfnm.formats.states import read_state
from pfnm.formats.tables import counts_matrix, named_counts, names_classes, read_class_counts
from pfnm.fusing.choosing import chosen_inputs
from pfnm.fusing.doubts import estimated_shares
from pfnm.fusing.inputs import Given, InputRange, Inputs, Like, Scaled, WithUnits
from pfnm.fusing.kinds import Pictures, Signals, Table, parsed_kind
from pfnm.fusing.probes import is_classifier, probe
from pfnm.fusing.sites import Sites, comparable, in_scaled_units, with_counts
from pfnm.fusing.tokens import Tokens, Written, writes
from pfnm.networks.features import in_columns_of
from pfnm.networks.network import Label, Network, Tensor
from pfnm.networks.outputs import with_head
from pfnm.networks.perceptron import with_activation

CHOICE_SEED = 0  # of the inputs by which a kind is chosen, always the same

Ends = tuple[ArrayLike, ArrayLike]
"""The smallest and the largest value of inputs: of all of them, or of each."""
Counts = ArrayLike | Mapping[str, Any] | Sequence[Mapping[Any, Any]] | str | PathLike[str] | None
"""Examples of each class at each site: (J, K), a mapping from site name, a DataFrame, a mapping
from class for each site, a file, "estimated"."""
ESTIMATED = "estimated"  # class counts, from what the sites' networks answer
MOST_REAL = 5000  # real inputs that are taken of a loader: more help no more
SHARE_PROBES = 1000  # on which they are estimated


def as_sites(
    networks: Iterable[Any] | str | PathLike[str],
    *,
    class_counts: Counts = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    head: str | None = None,
    inputs: Inputs | str | ArrayLike | None = None,
    input_range: Ends | None = None,
    input_like: ArrayLike | None = None,
    example_inputs: Any = None,
    output: int | str | None = None,
    model: Any = None,
    axis_rules: Mapping[str, Any] | None = None,
    axis_groups: Sequence[Mapping[str, int]] | None = None,
    record: Mapping[str, Any] | None = None,
) -> Sites:
    """The sites in one comparable form, with all that is known of them; arguments as `fuse` has.

    record: of a file that was fused of these sites, which tells what is not told here: class
    counts, site weights, kind and range of inputs.
    """
    names = list(networks) if are_named(networks) else None
    items = _each(networks)
    own = as_networks(
        items,
        labels=labels,
        activation=activation,
        head=head,
        example_inputs=example_inputs,
        output=output,
        model=model,
        axis_rules=axis_rules,
        axis_groups=axis_groups,
    )
    if names is not None:
        own = [renamed(network, name) for network, name in zip(own, names, strict=True)]
    estimated = isinstance(class_counts, str | PathLike) and str(class_counts) == ESTIMATED
    counts = None if estimated else counts_table(class_counts, own)
    hashes = tuple(sha256(n) if isinstance(n, str | PathLike) else None for n in items)
    if record is not None:
        recorded = recorded_rows(record, own, hashes)
        counts = recorded["class_counts"] if counts is None else counts
        site_weights = recorded["site_weights"] if site_weights is None else site_weights
        if all(told is None for told in (inputs, input_range, input_like)):
            inputs, input_range = recorded_inputs(record)
    sites = in_scaled_units(comparable(own, counts, site_weights))
    sites = replace(sites, hashes=hashes)
    sites = with_inputs(sites, inputs, input_range, input_like)
    if not estimated:
        return sites
    if not is_classifier(sites.networks[0]):
        raise PFNMError("class counts are estimated of classifiers, and these networks are none")
    probing = probe(sites, SHARE_PROBES, np.random.default_rng(CHOICE_SEED))
    return with_counts(sites, estimated_shares(sites, probing))


def are_named(networks: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether these are networks by their sites' names, and not one state dict or checkpoint."""
    return isinstance(networks, Mapping) and all(
        isinstance(name, str)
        and (
            isinstance(item, str | PathLike | Mapping | Network)
            or is_sklearn(item)
            or is_module(item)
        )
        for name, item in networks.items()
    )


def _each(networks: Iterable[Any] | str | PathLike[str]) -> list[Any]:
    """Networks one by one: a folder or a pattern of files stands for the networks it holds."""
    if are_named(networks):
        return list(networks.values())
    if isinstance(networks, str | PathLike) and (files := expanded([networks])) != [Path(networks)]:
        return list(files)
    if isinstance(networks, str | PathLike | Mapping) or not isinstance(networks, Iterable):
        raise PFNMError(
            "give a list of networks or files, at least two, in Python a mapping from site name to "
            "each, or a folder of files"
        )
    each: list[Any] = []
    for item in networks:
        each += expanded([item]) if isinstance(item, str | PathLike) else [item]
    return each


def recorded_rows(
    record: Mapping[str, Any], networks: Sequence[Network], hashes: Sequence[str | None]
) -> dict[str, Any]:
    """Class counts and site weights of a record, for these sites in their order.

    A site is known by its file's hash, or else by its name; None where one of them is not found.
    """
    none = {"class_counts": None, "site_weights": None}
    options, sites = record.get("options", {}), record.get("sites", [])
    if record.get("kind") != "fusion" or not isinstance(options, dict):
        return none
    by_hash = {site.get("sha256"): place for place, site in enumerate(sites)}
    by_name = {site["name"]: place for place, site in enumerate(sites)}
    places = [
        by_hash.get(found, by_name.get(network.name)) if found else by_name.get(network.name)
        for network, found in zip(networks, hashes, strict=True)
    ]
    if None in places or len(set(places)) < len(sites):
        return none
    return {
        name: [options[name][place] for place in places]
        if isinstance(options.get(name), list) and len(options[name]) == len(sites)
        else None
        for name in none
    }


def recorded_inputs(record: Mapping[str, Any]) -> tuple[str | None, Ends | None]:
    """The kind and the range of inputs that a record says were told, where it tells enough."""
    options = record.get("options", {})
    if record.get("kind") != "fusion" or not isinstance(options, dict):
        return None, None
    told, kind, ends = (options.get(n) for n in ("told_of_inputs", "inputs", "input_range"))
    if not isinstance(told, list) or not isinstance(kind, str):
        return None, None
    try:
        parsed_kind(kind)
    except PFNMError:
        told = [one for one in told if one != "inputs"]
    return (
        kind if "inputs" in told else None,
        (ends[0], ends[1])
        if "input_range" in told and isinstance(ends, list) and len(ends) == 2
        else None,
    )


def with_inputs(
    sites: Sites,
    inputs: Inputs | str | ArrayLike | None = None,
    input_range: Ends | None = None,
    input_like: ArrayLike | None = None,
) -> Sites:
    """The sites with the kind of inputs that was told, or else the one they seem to know.

    The range is the one told, that of the inputs to imitate, that of the scalers before the
    networks, or 0 to 1.
    """
    first = sites.networks[0]
    if _is_real(inputs):
        if input_range is not None or input_like is not None:
            raise PFNMError(
                "real inputs tell their range themselves; leave what is beside them out"
            )
        real: Any = inputs
        given = Given(sites.rows(rows_of(real, first, "the inputs")))
        return replace(sites, inputs=given, told=frozenset({"inputs", "input_range"}))
    rows = None if input_like is None else rows_of(input_like, first, "the inputs to imitate")
    ends = input_range
    if ends is None and rows is not None:
        ends = rows.min(axis=0), rows.max(axis=0)
    if ends is None and sites.scaling is not None:
        ends = sites.scaling.low, sites.scaling.high
    told = {"input_range"} if ends is not None else set()
    if rows is not None:
        told.add("inputs")
    if inputs is None:
        kind = _inputs_of(sites, ends)
    else:
        kind, range_told = _told_kind(inputs, ends, input_range)
        told |= {"inputs", "input_range"} if range_told else {"inputs"}
        kind.make(sites.networks, 1, np.random.default_rng(CHOICE_SEED))  # or an error that tells
        if first.program.examples is None:
            kind = WithUnits(kind if sites.scaling is None else Scaled(kind, sites.scaling))
    kind = _remembered(sites, kind)
    if rows is not None:
        kind = Like(kind, sites.rows(rows), mixed=first.program.examples is None)
    return replace(sites, inputs=kind, told=frozenset(told))


def _is_real(inputs: Any) -> bool:
    """Whether these are inputs, and not what kind they are of."""
    known = isinstance(inputs, str | type) or hasattr(inputs, "make")
    return not known and hasattr(inputs, "__iter__")


def _told_kind(inputs: Any, ends: Ends | None, input_range: Ends | None) -> tuple[Inputs, bool]:
    """A kind as told, in a range, and whether it states that itself."""
    kind = parsed_kind(inputs) if isinstance(inputs, str) else inputs
    if isinstance(kind, type) or not hasattr(kind, "make"):
        raise PFNMError(
            f"inputs is {kind!r}, expected a kind such as Pictures(3, 32, 32) or Table(), a text "
            "such as 'pictures:3x32x32', or real inputs"
        )
    if not isinstance(kind, Pictures | Signals | Table):
        return kind, False
    if kind.range is not None or kind.mean is not None:
        if input_range is not None:
            raise PFNMError("the inputs' range is told twice; leave one out")
        return kind, True
    return (kind if ends is None else replace(kind, range=ends)), False


def _remembered(sites: Sites, kind: Inputs) -> Inputs:
    """The kind, fitted to what the networks remember, where they do; text as they write it."""
    if isinstance(kind, Tokens) and all(writes(network, kind) for network in sites.networks):
        return Written(kind, sites.networks)
    if any(network.memory is None for network in sites.networks):
        return kind
    from pfnm.tracing.remembering import Remembered

    return Remembered(kind, sites.networks, sites.class_shares)


def _inputs_of(sites: Sites, ends: Ends | None) -> Inputs:
    """The kind of inputs the networks were shown, or else the one they agree most on."""
    first = sites.networks[0]
    if first.program.examples is not None:
        shown: Inputs = first.program.examples
        vocabulary = getattr(first.program, "vocabulary", None)
        return shown if vocabulary is None else Tokens(vocabulary)
    within = None if ends is None else _in_units(sites, checked_range(ends, first))
    return chosen_inputs(sites, within, np.random.default_rng(CHOICE_SEED))


def with_range_of(sites: Sites, rows: Tensor) -> Sites:
    """The sites, their inputs in the range of real ones where none was told; a told kind stays."""
    if "input_range" in sites.told or sites.networks[0].program.examples is not None:
        return sites  # a module was shown an example, which has its range
    told = sites.inputs if "inputs" in sites.told else None
    kind = told.kind if isinstance(told, WithUnits) else told
    return with_inputs(sites, kind, input_range=(rows.min(axis=0), rows.max(axis=0)))


def _in_units(sites: Sites, within: InputRange) -> InputRange:
    """A range of real inputs in the units in which the sites' networks take them."""
    if sites.scaling is None:
        return within
    return InputRange(*(sites.rows(np.asarray(end)) for end in (within.low, within.high)))


def checked_range(ends: Ends, network: Network) -> InputRange:
    """Between which values inputs lie, as told; one pair for all of them, or a pair for each."""
    inputs = network.numbers
    try:
        low, high = (np.asarray(end, dtype=float) for end in ends)
    except (TypeError, ValueError):
        raise PFNMError(
            "the inputs' range is no pair of numbers; give the low and the high end"
        ) from None
    for end in (low, high):
        if end.shape not in ((), (inputs,)):
            raise PFNMError(
                f"the inputs' range has ends of shape {end.shape}, expected one number, or one for "
                f"each of the {inputs} inputs that {network.name} takes"
            )
    return InputRange(low, high)


def rows_of(values: ArrayLike, network: Network, what: str) -> Tensor:
    """Inputs as the network takes them, (examples, inputs), or an error that says what is wrong."""
    values = in_columns_of(network, values)
    try:
        rows = np.asarray(_loaded(values), dtype=np.float32)
    except (TypeError, ValueError):
        rows = np.empty(0, dtype=np.float32)
    if rows.ndim > 2 and network.program.examples is not None:  # as a module takes them
        rows = rows.reshape(len(rows), -1)
    if rows.ndim != 2 or rows.shape[1] != network.numbers or not len(rows):
        raise PFNMError(
            f"{what} have shape {rows.shape}, expected rows of {network.numbers} numbers, as "
            f"{network.name} takes them"
        )
    if not np.isfinite(rows).all():
        raise PFNMError(f"{what} hold NaN or infinite values; leave such rows out")
    return rows


def _loaded(values: Any) -> Any:
    """What a loader of PyTorch's gives, as one array: the inputs of its batches, not their labels.

    Other values as they are.
    """
    if not any(base.__module__.startswith("torch.utils.data") for base in type(values).__mro__):
        return values.detach().cpu() if hasattr(values, "detach") else values
    found: list[Any] = []
    for batch in values:
        found.append(np.asarray(batch[0] if isinstance(batch, list | tuple) else batch))
        if sum(map(len, found)) >= MOST_REAL:
            break
    return np.concatenate(found)[:MOST_REAL] if found else []


def _checked_labels(
    labels: Sequence[Sequence[Label] | None], networks: int
) -> Sequence[Sequence[Label] | None]:
    if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
        raise PFNMError(f"labels is {labels!r}, expected a list of names for each site")
    for own in labels:
        if own is not None and not isinstance(own, Sequence | np.ndarray):
            raise PFNMError(f"labels: {own!r} is no list of names; give one for each site")
    if len(labels) != networks:
        raise PFNMError(f"labels of {len(labels)} sites for {networks} networks")
    return labels


def as_networks(
    items: Sequence[Any],
    *,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    head: str | None = None,
    example_inputs: Any = None,
    output: int | str | None = None,
    model: Any = None,
    axis_rules: Mapping[str, Any] | None = None,
    axis_groups: Sequence[Mapping[str, int]] | None = None,
) -> list[Network]:
    """Files, live objects and `Network`s as `Network`s, each named after its file or place."""
    if items and (model is not None or all(is_module(item) for item in items)):
        traced = {"output": output, "rules": axis_rules, "groups": axis_groups or ()}
        return _from_modules(items, labels, activation, head, example_inputs, model, traced)
    if _are_graphs(items):
        traced = {"output": output, "rules": axis_rules, "groups": axis_groups or ()}
        return _from_graphs(items, labels, activation, head, example_inputs, traced)
    if any(told is not None for told in (example_inputs, output, axis_rules, axis_groups)):
        raise PFNMError(
            "example inputs are for PyTorch modules, and not all of these are such; give the model "
            "whose weights the files hold"
        )
    paths = [item for item in items if isinstance(item, str | PathLike)]
    names = iter(site_names(paths))
    labels = [None] * len(items) if labels is None else _checked_labels(labels, len(items))
    networks = []
    for place, (item, own_labels) in enumerate(zip(items, labels, strict=True)):
        if isinstance(item, str | PathLike):
            network = load(item, activation=activation, labels=own_labels, name=next(names))
        elif isinstance(item, Network):
            network = item if item.name != "network" else replace(item, name=f"site{place}")
            if activation is not None and not network.activation_told:
                network = with_activation(network, activation)
            if own_labels is not None:
                network = replace(network, labels=tuple(own_labels))
        elif is_sklearn(item):
            from pfnm.frameworks.sklearn import from_estimator

            network = from_estimator(item, name=f"site{place}")
            if own_labels is not None and tuple(own_labels) != network.labels:
                raise PFNMError(
                    f"site{place} states its classes itself, {list(network.labels or ())}; leave "
                    "its labels out"
                )
        elif isinstance(item, Mapping):
            from pfnm.frameworks.state_dict import from_state_dict

            network = from_state_dict(
                item, name=f"site{place}", activation=activation, labels=own_labels
            )
        else:
            raise PFNMError(
                f"network {place} is a {type(item).__name__}; give files, scikit-learn "
                "MLPClassifiers or MLPRegressors (alone or in pipelines), state dicts, "
                "pfnm.Network, or PyTorch modules alone"
            )
        networks.append(network if head is None else with_head(network, head))
    return networks


def _from_modules(
    modules: Sequence[Any],
    labels: Sequence[Sequence[Label] | None] | None,
    activation: str | None,
    head: str | None,
    example_inputs: Any,
    model: Any,
    traced: Mapping[str, Any],
) -> list[Network]:
    """Modules, or files of a module's weights. traced: how they are, as `from_modules` takes it."""
    if example_inputs is None:
        raise PFNMError(
            "PyTorch modules are traced on an example; give example_inputs=(x,), a batch as the "
            "modules take it"
        )
    if activation is not None:
        raise PFNMError("a module's code states its activations; leave the activation out")
    from pfnm.tracing.modules import from_modules

    own = None if labels is None else _checked_labels(labels, len(modules))
    names = None
    if model is not None:
        names = site_names([item for item in modules if isinstance(item, str | PathLike)])
        modules = [load_module(item, model) for item in modules]
    networks = from_modules(modules, example_inputs, labels=own, names=names, **traced)
    return networks if head is None else [with_head(network, head) for network in networks]


def _are_graphs(items: Sequence[Any]) -> bool:
    """Whether these are ONNX files, the first of a convolutional network."""
    paths = [Path(item) for item in items if isinstance(item, str | PathLike)]
    if not items or len(paths) < len(items) or any(p.suffix.lower() != ".onnx" for p in paths):
        return False
    return holds_convolutions(paths[0])


def _from_graphs(
    paths: Sequence[str | PathLike[str]],
    labels: Sequence[Sequence[Label] | None] | None,
    activation: str | None,
    head: str | None,
    example_inputs: Any,
    traced: Mapping[str, Any],
) -> list[Network]:
    """ONNX graphs of one architecture, as the modules of PyTorch that they stand for."""
    if activation is not None:
        raise PFNMError("an ONNX graph states its activations; leave the activation out")
    own = None if labels is None else _checked_labels(labels, len(paths))
    networks = read_graphs(paths, example_inputs, labels=own, names=site_names(paths), **traced)
    return networks if head is None else [with_head(network, head) for network in networks]


def load_module(path: Any, model: Any) -> Any:
    """A copy of a module with the weights of a file, of whatever widths."""
    if not isinstance(path, str | PathLike) or not is_module(model):
        raise PFNMError("a model is for files that hold its weights; give files and a module")
    from pfnm.tracing.modules import module_with

    return module_with(model, read_state(path).tensors, str(path))


def is_module(item: Any) -> bool:
    """Whether this is a module of PyTorch, which is not imported to find out."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module"
        for base in type(item).__mro__
    )


def counts_table(counts: Counts, networks: Sequence[Network]) -> ArrayLike | None:
    """Class counts as (J, K), from whatever form they are given in."""
    told: Any = counts
    if isinstance(told, str | PathLike):
        told = read_class_counts(Path(told))
    elif hasattr(told, "columns") and hasattr(told, "index"):  # a DataFrame's rows have names
        told = named_counts(told, networks)
    elif isinstance(told, Sequence) and any(map(names_classes, told)):
        if len(told) != len(networks):
            raise PFNMError(f"class counts of {len(told)} sites for {len(networks)} networks")
        told = dict(zip((network.name for network in networks), told, strict=True))
    return counts_matrix(told, networks) if isinstance(told, Mapping) else told


def is_sklearn(item: Any) -> bool:
    """Whether this is an estimator of scikit-learn, which is not imported to find out."""
    return any(base.__module__.startswith("sklearn.") for base in type(item).__mro__)


def same_kind(network: Network, first: Any, inputs: Inputs | None = None) -> Any:
    """The network as what `first` is: an estimator, a pipeline, a module, a state dict...

    inputs: the kind on which a module's statistics are computed.
    """
    if is_sklearn(first):
        from pfnm.frameworks.sklearn import to_estimator

        return to_estimator(network, like=first)
    source = first if is_module(first) else getattr(network.program, "source", None)
    if source is not None:
        from pfnm.tracing.modules import to_module

        return to_module(network, source, inputs)
    if isinstance(first, Mapping):
        from pfnm.frameworks.state_dict import to_state_dict

        return to_state_dict(network, first)
    return network


def sha256(path: str | PathLike[str]) -> str:
    """A file's hash, for the record of what was fused."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
