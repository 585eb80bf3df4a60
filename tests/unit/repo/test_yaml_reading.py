"""YAML 1.2, with the place of everything."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_gitops.repo.yaml import read


def value(text: str) -> object:
    reading = read(text.encode(), "f.yaml")
    assert not [p for p in reading.problems if p.severity == "error"]
    return reading.documents[0].value


def problems(text: str | bytes) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [f"{p.span} {p.code}" for p in read(data, "f.yaml").problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1_000_000", 1_000_000),
        ("1e-5", 1e-5),
        ("1E-5", 1e-5),
        ("6.3e-4", 6.3e-4),
        (".5", 0.5),
        ("-1_0.5", -10.5),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("08", 8),
        ("1:30", "1:30"),
        ("1.10", 1.1),
        ("1.2.3", "1.2.3"),
        ("no", "no"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("2024-01-01", "2024-01-01"),
        ("-", ["x"]),
        ("_1", "_1"),
        ("+", "+"),
        (".", "."),
    ],
)
def test_scalars_follow_yaml_1_2_with_underscores(text, expected):
    found = value(f"a:\n  - {text[1:] or 'x'}" if text == "-" else f"a: {text}\nb: 0")
    assert found["a"] == expected
    assert type(found["a"]) is type(expected)


def test_values_and_keys_know_their_places():
    text = "a:\n  bc: [10, {d: 'x'}]\n---\ne: 1_0\n"
    first, second = read(text.encode(), "f.yaml").documents
    assert str(first.span(("a", "bc", 1, "d"))) == "f.yaml:2:16"
    assert str(first.key_span(("a", "bc"))) == "f.yaml:2:3"
    assert str(first.span(("a", "bc", 7))) == "f.yaml:2:7"
    assert str(second.span(("e",))) == "f.yaml:4:4"
    assert second.texts == {("e",): "1_0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ["f.yaml:3:1 duplicate-key"]),
        ("a:\n\tb: 1\n", ["f.yaml:2:1 yaml-tab"]),
        ("a: b: c\n", ["f.yaml:1:5 yaml-syntax"]),
        ("a: [1, 2\n", ["f.yaml:1:4 yaml-syntax"]),
        ("a: 'x\n", ["f.yaml:1:4 yaml-syntax"]),
        ("a: \x01\n", ["f.yaml:1:4 yaml-syntax"]),
        ("a: !!str 1\n", ["f.yaml:1:4 yaml-tag"]),
        ("a: !!python/object/apply:os.system [x]\n", ["f.yaml:1:4 yaml-tag"]),
        ("a: !x {b: 1}\n", ["f.yaml:1:4 yaml-tag"]),
        ("!!str a: 1\n", ["f.yaml:1:1 yaml-tag"]),
        (".nan: 1\n", ["f.yaml:1:1 key-not-text"]),
        ("1: x\n", ["f.yaml:1:1 key-not-text"]),
        ("? [a]\n: 1\n", ["f.yaml:1:3 key-not-text"]),
        ("a: .nan\nb: -.inf\n", ["f.yaml:1:4 not-finite", "f.yaml:2:4 not-finite"]),
        ("sha: 695e0514\n", ["f.yaml:1:6 not-finite"]),
        ("a: &a [1, *a]\n", ["f.yaml:1:11 alias-cycle"]),
        ("a: *b\n", ["f.yaml:1:4 unknown-alias"]),
        ("a: 2024-01-01\n", ["f.yaml:1:4 unquoted-date"]),
        ("", ["f.yaml:1:1 empty-file"]),
        ("# nothing\n---\n", ["f.yaml:1:1 empty-file"]),
        (b"a: 1\nb: \xff\n", ["f.yaml:2:1 not-utf8"]),
        ("[" * 41 + "]" * 41, ["f.yaml:1:41 too-deep"]),
        ("a: {<<: 1}\n", ["f.yaml:1:5 bad-merge"]),
        ("a: {<<: {b: 1}, <<: {c: 1}}\n", ["f.yaml:1:17 duplicate-key"]),
        ("a: " + "9" * 500, ["f.yaml:1:4 not-finite"]),
    ],
)
def test_each_fault_is_reported_at_its_place(text, expected):
    assert problems(text) == expected


def test_a_duplicate_key_names_the_first_place():
    reading = read(b"a: 1\nb: 2\na: 3\n", "f.yaml")
    assert "first at f.yaml:1:1" in reading.problems[0].message
    assert reading.documents[0].value == {"a": 1, "b": 2}


def test_one_pass_reports_every_fault():
    assert len(problems("a: .nan\na: !x 1\n2: x\n")) == 4


def test_an_expansion_bomb_is_refused_before_it_grows():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert [problem.partition(" ")[2] for problem in problems("\n".join(lines))] == ["too-many-nodes"]


def test_aliases_cannot_nest_deeper_than_anything_else():
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60))]
    assert {problem.partition(" ")[2] for problem in problems("\n".join(lines))} == {"too-deep"}


def test_a_file_over_one_mebibyte_is_refused():
    assert problems(b"a: " + b"x" * (1 << 20)) == ["f.yaml:1:1 file-too-large"]


def test_byte_order_mark_and_crlf_change_nothing():
    plain, windows = read(b"a: 1\nb: x\n", "f"), read(b"\xef\xbb\xbfa: 1\r\nb: x\r\n", "f")
    assert plain.documents[0].value == windows.documents[0].value
    assert str(windows.documents[0].span(("b",))) == "f:2:4"


def test_merge_keys_are_expanded_and_own_keys_win():
    assert value("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n")["y"] == {"a": 1, "b": 3}
    assert value("y:\n  <<: [{a: 1}, {a: 2, b: 2}]\n")["y"] == {"a": 1, "b": 2}


def test_a_quoted_merge_key_is_a_key():
    assert value('a: {"<<": 1}') == {"a": {"<<": 1}}


def test_a_thousand_small_files_are_read_in_little_time():
    text = "".join(f"section{i}:\n  lr: 1e-5\n  steps: 1_000\n  name: x{i}\n" for i in range(25)).encode()
    assert len(text) > 1000
    start = time.process_time()
    for _ in range(1000):
        read(text, "f.yaml")
    assert time.process_time() - start < 1.5


def test_an_anchored_key_can_be_referred_to():
    assert value("&k a: 1\nb: *k\n") == {"a": 1, "b": "a"}


texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
)


@settings(deadline=None)
@given(st.dictionaries(texts, values, min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_json_is_yaml_and_every_value_has_a_place(expected, indent):
    text = json.dumps(expected, ensure_ascii=False, indent=indent)
    document = read(text.encode(), "f.json").documents[0]
    assert document.value == expected
    assert set(document.keys) >= {(key,) for key in expected}
