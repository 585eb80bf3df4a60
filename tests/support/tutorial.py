"""The commands of the published tutorial, as it prints them; read off its page, or the copy below."""

from __future__ import annotations

CREATE_DATASET = """arena datasets create gsm8k \\
    --category reasoning \\
    --hf-dataset openai/gsm8k \\
    --hf-config main \\
    --hf-split train \\
    --column-mapping '{"question": "question", "answer": "answer"}'"""
CREATE_PROJECT = 'arena projects create "GSM8K Tutorial" --llm-based'
SUBMIT = """arena experiments submit gsm8k_grpo.yaml \\
    --reward-file reward.py \\
    --resource-id arena-medium \\
    --num-nodes 2 \\
    --project 'GSM8K Tutorial' \\
    --experiment-name gsm8k-grpo-v1"""
METRICS = "arena experiments metrics gsm8k-grpo-v1 --output-file metrics.csv"
CHECKPOINTS = "arena experiments checkpoints gsm8k-grpo-v1"
DEPLOY = "arena agent deploy gsm8k-grpo-v1"
DEPLOY_STEP = "arena agent deploy gsm8k-grpo-v1 --checkpoint step_500"
GENERATE = """arena agent generate gsm8k-grpo-v1 \\
    --prompt "Weng earns \\$12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting. \
How much did she earn?\""""

COMMANDS = (CREATE_DATASET, CREATE_PROJECT, SUBMIT, METRICS, CHECKPOINTS, DEPLOY, DEPLOY_STEP, GENERATE)
"""All eight, in the order of the page."""


def commands_of(page: str) -> tuple[str, ...]:
    """What the page's `CLI` boxes hold from the dataset on; a command goes on where a line ends in a backslash."""
    found: list[str] = []
    lines = iter(page[page.index("Register the Dataset") :].splitlines())
    for line in lines:
        if not line.startswith("arena "):
            continue
        command = line
        while command.endswith("\\"):
            command += "\n" + next(lines)
        found.append(command)
    return tuple(found)
