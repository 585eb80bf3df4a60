"""A population of places: who wins, what is copied, what is mutated. Pure values, every draw by counter."""
