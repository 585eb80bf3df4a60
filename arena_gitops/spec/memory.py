"""How much memory a population needs, in closed form: from a model's shape and a manifest, to bytes.

It mirrors the trainer term by term (`arena_runner`: one frozen base, every member's adapters as rows of one matrix,
fp32 masters, gradients and moments, packs of a fixed number of tokens, a cache for the rows in flight), so it is
measured against it: `tests/runner/maths/test_memory_estimate.py` holds it to `TOLERANCE`. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.spec.resource import Frozen

TOLERANCE = 0.25
"""How far off the closed form may be; measured on CPUs it is within 10%"""
FP32 = 4
BF16 = 2
PREFILL_TOKENS = 4096
"""prompt tokens that the engine runs at once"""
HEAD_CHUNK = {"cpu": 128, "cuda": 2048}
"""tokens whose logits exist at one moment"""
ROWS_IN_FLIGHT = {"cpu": 64, "cuda": 512}
TOKENS_PER_BACKWARD = {"cpu": 1024, "cuda": 16384}
LEAST_TOKENS_PER_BACKWARD = {"cpu": 128, "cuda": 1024}
"""what a run on a full machine makes do with before it gives up"""
STEP_SCRATCH = 6
"""copies of the adapters' numbers that one optimizer step makes"""
RUNTIME_GIB = {"cpu": 0.75, "cuda": 1.0}
"""the process itself: libraries on a CPU, context and workspaces on a GPU"""
GIB = 1 << 30


class ModelFacts(Frozen):
    """The shape of a decoder-only language model."""

    id: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = True
    """whether the head is the embedding"""
    parameters: int | None = None
    """counted, where the weights are at hand"""

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Linear layers of one decoder layer: name → in, out."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def weights(self) -> int:
        """Numbers the model consists of."""
        if self.parameters is not None:
            return self.parameters
        layer = sum(a * b for a, b in self.linears.values()) + 2 * self.hidden
        return self.layers * layer + self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden


class Load(Frozen):
    """What a manifest asks of the machine."""

    members: int
    ranks: int
    """sum over the members, and over the frozen reference where there is one"""
    targets: tuple[str, ...] | None
    """None: every linear layer"""
    prompts: int
    """of all members in one iteration"""
    completions: int
    """for each prompt; 1 where nothing is sampled"""
    new_tokens: int
    """longest completion; 0 where nothing is sampled"""
    context: int


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes by what they are for."""

    weights: int
    adapters: int
    """masters, gradients and the rounded copy"""
    moments: int
    training: int
    """activations, head and optimizer scratch at the fullest moment of an update"""
    sampling: int
    """keys, values and logits of the rows in flight"""

    @property
    def peak(self) -> int:
        """Training and sampling take turns."""
        return self.weights + self.adapters + self.moments + max(self.training, self.sampling)


def facts_of(name: str, config: Mapping[str, Any], parameters: int | None = None) -> ModelFacts | None:
    """The shape that a model's `config.json` describes; None for one that is not of this family."""
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return ModelFacts(
            id=name,
            hidden=hidden,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", True)),
            parameters=parameters,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def load_of(manifest: Mapping[str, Any], *, chained: bool = False) -> Load | None:
    """What a manifest in normal form asks for; None where its algorithm or network is of another kind."""
    algorithm, network, training = (manifest.get(part) or {} for part in ("algorithm", "network", "training"))
    lora = network.get("lora_config") or {}
    if "lora_r" not in lora or "batch_size" not in algorithm:
        return None
    members, rank = int(training.get("pop_size") or 1), int(lora["lora_r"])
    targets = lora.get("target_modules")
    sampled = "group_size" in algorithm
    everything = targets is None or targets in ("all-linear", ["all-linear"])
    named = (targets,) if isinstance(targets, str) else tuple(targets or ())
    return Load(
        members=members,
        ranks=(members + chained) * rank,
        targets=None if everything else named,
        prompts=members * int(algorithm["batch_size"]),
        completions=int(algorithm["group_size"]) if sampled else 1,
        new_tokens=int(algorithm.get("max_output_tokens") or 0) if sampled else 0,
        context=int(network.get("max_context_length") or 0),
    )


def need(
    facts: ModelFacts,
    load: Load,
    *,
    device: str,
    dtype: int,
    prompt_tokens: int,
    own_tokens: int | None = None,
    tokens_per_backward: int | None = None,
) -> Need:
    """Bytes that a run needs.

    Args:
        facts: of the base model.
        load: of the manifest.
        device: `cpu` or `cuda`, which decides the sizes of packs and of the batch in flight.
        dtype: bytes of a number in base and activations.
        prompt_tokens: of the longest prompt.
        own_tokens: that completions really have; the most there may be where absent.
        tokens_per_backward: of one pack; what the device usually gets where absent.
    """
    own = load.new_tokens if own_tokens is None else own_tokens
    features = facts.layers * sum(a + b for name, (a, b) in facts.linears.items() if _on(load, name))
    numbers = load.ranks * features
    pack = _pack(load, prompt_tokens, own, tokens_per_backward or TOKENS_PER_BACKWARD[device])
    return Need(
        weights=facts.weights * dtype,
        adapters=numbers * (2 * FP32 + dtype),
        moments=numbers * 2 * FP32,
        training=max(_update(facts, load, pack, device=device, dtype=dtype), STEP_SCRATCH * FP32 * numbers),
        sampling=_sampling(facts, load, prompt_tokens, device=device, dtype=dtype) if own else 0,
    )


@dataclass(frozen=True, slots=True)
class _Pack:
    """What one forward and backward holds."""

    tokens: int
    keys: int
    """tokens whose keys and values attention is given: a prompt's once for each completion"""
    rank: int
    """rows of the adapters in use"""


def _pack(load: Load, prompt: int, own: int, budget: int) -> _Pack:
    """Groups fill a pack as long as they fit; one that is larger than a pack is split between completions."""
    fed = max(own - 1, 0)
    group = max(prompt + load.completions * fed, 1)
    if group > budget:
        completions = max((budget - prompt) // max(fed, 1), 1)
        tokens = prompt + completions * fed
        return _Pack(tokens, prompt + completions * (prompt + fed), load.ranks // max(load.members, 1))
    groups = min(budget // group, load.prompts)
    members = -(-groups * load.members // load.prompts)
    keys = prompt + (load.completions * (prompt + fed) if fed else 0)
    return _Pack(groups * group, groups * keys, members * load.ranks // max(load.members, 1))


def _on(load: Load, *names: str) -> bool:
    return load.targets is None or any(name in load.targets for name in names)


def _update(facts: ModelFacts, load: Load, pack: _Pack, *, device: str, dtype: int) -> int:
    """Activations that the backward pass of one pack needs, with what its fullest layer and the head add.

    A frozen linear layer keeps nothing; an adapter beside it keeps what goes in.
    """
    hidden, wide = facts.hidden, facts.intermediate
    queries, keys = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    kept = dtype * 2 * hidden  # what enters the two norms
    kept += FP32 * 2 * hidden if dtype < FP32 else 0  # and its copy in fp32
    kept += dtype * hidden * (_on(load, "q_proj", "k_proj", "v_proj") + _on(load, "gate_proj", "up_proj"))
    kept += dtype * queries * (2 + _on(load, "o_proj"))  # queries, and what attention says
    kept += dtype * wide * (3 + _on(load, "down_proj"))  # gate, its activation, up, and their product
    kept += dtype * 2 * pack.rank * sum(_on(load, name) for name in facts.linears)
    passing = dtype * (2 * wide + 5 * hidden)  # gradients on the way down, and the last hidden states
    attended = 2 * dtype * keys * pack.keys
    head = min(HEAD_CHUNK[device], pack.tokens) * facts.vocab * (2 * FP32 + dtype)
    return pack.tokens * (facts.layers * kept + passing) + facts.layers * attended + head


def _sampling(facts: ModelFacts, load: Load, prompt_tokens: int, *, device: str, dtype: int) -> int:
    """Keys and values of the rows in flight, with the logits of a step or the prompts that are read.

    Room is made for the longest completion there may be, however long they become.
    """
    rows = min(ROWS_IN_FLIGHT[device], load.prompts * load.completions)
    prompts = min(rows, load.prompts)
    cached = prompts * prompt_tokens + rows * load.new_tokens
    cache = 2 * facts.layers * facts.kv_heads * facts.head_dim * cached * dtype
    logits = rows * facts.vocab * (2 * FP32 + dtype)
    prefilled = min(PREFILL_TOKENS, max(prompts * prompt_tokens, 1))
    prefill = prefilled * dtype * (4 * facts.hidden + 3 * facts.intermediate)
    return cache + max(logits, prefill)
