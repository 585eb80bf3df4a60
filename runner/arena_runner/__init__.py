"""arena-runner: the server, the worker and the model server behind arena-gitops."""
