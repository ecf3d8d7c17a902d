"""scikit-learn's MLPClassifier and MLPRegressor, and pipelines that end in one <-> `Network`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.frameworks.sklearn_scalers import flattened, scaled_by
from pfnm.networks.network import Label, Network, Scaling, Tensor
from pfnm.networks.perceptron import layers, mlp
from pfnm.networks.scaling import Affine

ACTIVATION_OF = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid", "identity": "identity"}
OUTPUT_OF = {"softmax": "softmax", "identity": "identity", "logistic": "sigmoid"}
UNTOLD_ROWS = 1  # rows a pooled scaler has seen: not known, so that new rows soon decide


def from_estimator(estimator: Any, *, name: str = "network") -> Network:
    """A fitted MLPClassifier or MLPRegressor as a network, its `classes_` as labels.

    It may stand at the end of a pipeline of scalers, which are folded into its first layer and tell
    the network's scaling; of a search (GridSearchCV, ...) its best estimator is taken. A binary
    classifier has one logistic output there, and two classes with softmax here; one that has seen a
    single class has learned it as the first of two, so here that class is left.
    """
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    steps = flattened(estimator, name) or [("", estimator)]
    *scalers, (_, estimator) = steps
    if not isinstance(estimator, MLPClassifier | MLPRegressor):
        raise PFNMError(
            f"{name}: found {type(estimator).__name__}, expected scikit-learn's MLPClassifier or "
            "MLPRegressor, alone or at the end of a pipeline"
        )
    if not hasattr(estimator, "coefs_"):
        raise PFNMError(f"{name}: this {type(estimator).__name__} is not fitted; fit it first")
    if estimator.activation not in ACTIVATION_OF or estimator.out_activation_ not in OUTPUT_OF:
        raise PFNMError(
            f"{name}: activation {estimator.activation!r} with output "
            f"{estimator.out_activation_!r} is not one pfnm knows; expected one of "
            f"{', '.join(ACTIVATION_OF)} with one of {', '.join(OUTPUT_OF)}"
        )
    weights, biases = list(estimator.coefs_), list(estimator.intercepts_)
    output, labels = OUTPUT_OF[estimator.out_activation_], None
    if isinstance(estimator, MLPClassifier):
        labels = [plain(label) for label in estimator.classes_]
        if estimator.n_outputs_ == 1:
            output = "softmax"
            weights[-1], biases[-1] = (
                two_classes(last)[..., : len(labels)] for last in (weights[-1], biases[-1])
            )
    elif output == "identity":
        output = "values"
    affine, scaling = scaled_by(scalers, weights[0].shape[0], name)
    if scaling is not None:
        weights[0], biases[0] = affine.folded_into(weights[0], biases[0])
    names = getattr(steps[0][1], "feature_names_in_", None)
    return mlp(
        weights,
        biases,
        names=tensor_names(len(weights)),
        transposed=False,
        activation=ACTIVATION_OF[estimator.activation],
        output=output,
        labels=labels,
        name=name,
        features=None if names is None else [str(feature) for feature in names],
        scaling=scaling,
    )


def tensor_names(depth: int) -> list[tuple[str, str]]:
    """The names of the layers' tensors in networks that come from an estimator."""
    return [(f"coefs_{c}", f"intercepts_{c}") for c in range(depth)]


def plain(label: Any) -> Label:
    """A label as Python's own text or number."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return value if isinstance(value, str | int | float | bool) else str(value)


def two_classes(parameters: Tensor) -> Tensor:
    """One logistic output z as the logits (-z/2, z/2), whose softmax is the same probability."""
    half: Tensor = parameters / 2
    return np.concatenate([-half, half], axis=-1)


def to_estimator(network: Network, *, like: Any = None) -> Any:
    """The network as a fitted estimator: a classifier if it has labels or an output function.

    With a scaling it is a pipeline of a StandardScaler and the MLP, whose weights are then those of
    scaled inputs, as further training wants them; its steps have the names that they have in
    `like`, if that is a pipeline.
    """
    try:
        from sklearn.pipeline import Pipeline
    except ImportError as error:
        raise PFNMError(
            f"{network.name}: scikit-learn is not installed; pip install 'pfnm[sklearn]'"
        ) from error

    estimator = to_mlp(network)
    names = step_names(like)
    if network.scaling is None and names is None:
        name_features(estimator, network)
        return estimator
    scaler_name, mlp_name = names or ("scaler", "mlp")
    steps = [(mlp_name, estimator)]
    if network.scaling is not None:
        steps.insert(0, (scaler_name, to_scaler(network.scaling)))
    name_features(steps[0][1], network)
    return Pipeline(steps)


def step_names(like: Any) -> tuple[str, str] | None:
    """The names of the scaler and of the MLP in a pipeline, if this is one."""
    from sklearn.pipeline import Pipeline

    pipeline = getattr(like, "best_estimator_", like)
    if not isinstance(pipeline, Pipeline):
        return None
    names = [name for name, _ in pipeline.steps]
    return ("scaler" if names[:-1] == [] else names[0]), names[-1]


def name_features(estimator: Any, network: Network) -> None:
    """Tell an estimator the names of its columns, where they are known."""
    if network.features is not None:
        estimator.feature_names_in_ = np.array(network.features, dtype=object)


def to_scaler(scaling: Scaling) -> Any:
    """A fitted StandardScaler of this centre and scale."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    scaler.mean_, scaler.scale_ = scaling.centre.copy(), scaling.scale.copy()
    scaler.var_ = scaler.scale_**2
    scaler.n_features_in_ = len(scaler.mean_)
    scaler.n_samples_seen_ = UNTOLD_ROWS
    return scaler


def to_mlp(network: Network) -> Any:
    """The network as a fitted MLP, taking scaled inputs if the network has a scaling.

    Two classes become one logistic output, as scikit-learn has it; classes are sorted; more than
    one sigmoid output makes a multilabel classifier. Missing labels are 0, 1, 2, ... Several plain
    outputs without labels are a regressor's only if the network came from one, which it says itself
    (output "values") or by its tensors' names; elsewhere they may as well be logits.
    """
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    activations = {ours: theirs for theirs, ours in ACTIVATION_OF.items()}
    if network.activation not in activations:
        raise PFNMError(
            f"{network.name}: scikit-learn has no activation {network.activation!r}, only "
            f"{', '.join(activations)}; save in another format"
        )
    stack = layers(network)
    dtype = np.result_type(network.dtype, np.float32)  # scikit-learn computes in 32 or 64 bits
    weights = [np.array(layer.weight, dtype) for layer in stack]
    biases = [
        np.zeros(layer.weight.shape[1], dtype)
        if layer.bias is None
        else np.array(layer.bias, dtype)
        for layer in stack
    ]
    if network.scaling is not None:
        affine = Affine(network.scaling.scale, network.scaling.centre)
        first, bias = affine.folded_into(weights[0], biases[0])
        weights[0], biases[0] = first.astype(dtype), np.asarray(bias, dtype)
    regresses = network.output == "values"
    classifies = not regresses and (network.output != "identity" or network.labels is not None)
    from_regressor = [(la.weight_name, la.bias_name) for la in stack] == tensor_names(len(stack))
    if not (classifies or regresses or from_regressor) and weights[-1].shape[1] > 1:
        raise PFNMError(
            f"{network.name}: {weights[-1].shape[1]} outputs without labels may be a classifier's "
            "or a regression's; give the labels of the classes (pfnm fuse --labels) or save in "
            "another format"
        )
    estimator = (MLPClassifier if classifies else MLPRegressor)(
        hidden_layer_sizes=tuple(weight.shape[1] for weight in weights[:-1]),
        activation=activations[network.activation],
    )
    out_activation = "identity"
    if classifies:
        out_activation, keep = set_classes(estimator, network, weights[-1].shape[1])
        weights[-1], biases[-1] = weights[-1][:, keep], biases[-1][keep]
        if out_activation == "logistic" and network.output != "sigmoid":
            weights[-1] = weights[-1][:, 1:] - weights[-1][:, :1]
            biases[-1] = biases[-1][1:] - biases[-1][:1]
    fitted = {
        "coefs_": weights,
        "intercepts_": biases,
        "n_features_in_": weights[0].shape[0],
        "n_layers_": len(weights) + 1,
        "n_outputs_": weights[-1].shape[1],
        "out_activation_": out_activation,
        # Where training starts, so that partial_fit can go on from here.
        "n_iter_": 0,
        "t_": 0,
        "loss_curve_": [],
        "best_loss_": np.inf,
        "validation_scores_": None,
        "best_validation_score_": None,
        "_no_improvement_count": 0,
    }
    for name, value in fitted.items():
        setattr(estimator, name, value)
    return estimator


def set_classes(estimator: Any, network: Network, outputs: int) -> tuple[str, list[int]]:
    """Give the classifier its classes; its output function, and our outputs in its order."""
    from sklearn.preprocessing import LabelBinarizer

    multilabel = network.output == "sigmoid" and outputs > 1
    one_logistic = network.output == "sigmoid" and outputs == 1
    if outputs == 1 and not one_logistic:
        raise PFNMError(
            f"{network.name}: one output with {network.output!r}, but scikit-learn needs two "
            "classes or more"
        )
    labels: tuple[Label, ...] = network.labels or tuple(range(outputs))
    if one_logistic:
        labels = (0, 1)
    if len({type(label) for label in labels}) > 1:
        raise PFNMError(
            f"{network.name}: labels {list(labels)} are of different types; scikit-learn needs one"
        )
    # scikit-learn's classes are sorted; the columns of a multilabel target stand as they are.
    keep = list(range(outputs))
    if not (multilabel or one_logistic):
        keep.sort(key=lambda index: labels[index])
        labels = tuple(labels[index] for index in keep)
    estimator.classes_ = np.array(labels)
    # A target of zeros and ones for each column is how scikit-learn knows a multilabel problem.
    target = np.eye(outputs, dtype=int) if multilabel else estimator.classes_
    estimator._label_binarizer = LabelBinarizer().fit(target)
    return ("logistic" if multilabel or len(labels) == 2 else "softmax"), keep
