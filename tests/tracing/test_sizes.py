"""Sizes that PyTorch's own modules keep follow their tensors, or the module refuses them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.resize import resized, runs_like

FIRST: dict[str, Any] = {"batch_first": True}  # PyTorch warns otherwise


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (nn.Conv2d(8, 16, 3, groups=8), nn.Conv2d(12, 24, 3, groups=12)),  # depthwise, twice
        (nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(12, 12, 3, groups=6)),  # more groups
        (nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(12, 12, 3, groups=4)),  # wider groups
        (nn.Conv2d(8, 4, 3, groups=2), nn.Conv2d(12, 4, 3, groups=2)),  # wider inputs only
        (nn.Conv2d(1, 4, 3), nn.Conv2d(1, 6, 3)),
        (nn.ConvTranspose2d(8, 16, 3, groups=8), nn.ConvTranspose2d(6, 12, 3, groups=6)),
        (nn.ConvTranspose3d(8, 4, 3, groups=2), nn.ConvTranspose3d(12, 6, 3, groups=2)),
        (nn.GroupNorm(4, 8), nn.GroupNorm(4, 12)),
        (nn.GroupNorm(8, 8), nn.GroupNorm(12, 12)),
        (nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(6, affine=False)),
        (nn.InstanceNorm1d(4, affine=True), nn.InstanceNorm1d(6, affine=True)),
        (nn.LayerNorm((4, 3), bias=False), nn.LayerNorm((4, 5), bias=False)),
        (nn.EmbeddingBag(9, 4), nn.EmbeddingBag(9, 6)),
        (nn.PReLU(4), nn.PReLU(6)),
        (nn.LSTMCell(3, 4), nn.LSTMCell(5, 6)),
        (nn.GRUCell(3, 4, bias=False), nn.GRUCell(3, 6, bias=False)),
        (nn.LSTM(3, 4, bias=False), nn.LSTM(5, 6, bias=False)),
        (nn.Bilinear(3, 4, 5), nn.Bilinear(4, 5, 6)),
        (nn.MultiheadAttention(8, 2), nn.MultiheadAttention(12, 3)),
        (nn.MultiheadAttention(8, 2, kdim=5, vdim=6), nn.MultiheadAttention(12, 3, kdim=7, vdim=9)),
        (
            nn.MultiheadAttention(8, 2, add_bias_kv=True),
            nn.MultiheadAttention(4, 1, add_bias_kv=True),
        ),
        (nn.Transformer(8, 2, 1, 1, 9, **FIRST), nn.Transformer(16, 4, 1, 1, 9, **FIRST)),
    ],
    ids=str,
)
def test_sizes_of_modules_follow(before: nn.Module, after: nn.Module) -> None:
    copied = resized(before, after.state_dict())

    def plain(module: nn.Module) -> list[dict[str, Any]]:
        kinds = (int, float, str, tuple, type(None))
        return [
            {name: value for name, value in vars(part).items() if isinstance(value, kinds)}
            for part in module.modules()
        ]

    ignored = {"nhead"}  # of nn.Transformer, which only shows it
    for ours, theirs in zip(plain(copied), plain(after), strict=True):
        assert {name for name in theirs if ours[name] != theirs[name]} <= ignored
    for name, tensor in after.state_dict().items():
        assert torch.equal(copied.state_dict()[name], tensor), name


def test_recurrent_layers_of_different_widths() -> None:
    module = nn.LSTM(3, 4, num_layers=2)
    state = {**nn.LSTM(3, 6, num_layers=2).state_dict()}
    state |= {name: tensor for name, tensor in module.state_dict().items() if "hh_l1" in name}
    with pytest.raises(PFNMError, match="LSTM: its layers have different widths"):
        resized(module, state)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_units_with_zero_weights_change_nothing(kind: type[nn.RNNBase]) -> None:
    module = kind(3, 4)  # type: ignore[call-arg, arg-type]
    state = {}
    for name, tensor in module.state_dict().items():
        padded = torch.zeros(tensor.shape[0] // 4, 5, *tensor.shape[1:])  # gates, units
        padded[:, :4] = tensor.unflatten(0, (-1, 4))
        state[name] = padded.flatten(0, 1)
        if "weight_hh" in name:
            state[name] = nn.functional.pad(state[name], (0, 1))
    x = torch.randn(6, 2, 3)
    outputs = resized(module, state)(x)[0]
    assert torch.allclose(outputs[..., :4], module(x)[0], atol=1e-6)
    assert not outputs[..., 4].any()


@pytest.mark.parametrize(
    ("module", "state", "message"),
    [
        (nn.Linear(2, 2), {"wait": torch.ones(1)}, "Linear has no tensor wait; give those of"),
        (nn.Linear(2, 2), {"weight": torch.ones(3, 2)}, "Linear has a tensor bias that is not"),
        (nn.PReLU(2), {"weight": torch.ones(3, 2)}, "weight has 2 axes, and 1 in PReLU"),
        (
            nn.Sequential(nn.GroupNorm(2, 4, bias=False)),
            {"0.weight": torch.ones(5)},
            r"0 \(GroupNorm\): 5 channels cannot be split among its 2 groups",
        ),
        (
            nn.Conv1d(4, 4, 1, groups=2, bias=False),
            {"weight": torch.ones(5, 3, 1)},
            "Conv1d: 5 channels cannot be split among its 2 groups",
        ),
        (
            nn.MultiheadAttention(4, 2, bias=False),
            {"in_proj_weight": torch.ones(9, 3), "out_proj.weight": torch.ones(3, 3)},
            "2 coordinates each; here are 3 inputs and 3 coordinates",
        ),
        (
            nn.MultiheadAttention(4, 2, bias=False),
            {"in_proj_weight": torch.ones(18, 4), "out_proj.weight": torch.ones(4, 6)},
            "here are 4 inputs and 6 coordinates",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    module: nn.Module, state: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(PFNMError, match=message):
        resized(module, state)
    wrong = runs_like(module, state, (), {}, torch.ones(1))
    assert wrong is not None
