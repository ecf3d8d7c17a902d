"""A MONAI U-Net: its unit groups, and three renamed copies of it fused back into it.

Needs MONAI: pip install --no-deps monai==1.6.1
"""

import torch
from monai.networks.nets import BasicUNet

import pfnm

torch.manual_seed(0)
x = torch.randn(2, 1, 32, 32)
network = BasicUNet(2, 1, 2, features=(8, 8, 16, 32, 64, 8)).eval()
print(pfnm.trace(network, x))

copies = [pfnm.shuffled(network, (x,), seed=seed) for seed in range(3)]
scans = torch.rand(
    50, 1, 32, 32
)  # stand for real ones without labels; without any leave inputs out
fused = pfnm.fuse(copies, example_inputs=(x,), inputs=scans, budget=1.0).model
with torch.no_grad():
    error = float((fused(x) - network(x)).abs().max() / network(x).abs().max())
print(f"fused back, the outputs differ by {error:.1e} of the largest")
