"""The control plane: stores desired state, hands out jobs, promotes checkpoints. Never imports torch.

`main` starts it, `app` is its HTTP face, `services` are the use-cases behind every API, `controllers` make
the world agree with the store.
"""
