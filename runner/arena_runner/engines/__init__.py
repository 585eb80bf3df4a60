"""Text generation for a population: one file per engine."""
