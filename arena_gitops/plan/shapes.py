"""Shapes of well-known base models, for plans that no platform answers; copied from their `config.json`."""

from __future__ import annotations

from collections.abc import Mapping

from arena_gitops.spec.memory import ModelFacts

# id                          hidden layers heads kv  head  inner  vocabulary tied
_TABLE = """
smollm2-135m                    576    30     9    3    64   1536    49152    yes
smollm2-360m                    960    32    15    5    64   2560    49152    yes
smollm2-1.7b                   2048    24    32   32    64   8192    49152    yes
qwen2.5-0.5b                    896    24    14    2    64   4864   151936    yes
qwen2.5-1.5b                   1536    28    12    2   128   8960   151936    yes
qwen2.5-3b                     2048    36    16    2   128  11008   151936    yes
qwen2.5-7b                     3584    28    28    4   128  18944   152064    no
qwen3-0.6b                     1024    28    16    8   128   3072   151936    yes
qwen3-1.7b                     2048    28    16    8   128   6144   151936    yes
qwen3-4b                       2560    36    32    8   128   9728   151936    yes
qwen3-8b                       4096    36    32    8   128  12288   151936    no
llama-3.2-1b                   2048    16    32    8    64   8192   128256    yes
llama-3.2-3b                   3072    28    24    8   128   8192   128256    yes
llama-3.1-8b                   4096    32    32    8   128  14336   128256    no
mistral-7b-v0.3                4096    32    32    8   128  14336    32768    no
"""
_TUNED = ("-instruct", "-chat", "-base", "-it")


def shape_of(name: str, at_hand: Mapping[str, ModelFacts]) -> ModelFacts | None:
    """The shape of a base model: as the platform has it, else as everybody knows it; None when nobody does."""
    plain = name.rpartition("/")[2].lower()
    found = at_hand.get(name) or at_hand.get(plain)
    if found is not None:
        return found
    for ending in _TUNED:
        plain = plain.removesuffix(ending)
    return KNOWN.get(plain)


def _known() -> dict[str, ModelFacts]:
    found = {}
    for line in _TABLE.strip().splitlines():
        name, *numbers, tied = line.split()
        hidden, layers, heads, kv_heads, head_dim, intermediate, vocab = map(int, numbers)
        found[name] = ModelFacts(
            id=name,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=intermediate,
            vocab=vocab,
            tied=tied == "yes",
        )
    return found


KNOWN = _known()
