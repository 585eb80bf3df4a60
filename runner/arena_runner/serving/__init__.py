"""The model server: one base model, adapters that come and go, and what the control plane says to it."""
