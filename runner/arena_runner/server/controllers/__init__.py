"""Level-triggered reconcilers: look at one object, compare, take one idempotent step, record it."""
