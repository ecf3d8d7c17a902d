"""Networks written as PyTorch modules: traced, proved, run at any width, resized."""
