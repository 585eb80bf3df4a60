"""What in a reward's source deserves a second look, read from its syntax tree; nothing is run.

Two readers: `arena check` without a platform, and the reward check before it opens its sandbox. A finding is a
suspicion, never a proof: the sandbox is what keeps code from doing harm.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_RUNS_TEXT = "runs text as code; a completion that reaches it decides its own score"
_PROCESS = "starts a program; one that hangs or outlives the call is not ended with it"
_PICKLE = "unpickling runs what the bytes say"
_ALARM = (
    "works in the main thread only and its exception is easily swallowed: every score would silently be the "
    "fallback; the sandbox has its own time limit"
)
_THREAD = "cannot be ended: one that hangs goes on after its time limit and slows every later call"
_REPLACES = (
    "is replaced: what the model wrote can still reach it another way; the sandbox is what keeps it in"
)
_LIMITS = "limits the worker itself, for good; the sandbox has limits of its own"
_REACHES_OUT = "gets around what Python code can forbid; only `network` of the Reward opens the way out"

BUILTINS = {"eval": _RUNS_TEXT, "exec": _RUNS_TEXT, "compile": _RUNS_TEXT, "__import__": _RUNS_TEXT}
BY_ANY_NAME = frozenset({"eval", "exec"})
"""builtins that are suspicious wherever they stand: `run = exec`, `map(eval, …)`, `getattr(builtins, "exec")`"""
MODULES = {
    "subprocess": _PROCESS,
    "multiprocessing": _PROCESS,
    "pickle": _PICKLE,
    "dill": _PICKLE,
    "marshal": _PICKLE,
    "shelve": _PICKLE,
    "ctypes": _REACHES_OUT,
    "socket": _REACHES_OUT,
    "threading": f"a thread {_THREAD}",
    "concurrent": f"a thread or process of a pool {_THREAD}",
    "func_timeout": f"a thread {_THREAD}",
    "pty": _PROCESS,
    "runpy": _RUNS_TEXT,
    "code": _RUNS_TEXT,
    "codeop": _RUNS_TEXT,
    "timeit": _RUNS_TEXT,
    "doctest": _RUNS_TEXT,
    "joblib": _PICKLE,
    "cloudpickle": _PICKLE,
    "jsonpickle": _PICKLE,
    "pexpect": _PROCESS,
}
REPLACED = frozenset({"os", "socket", "builtins", "subprocess", "shutil", "sys"})
"""modules whose functions people replace in order to keep code in"""
TABLES = frozenset(
    {"sys.modules", "__builtins__", "builtins.__dict__", "os.__dict__", "vars(builtins)", "vars(os)"}
)
"""where all names of something are kept"""
NAMES = {
    "os.system": _PROCESS,
    "os.popen": _PROCESS,
    "os.fork": _PROCESS,
    "os.kill": _PROCESS,
    "signal.alarm": _ALARM,
    "signal.setitimer": _ALARM,
    "asyncio.create_subprocess_shell": _PROCESS,
    "asyncio.create_subprocess_exec": _PROCESS,
    "os.posix_spawn": _PROCESS,
    "resource.setrlimit": _LIMITS,
    "unittest.mock.patch": _REPLACES,
    "pandas.eval": _RUNS_TEXT,
    "pandas.read_pickle": _PICKLE,
    "torch.load": _PICKLE,
    "sympy.S": _RUNS_TEXT,
    "sympy.sympify": _RUNS_TEXT,
    "sympy.parse_expr": _RUNS_TEXT,
    "sympy.parsing.sympy_parser.parse_expr": _RUNS_TEXT,
    "builtins.eval": _RUNS_TEXT,
    "builtins.exec": _RUNS_TEXT,
    "yaml.unsafe_load": _PICKLE,
    **{f"os.{call}{kind}": _PROCESS for call in ("exec", "spawn") for kind in ("l", "v", "vp", "ve", "lp")},
}


@dataclass(frozen=True, slots=True, order=True)
class Suspicion:
    """One line worth reading."""

    line: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} {self.why}"


def suspicions(source: str) -> tuple[Suspicion, ...]:
    """Everything suspicious in one file, by line; a file that does not parse is somebody else's error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    return tuple(sorted(set(_found(tree))))


def _found(tree: ast.Module) -> Iterator[Suspicion]:
    aliases = dict(_aliases(tree))
    for node in ast.walk(tree):
        yield from _in_disguise(node, aliases)
        yield from _taken_away(node, aliases)
        match node:
            case ast.Import(names=names):
                yield from _modules([name.name for name in names], node.lineno)
            case ast.ImportFrom(module=str(module), level=0):
                yield from _modules([module], node.lineno)
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS and name not in aliases:
                yield Suspicion(node.lineno, f"{name}()", BUILTINS[name])
            case ast.Name(id=name) if aliases.get(name) in NAMES:
                yield Suspicion(node.lineno, aliases[name], NAMES[aliases[name]])
            case ast.Attribute(value=ast.Name(id=base), attr=attribute, ctx=ast.Load()):
                dotted = f"{aliases.get(base, base)}.{attribute}"
                if dotted in NAMES:
                    yield Suspicion(node.lineno, dotted, NAMES[dotted])


def _in_disguise(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[Suspicion]:
    """The same things by a way around: under another name, or by their name as text."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in BY_ANY_NAME and name not in aliases:
            yield Suspicion(node.lineno, f"{name}()", BUILTINS[name])
        case ast.Subscript(slice=ast.Constant(value=str(name))) if name in BY_ANY_NAME:
            yield Suspicion(node.lineno, f"{name}()", BUILTINS[name])
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
            dotted = f"{aliases.get(base, base)}.{name}" if (base := _base(owner)) else ""
            if name in BY_ANY_NAME:
                yield Suspicion(node.lineno, f"{name}()", BUILTINS[name])
            elif dotted in NAMES:
                yield Suspicion(node.lineno, dotted, NAMES[dotted])


def _taken_away(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[Suspicion]:
    """Functions and modules that are replaced or deleted, so that what the model wrote cannot call them."""
    match node:
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[ast.Name(id=base), *_]):
            if aliases.get(base, base) in REPLACED:
                yield Suspicion(node.lineno, f"{base} in part", _REPLACES)
        case ast.Attribute(value=ast.Name(id=base), attr=name, ctx=ast.Store() | ast.Del()):
            if aliases.get(base, base) in REPLACED:
                yield Suspicion(node.lineno, f"{base}.{name}", _REPLACES)
        case ast.Subscript(value=table, ctx=ast.Store() | ast.Del()):
            if (text := ast.unparse(table)) in TABLES:
                yield Suspicion(node.lineno, f"a name in {text}", _REPLACES)


def _base(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _modules(names: list[str], line: int) -> Iterator[Suspicion]:
    for name in names:
        top = name.partition(".")[0]
        if top in MODULES:
            yield Suspicion(line, f"import {top}:", MODULES[top])


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local name → what it stands for."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((name.asname, name.name) for name in names if name.asname)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((name.asname or name.name, f"{module}.{name.name}") for name in names)
