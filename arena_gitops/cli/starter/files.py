"""The files of a new infra repository, made from a few choices. Pure: nothing is read or written here.

The sample is small sums with worked answers, so that the first plan and the first run work before a team has
brought anything of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

SAMPLE_ROWS = 400


@dataclass(frozen=True, slots=True)
class Choices:
    """What a team decided, or left at its default."""

    stack: str
    name: str
    """of the first dataset, reward and deployment"""
    owner: str
    url: str | None = None
    """of the server; None: the local one"""
    hosted: bool = False
    """the hosted platform, which has an address of its own"""
    manifest: bytes | None = None
    reward: bytes | None = None
    function: str = "reward"
    dataset: tuple[str, bytes] | None = None
    """suffix and content of a file of one's own"""
    columns: tuple[str, str] = ("question", "answer")


def files(choices: Choices) -> dict[str, bytes]:
    """Path → content."""
    name, python = choices.name, choices.name.replace("-", "_")
    suffix, rows = choices.dataset or (".csv", sample_rows().encode())
    written = {
        "arena.yaml": _arena(choices),
        "README.md": _readme(choices),
        f"experiments/{name}-project.yaml": _project(choices),
        f"experiments/{name}.yaml": _experiment(choices, python),
        f"datasets/{name}.yaml": _dataset(choices, suffix, python),
        f"rewards/{name}.yaml": _reward(choices, python),
        f"deployments/{name}.yaml": _deployment(choices),
    }
    found = {path: content.encode() for path, content in written.items()}
    found[f"data/{python}{suffix}"] = rows
    found[f"manifests/{python}.yaml"] = choices.manifest or MANIFEST.format(name=text(name)).encode()
    found[f"rewards/{python}.py"] = choices.reward or REWARD.encode()
    found[".gitignore"] = b"__pycache__/\narena-plan.json\n"
    return dict(sorted(found.items()))


def sample_rows() -> str:
    """The sample, the same bytes each time."""
    return "question,answer\n" + "".join(_sums())


def _sums() -> Iterator[str]:
    for n in range(SAMPLE_ROWS):
        a, b = 3 + 7 * n % 47, 2 + 11 * n % 41
        yield f'What is {a} + {b}?,"{a} + {b} = {a + b}\n#### {a + b}"\n'


def _arena(choices: Choices) -> str:
    targets = "  local: {platform: local}\n"
    if choices.hosted:
        targets = f"  hosted: {{platform: arena_cloud}}\n{targets}"
    elif choices.url:
        targets = f'  prod: {{platform: http, url: "{choices.url}"}}\n{targets}'
    default = "hosted" if choices.hosted else "prod" if choices.url else "local"
    return f"""\
# The stack: one repository of experiments and the platforms it may run on.
name: {text(choices.stack)}
project: {text(choices.name)}
targets:
{targets}default_target: {default}
policy:
  max_credits_per_pr: 100
  require_owner: true
"""


def _project(choices: Choices) -> str:
    return f"""\
kind: Project
name: {text(choices.name)}
owner: {text(choices.owner)}
llm_based: true
"""


def _experiment(choices: Choices, python: str) -> str:
    return f"""\
kind: Experiment
name: {text(choices.name)}
owner: {text(choices.owner)}
manifest: ../manifests/{python}.yaml
dataset: {text(choices.name)}
reward: {text(choices.name)}
{_tier(choices)}budget: {{max_runtime: 1h}}
"""


def _dataset(choices: Choices, suffix: str, python: str) -> str:
    sample = (
        ""
        if choices.dataset
        else f"# A made-up sample of {SAMPLE_ROWS} sums; put your own rows in its place.\n"
    )
    question, answer = map(text, choices.columns)
    return f"""\
{sample}kind: Dataset
name: {text(choices.name)}
owner: {text(choices.owner)}
category: reasoning
file: ../data/{python}{suffix}
column_mapping: {{question: {question}, answer: {answer}}}
"""


def _reward(choices: Choices, python: str) -> str:
    cases = "" if choices.reward else REWARD_CASES
    return f"""\
kind: Reward
name: {text(choices.name)}
owner: {text(choices.owner)}
file: {python}.py
function: {choices.function}
network: none
{cases}"""


def _deployment(choices: Choices) -> str:
    return f"""\
kind: Deployment
name: {text(choices.name)}
owner: {text(choices.owner)}
experiment: {text(choices.name)}
checkpoint: best
{_tier(choices)}"""


def text(value: str) -> str:
    """A YAML scalar that is text, whatever it looks like."""
    plain = re.fullmatch("[a-z][a-z0-9_-]*", value) and value not in {"true", "false", "null"}
    return value if plain else json.dumps(value)


def _tier(choices: Choices) -> str:
    return "" if choices.url or choices.hosted else "tier: local\n"


def _readme(choices: Choices) -> str:
    return f"""\
# {choices.stack}

Experiments as code: datasets, rewards, training manifests, experiments and deployments, each in a file a reviewer can read.

    arena validate      # is everything well-formed?
    arena plan          # what would change, cost and break
    arena apply         # make it so
    arena status        # runs and deployments of this stack
"""


REWARD_CASES = """\
cases:
  - {question: "What is 3 + 4?", answer: "3 + 4 = 7\\n#### 7", completion: "7", expect: 1.0}
  - {question: "What is 3 + 4?", answer: "3 + 4 = 7\\n#### 7", completion: "12", expect: 0.0}
"""

REWARD = '''\
"""Reward: 1 when the last number of the completion is the one after `####` in the answer."""

import re


def reward(question: str, answer: str, completion: str) -> float:
    """Score one completion."""
    gold = re.search(r"####\\s*(-?[\\d,]+)", answer)
    numbers = re.findall(r"-?\\d[\\d,]*", completion)
    if gold is None or not numbers:
        return 0.0
    return float(numbers[-1].replace(",", "") == gold.group(1).replace(",", ""))
'''

MANIFEST = """\
# GRPO over a population of two LoRA adapters on one small base model; minutes on a laptop's CPU.
algorithm:
  name: GRPO
  batch_size: 4
  group_size: 8
  lr: 3.0e-4
  beta: 0.001
  max_output_tokens: 32

environment:
  name: {name}

training:
  max_steps: 192
  evo_steps: 3
  evaluation_interval: 3
  pop_size: 2
  hpo: true

mutation:
  rand_seed: 42
  probabilities: {{no_mut: 0.2, rl_hp_mut: 0.8}}
  rl_hp_selection:
    lr: {{min: 1.0e-4, max: 1.0e-3}}

tournament_selection:
  tournament_size: 2
  elitism: true

network:
  pretrained_model_name_or_path: smollm2-135m-instruct
  max_context_length: 256
  lora_config:
    lora_r: 16
    lora_alpha: 32
    target_modules: [q_proj, k_proj, v_proj, o_proj]
    lora_dropout: 0.0
"""
