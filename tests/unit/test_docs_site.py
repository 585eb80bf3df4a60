"""The site of docs/ builds strictly, and what it lists is what the program has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documented import ROOT

from arena_gitops.cli.main import COMMANDS
from arena_gitops.spec.kinds import ADDRESS_KIND

TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text()
REPORTS = {
    "Diagnostic",
    "FileProblemError",
    "Problem",
    "PlanDiagnostic",
    "report",
    "remark",
    "error",
    "_refused",
}
REPORTS |= {"_problem", "stop"}
"""Functions and values of the light side that give a problem its code."""


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.links += [known[name] for name in ("href", "src") if known.get(name)]
        self.anchors |= {known[name] for name in ("id", "name") if known.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path: Page(path.read_text()) for path in folder.rglob("*.html")}


def test_every_link_of_the_site_leads_somewhere(site):
    """MkDocs checks what people wrote; this is what came out, pages made from the program included."""
    broken = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                target in site and unquote(parts.fragment) not in site[target].anchors
            ):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {
        link for path in site for link in re.findall(r'<(?:script|img)[^>]*src="([^"]+)"', path.read_text())
    }
    assert [link for link in loaded if urlsplit(link).netloc] == []


def test_every_kind_and_every_command_has_its_place(site):
    names = {path.relative_to(path.parents[1]).as_posix() for path in site if path.parent.name == "kinds"}
    assert names == {f"kinds/{kind}.html" for kind in ({*ADDRESS_KIND.values()} | {"stack", "manifest"})}
    (commands,) = [page for path, page in site.items() if path.name == "commands.html"]
    assert {f"arena-{name}" for name in COMMANDS} <= commands.anchors
    assert "arena-ci-preview" in commands.anchors


def codes() -> set[str]:
    """Every code that a problem of a repository can have."""
    found = set()
    for path in (ROOT / "arena_gitops").rglob("*.py"):
        if "platforms" in path.parts or "imperative" in path.parts:
            continue  # those are the servers' own
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                values = [*node.args, *(word.value for word in node.keywords)]
                texts = {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}
                found |= {
                    text
                    for text in texts
                    if name in REPORTS and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", text)
                }
    return found


def reasons() -> set[str]:
    """Every reason for which a change is blocked."""
    text = "".join(path.read_text() for path in (ROOT / "arena_gitops").rglob("*.py"))
    return set(re.findall(r'\bBlock\(\s*"([a-z_]+)"', text))


@pytest.mark.parametrize("known", [codes, reasons], ids=["codes", "reasons"])
def test_every_code_is_on_the_troubleshooting_page(known):
    assert len(known()) > 10
    assert sorted(code for code in known() if f"`{code}`" not in TROUBLE) == []


def test_the_troubleshooting_page_lists_no_code_that_is_gone():
    rows = [line.split("|")[1] for line in TROUBLE.splitlines() if line.startswith("| `")]
    listed = {code for row in rows for code in re.findall(r"`([a-z0-9]+(?:[-_][a-z0-9]+)*)`", row)}
    text = "".join(path.read_text() for path in (ROOT / "arena_gitops").rglob("*.py"))
    assert sorted(code for code in listed if f'"{code}"' not in text) == []
