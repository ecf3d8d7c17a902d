"""The sizes that PyTorch's own modules keep in attributes, read again from their tensors."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from pfnm.errors import PFNMError

Sizes = dict[str, Any]

# attributes that are the lengths of the first axes of `weight`
AXES: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("out_features", "in_features"),
    nn.Bilinear: ("out_features", "in1_features", "in2_features"),
    nn.Embedding: ("num_embeddings", "embedding_dim"),
    nn.EmbeddingBag: ("num_embeddings", "embedding_dim"),
    nn.PReLU: ("num_parameters",),
}


def sizes_follow(label: str, module: nn.Module) -> None:
    """Sets the sizes of one module to what its tensors say; others' modules are left alone."""
    for kind, names in AXES.items():
        if isinstance(module, kind):
            _set(module, dict(zip(names, _shape(module, "weight"), strict=True)))
    for kind, rule in RULES.items():
        if isinstance(module, kind):
            _set(module, rule(label, module))


def _set(module: nn.Module, sizes: Sizes) -> None:
    for name, size in sizes.items():
        setattr(module, name, size)


def _shape(module: nn.Module, name: str) -> tuple[int, ...]:
    """The shape of a tensor that may be a parameter, or computed from parameters."""
    return tuple(getattr(module, name).shape)


def _convolution(label: str, conv: _ConvNd) -> Sizes:
    """Channels, and groups: as many as leave a group's shape (outputs to inputs) what it was.

    So a depthwise convolution stays depthwise, whole groups may be added, and groups may widen.
    """
    rows, columns = conv.weight.shape[:2]  # of all groups; of one group
    old_rows, old_columns = conv.out_channels, conv.in_channels // conv.groups
    if conv.transposed:
        old_rows, old_columns = conv.in_channels, conv.out_channels // conv.groups
    groups, rest = divmod(rows * old_columns * conv.groups, old_rows * columns)
    groups = conv.groups if rest or conv.groups == 1 else groups
    if rows % groups:
        raise PFNMError(
            f"{label}: {rows} channels cannot be split among its {groups} groups; "
            "use a multiple of them"
        )
    channels = (rows, columns * groups) if conv.transposed else (columns * groups, rows)
    return {"in_channels": channels[0], "out_channels": channels[1], "groups": groups}


def _batch_norm(label: str, norm: _NormBase) -> Sizes:
    tensor = norm.running_mean if norm.weight is None else norm.weight
    return {"num_features": len(tensor)}


def _layer_norm(label: str, norm: nn.LayerNorm | nn.RMSNorm) -> Sizes:
    return {"normalized_shape": tuple(norm.weight.shape)}


def _group_norm(label: str, norm: nn.GroupNorm) -> Sizes:
    """As many groups as before; where each channel was a group, each still is."""
    channels = len(norm.weight)
    each = norm.num_groups == norm.num_channels > 1
    groups = channels if each else norm.num_groups
    if channels % groups:
        raise PFNMError(
            f"{label}: {channels} channels cannot be split among its {groups} groups; "
            "use a multiple of them"
        )
    return {"num_channels": channels, "num_groups": groups}


def _recurrent(label: str, network: nn.RNNBase) -> Sizes:
    """All layers and directions of a recurrent module have one width: that is checked."""
    hidden = [name for name in network._flat_weights_names if "_hh_" in name or "_hr_" in name]
    shapes = {_shape(network, name) for name in hidden if name.startswith("weight")}
    if len(shapes) != (2 if network.proj_size else 1):
        raise PFNMError(
            f"{label}: its layers have different widths, and {type(network).__name__} has one for "
            "all; give all layers the widest (units with zero weights change nothing)"
        )
    state = _shape(network, "weight_hh_l0")[1]
    projected = network.proj_size > 0
    return {
        "input_size": _shape(network, "weight_ih_l0")[1],
        "hidden_size": _shape(network, "weight_hr_l0")[1] if projected else state,
        "proj_size": state if projected else 0,
    }


def _cell(label: str, cell: nn.RNNCellBase) -> Sizes:
    return {"input_size": cell.weight_ih.shape[1], "hidden_size": cell.weight_hh.shape[1]}


def _attention(label: str, attention: nn.MultiheadAttention) -> Sizes:
    """Heads keep their size, so their number follows; heads and inputs have one width."""
    width = len(attention.out_proj.weight)
    inner = attention.out_proj.weight.shape[1]
    heads, rest = divmod(width, attention.head_dim)
    if inner != width or rest:
        raise PFNMError(
            f"{label}: MultiheadAttention needs inputs as wide as its heads together, "
            f"{attention.head_dim} coordinates each; here are {width} inputs and {inner} "
            "coordinates"
        )
    joint = attention.in_proj_weight is not None
    return {
        "embed_dim": width,
        "kdim": width if joint else attention.k_proj_weight.shape[1],
        "vdim": width if joint else attention.v_proj_weight.shape[1],
        "num_heads": heads,
    }


def _transformer(label: str, transformer: nn.Transformer) -> Sizes:
    parts = transformer.modules()
    attention = next((part for part in parts if isinstance(part, nn.MultiheadAttention)), None)
    return {"d_model": len(attention.out_proj.weight)} if attention else {}


RULES: dict[type[nn.Module], Callable[[str, Any], Sizes]] = {
    _ConvNd: _convolution,
    _NormBase: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.RNNBase: _recurrent,
    nn.RNNCellBase: _cell,
    nn.MultiheadAttention: _attention,
    nn.Transformer: _transformer,
}
