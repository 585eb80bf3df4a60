"""HTTP routes: one file per API. Routes translate; they decide nothing."""
