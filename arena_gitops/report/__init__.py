"""Views of plans and applies: text, Markdown, JSON. They decide nothing."""
