"""What groups are found in tiny modules, each for one rule or one structure of axes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pfnm.networks.graph import INPUT, OUTPUT, Axis, Part
from pfnm.tracing.trace import Trace, trace

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


class Block(nn.Module):
    """Modules by name, and a function that runs them."""

    def __init__(self, run: object, **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.run(self, *inputs)  # type: ignore[operator]
        return found


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def found(run: object, x: tuple[int, ...], **parts: nn.Module | Tensor) -> Trace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        traced = trace(Block(run, **parts), normal(*x))
    assert not [own for own in traced.pinned if own.in_the_way], str(traced)
    return traced


def widths(traced: Trace) -> dict[str, int]:
    shapes = {n: tuple(d.size for d in own.axes) for n, own in traced.program.layouts.items()}
    sizes = traced.graph.sizes(shapes)
    return {group: sizes[group] for group in traced.graph.groups}


def test_a_chain_of_layers_has_a_group_between_each_two() -> None:
    traced = found(
        lambda m, x: m.c(m.b(m.a(x).relu()).tanh()),
        (3, 4),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 6),
        c=nn.Linear(6, 2),
    )
    assert widths(traced) == {"a": 5, "b": 6}
    assert traced.graph.axes["a.weight"] == (Axis.of("a"), Axis.of(INPUT))
    assert traced.graph.axes["c.weight"] == (Axis.of(OUTPUT), Axis.of("b"))
    assert not traced.graph.rigid


def test_flattened_maps_have_a_block_for_each_filter() -> None:
    traced = found(
        lambda m, x: m.b(m.a(x).flatten(1)), (2, 3, 4, 4), a=nn.Conv2d(3, 5, 3), b=nn.Linear(20, 2)
    )
    assert traced.graph.axes["b.weight"][1] == Axis.of("a", after=4)


def test_concatenated_maps_have_two_parts() -> None:
    traced = found(
        lambda m, x: m.c(torch.cat([m.a(x), x, m.b(x)], 1)),
        (3, 4),
        a=nn.Linear(4, 5),
        b=nn.Linear(4, 6),
        c=nn.Linear(15, 2),
    )
    parts = traced.graph.axes["c.weight"][1].parts
    assert parts == (Part(("a",)), Part((INPUT,)), Part(("b",)))


def test_a_slice_cuts_a_group() -> None:
    traced = found(
        lambda m, x: m.b(m.a(x)[:, 2:5]) + m.c(m.a(x)[:, :2]) + m.a(x)[:, 5:6],
        (3, 4),
        a=nn.Linear(4, 6),
        b=nn.Linear(3, 2),
        c=nn.Linear(2, 2),
    )
    assert sorted(widths(traced).values()) == [2, 3]


def test_every_second_unit_is_a_column() -> None:
    traced = found(
        lambda m, x: m.b(m.a(x)[:, ::2] * m.a(x)[:, 1::2]),
        (3, 4),
        a=nn.Linear(4, 10),
        b=nn.Linear(5, 2),
    )
    assert widths(traced) == {"a": 5}
    assert traced.graph.axes["a.weight"][0].parts == (Part(("a",)), Part(("a",)))


def test_units_padded_with_zeros_are_their_own() -> None:
    traced = found(
        lambda m, x: m.c(functional.pad(m.a(x), (1, 2)) + m.b(x)),
        (3, 4),
        a=nn.Linear(4, 5),
        b=nn.Linear(4, 8),
        c=nn.Linear(8, 2),
    )
    assert 5 in widths(traced).values()
    assert 2 in widths(traced).values()


@pytest.mark.parametrize("layout", ["three, heads, d", "heads, three, d", "halves"])
def test_values_have_an_order_of_their_own(layout: str) -> None:
    def run(m: Block, x: Tensor) -> Tensor:
        fused = m.get_submodule("qkv")(x)
        if layout == "three, heads, d":
            q, k, v = fused.unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        elif layout == "heads, three, d":
            q, k, v = fused.view(2, 5, 2, 3, 4).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = (
                own.view(2, 5, 2, 4).transpose(1, 2) for own in fused.split([8, 8, 8], dim=-1)
            )
        own: Tensor = functional.scaled_dot_product_attention(q, k, v)
        own = m.get_submodule("out")(own.transpose(1, 2).flatten(2))
        return own

    traced = found(run, (2, 5, 6), qkv=nn.Linear(6, 24), out=nn.Linear(8, 3))
    assert sorted(widths(traced).values()) == [2, 4, 4]  # heads, queries with keys, values
    heads = next(group for group, width in widths(traced).items() if width == 2)
    assert set(traced.graph.inner.values()) == {heads}
    assert heads not in traced.graph.rigid


def test_queries_are_grouped_within_the_heads_of_keys() -> None:
    def run(m: Block, x: Tensor) -> Tensor:
        q = m.get_submodule("q")(x).view(2, 5, 6, 4).transpose(1, 2)
        k = m.get_submodule("k")(x).view(2, 5, 2, 4).transpose(1, 2)
        v = m.get_submodule("v")(x).view(2, 5, 2, 4).transpose(1, 2)
        own = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        found: Tensor = m.get_submodule("out")(own.transpose(1, 2).reshape(2, 5, 24))
        return found

    traced = found(
        run,
        (2, 5, 6),
        q=nn.Linear(6, 24),
        k=nn.Linear(6, 8),
        v=nn.Linear(6, 8),
        out=nn.Linear(24, 3),
    )
    assert sorted(widths(traced).values()) == [2, 3, 4, 4]
    assert len(traced.graph.inner) == 3


def test_a_grouped_convolution_orders_channels_within_groups() -> None:
    traced = found(
        lambda m, x: m.c(m.b(m.a(x)).relu()).mean((2, 3)),
        (2, 3, 4, 4),
        a=nn.Conv2d(3, 6, 1),
        b=nn.Conv2d(6, 8, 3, groups=2),
        c=nn.Conv2d(8, 2, 1),
    )
    assert sorted(widths(traced).values()) == [2, 3, 4]
    assert len(traced.graph.inner) == 2
    assert len(traced.graph.axes["b.weight"]) == 3  # groups x filters x channels are one axis
    state = traced.state(traced.tensors(Block(None, a=nn.Conv2d(3, 6, 1),
        b=nn.Conv2d(6, 8, 3, groups=2), c=nn.Conv2d(8, 2, 1))))  # fmt: skip
    assert state["b.weight"].shape == (8, 3, 3, 3)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_depthwise_convolution_keeps_channels(transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    traced = found(
        lambda m, x: m.c(m.b(m.a(x))).mean((2, 3)),
        (2, 3, 5, 5),
        a=nn.Conv2d(3, 6, 1),
        b=kind(6, 6, 3, groups=6),
        c=nn.Conv2d(6, 2, 1),
    )
    assert widths(traced) == {"a": 6}
    assert not traced.graph.rigid


@pytest.mark.parametrize(
    ("norm", "rigid"),
    [
        (nn.BatchNorm1d(8), False),
        (nn.LayerNorm(8), True),
        (nn.RMSNorm(8), True),
        (nn.GroupNorm(1, 8), True),
        (nn.Softmax(1), True),
        (nn.PReLU(8), False),
    ],
    ids=str,
)
def test_what_a_norm_runs_over_is_rigid(norm: nn.Module, rigid: bool) -> None:
    traced = found(lambda m, x: m.b(m.n(m.a(x))), (3, 4), a=nn.Linear(4, 8), n=norm,
                   b=nn.Linear(8, 2))  # fmt: skip
    assert widths(traced) == {"a": 8}
    assert bool(traced.graph.rigid) == rigid


def test_groups_of_a_norm_may_trade_places() -> None:
    traced = found(lambda m, x: m.b(m.n(m.a(x))), (3, 4), a=nn.Linear(4, 8), n=nn.GroupNorm(4, 8),
                   b=nn.Linear(8, 2))  # fmt: skip
    assert widths(traced) == {"a": 4, "a#2": 2}
    assert traced.graph.inner == {"a#2": "a"}
    assert list(traced.graph.rigid) == ["a#2"]


def test_einsum_and_raw_parameters() -> None:
    traced = found(
        lambda m, x: torch.einsum("bi,ioh->boh", x, m.w).relu().sum(1) @ m.v,
        (3, 4),
        w=normal(4, 5, 6),
        v=normal(6, 2),
    )
    assert sorted(widths(traced).values()) == [5, 6]


def test_an_embedding_gives_units_and_its_rows_are_inputs() -> None:
    module = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    traced = trace(module, torch.tensor([[1, 2], [3, 4]]))
    assert traced.graph.axes["0.weight"] == (Axis.of(INPUT), Axis.of("0"))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"batch_first": True}], ids=str)
def test_every_layer_and_direction_has_a_state(
    kind: Callable[..., nn.Module], layers: int, both: bool, options: dict[str, bool]
) -> None:
    traced = found(
        lambda m, x: m.b(m.a(x)[0][-1]),
        (3, 2, 4),
        a=kind(4, 5, num_layers=layers, bidirectional=both, **options),
        b=nn.Linear(10 if both else 5, 2),
    )
    assert list(widths(traced).values()) == [5] * (layers * (1 + both))
    assert [len(own) for own in traced.graph.alike] == [layers * (1 + both)] * (layers + both > 1)


def test_a_projected_state_is_a_group_beside_the_cell() -> None:
    lstm = nn.LSTM(4, 6, proj_size=3, batch_first=True)
    traced = found(lambda m, x: m.b(m.a(x)[1][0][-1]), (3, 2, 4), a=lstm, b=nn.Linear(3, 2))
    assert sorted(widths(traced).values()) == [3, 6]


def test_tied_tensors_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 4)
            self.hidden = nn.Linear(4, 4)
            self.head = nn.Linear(4, 9, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.hidden(self.embedding(x)).relu())
            return found

    module = Tied()
    traced = trace(module, torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert traced.names["embedding.weight"] == ("embedding.weight", "head.weight")
    assert widths(traced) == {"hidden": 4}
    state = traced.state(traced.tensors(module))
    assert set(state) == set(module.state_dict())


def test_units_added_to_inputs_stay() -> None:
    traced = found(lambda m, x: m.b(m.a(x) + x), (3, 4), a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    assert traced.graph.groups == ()


def test_unused_tensors_stay() -> None:
    traced = found(lambda m, x: m.a(x), (3, 4), a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    assert {own.kind for own in traced.pinned if own.tensor == "b.weight"} == {"unused"}


def test_rows_that_the_example_leaves_out_stay() -> None:
    traced = found(
        lambda m, x: m.b((m.a(x) + m.places[: x.shape[1]]).relu()),
        (2, 5, 4),
        a=nn.Linear(4, 6),
        b=nn.Linear(6, 2),
        places=normal(9, 6),
    )
    assert widths(traced) == {"a": 6}
    assert traced.graph.axes["places"] == (Axis.fixed(9), Axis.of("a"))


def test_cells_step_by_step() -> None:
    def run(m: Block, x: Tensor) -> Tensor:
        state = torch.zeros(2, 5), torch.zeros(2, 5)
        other = x.new_zeros(2, 3)
        for place in range(x.shape[1]):
            state = m.get_submodule("a")(x[:, place], state)
            other = m.get_submodule("b")(state[0], other)
        last: Tensor = m.get_submodule("c")(other)
        return last

    traced = found(run, (2, 4, 3), a=nn.LSTMCell(3, 5), b=nn.GRUCell(5, 3), c=nn.Linear(3, 2))
    assert widths(traced) == {"a": 5, "b": 3}


def test_a_learned_start_ties_the_layers_of_an_lstm() -> None:
    traced = found(
        lambda m, x: m.b(m.a(x, (m.h.expand(-1, 2, -1).contiguous(), m.c.repeat(1, 2, 1)))[0]),
        (4, 2, 3),
        a=nn.LSTM(3, 5, num_layers=2),
        b=nn.Linear(5, 2),
        h=normal(2, 1, 5),
        c=normal(2, 1, 5),
    )
    assert list(widths(traced).values()) == [5]


def test_a_transformer_with_a_causal_mask() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12)
    traced = found(
        lambda m, x: m.a(x, nn.Transformer.generate_square_subsequent_mask(5)),
        (5, 2, 8),
        a=nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
    )
    assert sorted(widths(traced).values()) == [2, 4, 4, 12]


def test_a_group_of_a_norm_across_two_pieces_stays_where_it_is() -> None:
    traced = found(
        lambda m, x: m.c(m.n(torch.cat([m.a(x), m.b(x)], 1))).mean((2, 3)),
        (2, 3, 4, 4),
        a=nn.Conv2d(3, 16, 1),
        b=nn.Conv2d(3, 8, 1),
        n=nn.GroupNorm(4, 24),
        c=nn.Conv2d(24, 2, 1),
    )
    assert sorted(widths(traced).values()) == [2, 4, 6, 6, 6]
    assert set(traced.graph.rigid) == set(traced.graph.groups)


def test_pairs_turned_by_their_place_stay_and_heads_move() -> None:
    def turned(x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[2])[:, None] / torch.arange(1, 3)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 2, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)

    def run(m: Block, x: Tensor) -> Tensor:
        q, k, v = (m.get_submodule(n)(x).view(2, 5, 3, 4).transpose(1, 2) for n in "qkv")
        own = functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        last: Tensor = m.get_submodule("o")(own.transpose(1, 2).reshape(2, 5, 12))
        return last

    parts = {name: nn.Linear(6, 12) for name in "qkv"}
    traced = found(run, (2, 5, 6), **parts, o=nn.Linear(12, 2))
    assert sorted(widths(traced).values()) == [3, 4]
    assert traced.graph.axes["q.weight"][0].parts[0].factors == ("q", 4)
