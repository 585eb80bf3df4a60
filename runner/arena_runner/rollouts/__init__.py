"""From dataset rows to prompts, and from prompts to scored completions."""
