"""What a served prompt looks like to the model: exactly as in training, by the trainer's own renderer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena_runner.rollouts.prompts import Renderer
from arena_runner.serving.generator import Text
from arena_runner.serving.protocol import Message


def prompt_ids(base: Text, template: Mapping[str, str] | None, prompt: str) -> tuple[int, ...]:
    """A bare prompt takes the place of a dataset row's question."""
    renderer = Renderer(base.tokenizer, template, "question")
    return renderer.ids(renderer.text({"question": prompt, "prompt": prompt}))


def raw_ids(base: Text, prompt: str) -> tuple[int, ...]:
    """Text exactly as given, special tokens written out by the caller."""
    return tuple(base.tokenizer(prompt, add_special_tokens=False)["input_ids"])


def message_ids(
    base: Text, template: Mapping[str, str] | None, messages: Sequence[Message]
) -> tuple[int, ...]:
    """A conversation of one user turn is a prompt of the experiment; a longer one is rendered as it stands.

    The template's system turn is put before a conversation that brings none; its user turn wraps a single
    question only, because later turns were never seen that way in training.
    """
    if len(messages) == 1 and messages[0].role == "user":
        return prompt_ids(base, template, messages[0].content)
    turns = [message.model_dump() for message in messages]
    if template and not any(message.role == "system" for message in messages):
        system = [content for name, content in template.items() if name.startswith("system_")]
        turns = [{"role": "system", "content": content} for content in system[:1]] + turns
    continues = turns[-1]["role"] == "assistant"
    text = base.tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=not continues, continue_final_message=continues
    )
    return raw_ids(base, str(text))
