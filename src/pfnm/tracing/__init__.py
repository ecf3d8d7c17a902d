"""PyTorch modules nobody described to us: which of their axes are permuted together, and a proof."""
