"""Modules in a federation: one network in two forms, and the server that matches them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfnm.lab.checkpoints import Checkpoints
from pfnm.lab.method import State
from pfnm.lab.server import Server, combine
from pfnm.networks.network import Network

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from pfnm.lab.modules import (  # noqa: E402
    at_home,
    from_module,
    remembering,
    to_match,
    to_module,
    whole_again,
    whole_network,
)
from pfnm.tracing.shuffling import shuffled  # noqa: E402

ROWS = np.random.default_rng(0).uniform(size=(40, 64)).astype(np.float32)
EXAMPLE = torch.from_numpy(ROWS[:4]).reshape(4, 1, 8, 8)


def module(seed: int) -> nn.Module:
    """Two convolutions with batch normalisation, one of them in a residual stream."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
            self.second, self.again = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.first(x)).relu()
            x = (x + self.again(self.second(x))).relu()
            found: Tensor = self.head(x.mean(dim=(2, 3)))
            return found

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = Small()
        for part in made.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias)
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
    return made.eval()


def whole(seed: int = 0) -> Network:
    return whole_network(module(seed), (EXAMPLE,))


def test_both_forms_and_the_module_answer_alike() -> None:
    network = whole()
    with torch.no_grad():
        expected = module(0)(torch.from_numpy(ROWS).reshape(-1, 1, 8, 8)).numpy()
    matched = to_match(network)
    assert not any("running" in name for name in matched.tensors)
    forms = [network, matched, whole_again(matched, network), at_home(network, ROWS)]
    for form in [*forms, from_module(to_module(network), network)]:
        np.testing.assert_allclose(form.run(ROWS), expected, atol=1e-5)


def test_memory_is_that_of_the_inputs() -> None:
    """As PyTorch has it after one batch of all of them with no momentum."""
    made = to_module(remembering(whole(), ROWS))
    plain = module(0).train()
    for part in plain.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
    with torch.no_grad():
        plain(torch.from_numpy(ROWS).reshape(-1, 1, 8, 8))
    for name, own in plain.state_dict().items():
        if "running_mean" in name:
            torch.testing.assert_close(made.state_dict()[name], own)
    # Trained on from there, a network at home is normalised as it was at rest.
    home = to_module(at_home(whole(), ROWS)).train()
    with torch.no_grad():
        found = home(torch.from_numpy(ROWS).reshape(-1, 1, 8, 8)).numpy()
    np.testing.assert_allclose(found, whole().run(ROWS), atol=1e-3)


def combined(server: Server, sent: dict[str, Network]) -> Server:
    return combine(
        server, sent, counts=None, method="joint", budget=1.0, rng=np.random.default_rng(0)
    )


def test_renamed_copies_fuse_to_themselves_and_each_gets_its_own_part(tmp_path: Path) -> None:
    like = whole()
    other = shuffled(module(0), (EXAMPLE,), 3)
    sent = {"a": replace(like, name="a"), "b": replace(from_module(other, like), name="b")}
    server = replace(combined(Server(), sent), averaging=False)  # as long as it matches
    assert server.network is not None
    np.testing.assert_allclose(server.network.run(ROWS), like.run(ROWS), atol=1e-3)
    part = server.part("b")
    assert part.sizes == like.sizes
    own, others = (to_match(form).tensors["second.weight"] for form in (part, sent["b"]))
    np.testing.assert_allclose(own, others, atol=1e-4)
    checkpoints = Checkpoints(tmp_path, like, "run")
    checkpoints.keep_state("joint", 1, State(server))
    _, again = checkpoints.state("joint")
    assert again.server.network is not None
    np.testing.assert_array_equal(again.server.network.run(ROWS), server.network.run(ROWS))
    # A site that is away is stood in for, and comes back to its own units.
    later = replace(combined(again.server, {"a": sent["a"]}), averaging=False)
    assert set(later.sent) == {"a", "b"}
    np.testing.assert_allclose(later.part("b").run(ROWS), part.run(ROWS), atol=1e-3)
