"""Networks written as PyTorch modules."""
