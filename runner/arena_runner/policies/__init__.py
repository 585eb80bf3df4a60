"""A population of small networks as stacked tensors: designs, layers, stacks, groups by shape, and the crew of all."""
