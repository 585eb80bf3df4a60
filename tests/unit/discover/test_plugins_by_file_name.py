"""A file in a room is a plug-in of that name."""

from __future__ import annotations

import sys

import pytest

from arena_gitops import discover


class Base:
    """What a plug-in of the test's room must be."""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """An importable package with a name of its own."""
    name = f"room_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "room_base", sys.modules[__name__])
    return folder


def plugin(room, name, *classes):
    lines = [f"class {cls}(Base):\n    pass\n" for cls in classes]
    (room / f"{name}.py").write_text("from room_base import Base\n" + "".join(lines))


def test_names_are_file_names_and_nothing_is_imported(room):
    plugin(room, "beta", "Beta")
    (room / "alpha.py").write_text("raise RuntimeError")
    (room / "_private.py").write_text("")
    assert discover.names(room.name) == ("alpha", "beta")


def test_the_one_class_of_a_file_is_found(room):
    plugin(room, "beta", "Beta", "_Hidden")
    assert discover.find(room.name, "beta", Base).__name__ == "Beta"


@pytest.mark.parametrize("classes", [(), ("One", "Two")])
def test_a_file_with_no_class_or_several_is_an_error(room, classes):
    plugin(room, "beta", *classes)
    with pytest.raises(LookupError, match="must define exactly one Base"):
        discover.find(room.name, "beta", Base)


def test_an_unknown_name_lists_those_that_exist(room):
    plugin(room, "beta", "Beta")
    with pytest.raises(LookupError, match="there are: beta"):
        discover.find(room.name, "gamma", Base)


def test_a_room_that_is_no_package_is_an_error():
    with pytest.raises(ModuleNotFoundError):
        discover.names("arena_gitops.errors")


def test_third_parties_add_plugins_by_entry_point(room, tmp_path):
    (tmp_path / "elsewhere.py").write_text("from room_base import Base\nclass Far(Base):\n    pass\n")
    info = tmp_path / "far-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{room.name}]\nfar = elsewhere\n")
    assert discover.names(room.name) == ("far",)
    assert discover.find(room.name, "far", Base).__name__ == "Far"
