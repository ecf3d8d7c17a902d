"""Two convolutional networks, trained apart from starts of their own, become one."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import pfnm


class Net(nn.Module):
    """Two convolutions and a linear layer, for pictures of 8 by 8."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * 4, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the ten digits."""
        scores: Tensor = self.layers(x)
        return scores


def train(module: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """Plain training, as any site would do it."""
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
    module.eval()


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of right answers."""
    with torch.no_grad():
        return float((module(x).argmax(dim=1) == y).float().mean())


def main() -> None:
    """Train two, fuse them, compare."""
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(digits)
    x, x_test, y, y_test = x[:1400], x[1400:], y[:1400], y[1400:]
    parts = [y < 6, y > 3]  # one site has seen the digits 0 to 5, the other 4 to 9
    sites = [Net(16), Net(20)]  # widths may differ
    for module, part in zip(sites, parts, strict=True):
        train(module, x[part], y[part], epochs=5)
    counts = [torch.bincount(y[part], minlength=10).numpy() for part in parts]
    fusion = pfnm.fuse(sites, example_inputs=(x[:2],), class_counts=counts, budget=1.3)
    fused = fusion.model  # a Net of the fused widths
    for name, module in [("site 1", sites[0]), ("site 2", sites[1]), ("fused", fused)]:
        count = sum(p.numel() for p in module.parameters())
        print(f"{name}: {accuracy(module, x_test, y_test):.3f}, {count:,} parameters")


if __name__ == "__main__":
    main()
