"""What a network is: named tensors, the graph of their units, and a program that runs them."""
