"""skops files: scikit-learn's estimators and pipelines without pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path

from pfnm.errors import PFNMError
from pfnm.formats.content import Content
from pfnm.formats.limits import JSON_BYTES, Allowance, npy_declared
from pfnm.frameworks.sklearn import from_estimator, to_estimator
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers

SCHEMA = "schema.json"

# What is needed beyond the types skops itself trusts, which are scikit-learn's own estimators. All
# of these only hold numbers, texts or an estimator, and do nothing when they are loaded.
TRUSTED = (
    # where a trained MLPClassifier or MLPRegressor keeps its optimizer's state
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    # what a fitted GridSearchCV or RandomizedSearchCV holds by default: its folds, its scorer
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.metrics._scorer._PassthroughScorer",
)


def read(path: Path, file: str) -> Content:
    """The layers of the estimator in a skops file, which may hold nothing of another kind."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    check_members(path, file)
    try:
        estimator = skops.io.load(path, trusted=list(TRUSTED))
    except UntrustedTypesFoundException as error:  # before anything is made
        unknown = sorted(set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED))
        raise PFNMError(
            f"{file}: it holds {unknown[0]}, which is no part of scikit-learn's MLPClassifier or "
            "MLPRegressor, of a scaler or a pipeline; save the bare estimator or pipeline (of a "
            "search: its best_estimator_) with skops.io.dump"
        ) from error
    network = from_estimator(estimator, name=file)
    stack = layers(network)
    return Content(
        weights=[layer.weight for layer in stack],
        biases=[layer.bias for layer in stack],
        names=[(layer.weight_name, layer.bias_name) for layer in stack],
        transposed=False,
        activation=network.activation,
        output=network.output,
        labels=network.labels,
        features=network.features,
        scaling=network.scaling,
    )


def check_members(path: Path, file: str) -> None:
    """An error for a file that would take too much room; every member but the schema is an array.

    A sparse matrix, say, is an archive of its own, which may be of any size.
    """
    allowance = Allowance(file)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename == SCHEMA:
                allowance.take("its schema", JSON_BYTES * member.file_size)
                continue
            try:
                with archive.open(member) as opened:
                    size = max(member.file_size, npy_declared(opened).size)
            except ValueError as error:
                raise PFNMError(
                    f"{file}: {member.filename!r} in it is no plain array ({error}); save the bare "
                    "estimator or pipeline with skops.io.dump"
                ) from error
            allowance.take(repr(member.filename), size)


def write(network: Network) -> bytes:
    """The network as the skops file of a fitted estimator, or of a pipeline if it has a scaling."""
    import skops.io

    data: bytes = skops.io.dumps(to_estimator(network))
    return data
