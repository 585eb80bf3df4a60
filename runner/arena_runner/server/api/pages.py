"""The few pages this server has of its own: plain HTML without scripts, and headers that keep them apart from others'."""

from __future__ import annotations

import secrets
from pathlib import Path

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent.parent / "pages"

_TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(name: str, *, status: int = 200, problem: str = "", **values: object) -> HTMLResponse:
    """A page, never stored by caches, never framed, with no script and no form to other places."""
    nonce = secrets.token_urlsafe(16)
    text = _TEMPLATES.get_template(f"{name}.html").render(values, nonce=nonce, problem=problem)
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    headers = {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(text, status_code=status, headers=headers)
