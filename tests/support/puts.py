"""What the contract suites put: resources of a small stack, as an apply would."""

from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import PutResource

EXPERIMENT = Address("experiment", "words-grpo")
REWARD = Address("reward", "exact")
DATASET = Address("dataset", "words")
DEPLOYMENT = Address("deployment", "words")


def body(stack, address):
    resource = stack.resources[address]
    return PutResource(
        owner=stack.owner,
        spec=dict(resource.spec),
        fingerprint=resource.fingerprint,
        provenance=resource.provenance,
    )


def put(platform, stack, address, etag=None, key=None):
    key = key or sha256_bytes(f"{stack.owner} {address} {etag} {stack.resources[address]}".encode())
    return platform.put(address, body(stack, address), etag=etag, idempotency_key=key)


def put_experiment(platform, stack, etag=None, key=None):
    """With its files, as apply does."""
    for resource in stack.resources.values():
        for blob in resource.blobs:
            platform.upload(blob)
    return put(platform, stack, EXPERIMENT, etag, key)


def usual(stack, unique, **experiment):
    experiment["set"] = {**unique, **experiment.get("set", {})}
    return stack.dataset().reward().experiment(**experiment)


def waiting(document):
    """Its run, but for the sentence about what it waits for, which may be written at any time."""
    return document.run.model_copy(update={"message": ""})
