"""Raise the walls around user code, from inside the process that will run it.

Standard library only: this file is loaded by path in an interpreter that may have nothing installed.
Each function raises one wall or says why it could not; nothing here is silent. Order matters: namespaces,
then the file system seen from within, then limits, then the unprivileged user, who can undo none of it.
"""

# pathlib would cost every worker half of its start-up time, so:
# ruff: noqa: PTH103, PTH109, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211
from __future__ import annotations

import ctypes
import os
import resource

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_MOUNT_SETATTR = 442  # one number on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
ATTR_RDONLY, ATTR_NOSUID = 0x1, 0x2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE = 1, 38, 4
CAP_V3 = 0x20080522

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/nix/store")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

Verdict = list[object]  # [name, raised, why], as it travels over the pipe

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """Call libc; raises OSError with the call's name."""
    function = getattr(_libc, name, None)
    if function is None:
        raise OSError(f"this system has no {name}")
    ctypes.set_errno(0)
    result = int(function(*arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else os.fsencode(text)

    _call("mount", raw(source), raw(target), raw(kind), ctypes.c_ulong(flags), raw(data))


def separate(*, network: bool) -> tuple[set[str], list[Verdict]]:
    """Leave the parent's namespaces; returns the walls that stand and what could not be done."""
    outside = (os.getuid(), os.getgid())
    wanted = NEWPID | NEWIPC | (0 if network else NEWNET)  # mounts follow, in the first process inside
    try:
        _call("unshare", ctypes.c_int(wanted if outside[0] == 0 else wanted | NEWUSER))
        if outside[0] != 0:
            _map_self(*outside)
    except OSError as error:
        why = error.strerror or str(error)
        names = ("files", "process tree") if network else ("network", "files", "process tree")
        return set(), [[name, False, why] for name in names]
    raised: list[Verdict] = [["process tree", True, ""]]
    if not network:
        raised.append(["network", True, ""])
    return {"namespaces"}, raised


def _map_self(uid: int, gid: int) -> None:
    """Keep our own ids inside the user namespace."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def build_root(root: str, visible: list[str], temporary: str, tmp_bytes: int, owner: tuple[int, int]) -> None:
    """Make `root` the file system: the system and `visible` read-only, an own writable `temporary` and `/tmp`."""
    _call("unshare", ctypes.c_int(NEWNS))
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=755,size=1m")
    for path in SYSTEM:
        _show_system(root, path)
    for path in DEVICES:
        _show_file(root, path)
    writable = [root + "/tmp"] if temporary.startswith("/tmp/") else [root + "/tmp", root + temporary]  # noqa: S108
    for path in writable:
        os.makedirs(path, exist_ok=True)
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={tmp_bytes}")
    os.makedirs(root + temporary, exist_ok=True)
    os.chown(root + temporary, *owner)
    for path in visible:
        _show(root, path)
    _show_processes(root)
    _attributes(root, setting=ATTR_RDONLY | ATTR_NOSUID, flags=AT_RECURSIVE)
    for path in writable:
        _attributes(path, clear=ATTR_RDONLY)
    _enter(root)


def _show_system(root: str, path: str) -> None:
    """Bind a system folder; links stay links (`/lib` → `usr/lib`)."""
    if os.path.islink(path):
        os.symlink(os.readlink(path), root + path)
    else:
        _show(root, path)


def _show(root: str, path: str) -> None:
    """Bind `path` to the same place under `root`, unless it is already seen there."""
    if os.path.isdir(path) and not os.path.isdir(root + path):
        os.makedirs(root + path)
        _mount(path, root + path, None, MS_BIND | MS_REC)


def _show_file(root: str, path: str) -> None:
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    os.close(os.open(root + path, os.O_CREAT | os.O_WRONLY, 0o666))
    _mount(path, root + path, None, MS_BIND)


def _show_processes(root: str) -> None:
    """A `/proc` of the new process namespace, or none: never the machine's."""
    os.makedirs(root + "/proc", exist_ok=True)
    try:
        _mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | 8)
    except OSError:
        return  # a container masks parts of /proc and the kernel then refuses a fresh one


def _attributes(path: str, *, setting: int = 0, clear: int = 0, flags: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(setting, clear, 0, 0)
    _call(
        "syscall",
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(flags),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def _enter(root: str) -> None:
    """Swap the root and let go of the old one."""
    number = SYS_PIVOT_ROOT[os.uname().machine]
    here = os.getcwd()
    os.chdir(root)
    _call("syscall", ctypes.c_long(number), b".", b".")
    _call("umount2", b".", ctypes.c_int(MNT_DETACH))
    os.chdir(here)


def limit(limits: dict[str, float], *, own_user: bool) -> list[Verdict]:
    """Set the rlimits; the process limit only where it counts nobody else's processes."""
    wanted = {
        "memory": (resource.RLIMIT_AS, int(limits["memory_bytes"])),
        "file size": (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        "open files": (resource.RLIMIT_NOFILE, int(limits["open_files"])),
        "processor time": (resource.RLIMIT_CPU, int(limits["cpu_s"])),
        "core dumps": (resource.RLIMIT_CORE, 0),
    }
    if own_user:
        wanted["processes"] = (resource.RLIMIT_NPROC, int(limits["processes"]))
    verdicts: list[Verdict] = []
    for name, (which, value) in wanted.items():
        try:
            hard = resource.getrlimit(which)[1]
            ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (ceiling, ceiling))
            verdicts.append([name, True, ""])
        except (OSError, ValueError) as error:
            verdicts.append([name, False, str(error)])
    if not own_user:
        verdicts.append(["processes", False, "the limit would count this user's other processes"])
    return verdicts


def drop(uid: int, interpreter: str) -> Verdict:
    """Become `uid` for good, unless that user could not even read the interpreter."""
    os.seteuid(uid)
    try:
        with open(interpreter, "rb"):
            pass
    except OSError as error:
        os.seteuid(0)
        return ["unprivileged user", False, f"it could not read {interpreter}: {error.strerror}"]
    os.seteuid(0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return ["unprivileged user", True, ""]


def renounce() -> None:
    """Give up every capability and every way to new privileges."""
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAP_V3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _call("capset", ctypes.byref(header), ctypes.byref(nothing))


def die_with_parent() -> None:
    """Be killed when the parent dies (credentials must not change afterwards)."""
    _call("prctl", PR_SET_PDEATHSIG, 9, 0, 0, 0)
