"""Tokens become text without broken characters, held back only where a stop string may begin."""

from __future__ import annotations

import pytest

from arena_runner.serving.detokenise import Detokeniser


@pytest.fixture(scope="session")
def tokenizer(tiny_base):
    """Every byte is a token, so every non-ASCII character is split."""
    return tiny_base.tokenizer


def spoken(tokenizer, text, stop=()):
    made = Detokeniser(tokenizer, stop)
    pieces = []
    for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
        pieces.append(made.push(token))
        if made.stopped:
            return pieces
    return [*pieces, made.finish()]


@pytest.mark.parametrize("text", ["plain", "größe", "漢字かな", "🙂👩‍👩‍👧 ok", "a\n\n  b\t", ""])
def test_pieces_join_to_the_text_and_hold_whole_characters(tokenizer, text):
    pieces = spoken(tokenizer, text)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_ascii_is_passed_on_at_once(tokenizer):
    assert spoken(tokenizer, "abc") == ["a", "b", "c", ""]


def test_bytes_that_never_become_a_character_are_let_through(tokenizer):
    ids = tokenizer("é", add_special_tokens=False)["input_ids"][:1] * 20
    made = Detokeniser(tokenizer)
    pieces = [made.push(token) for token in ids] + [made.finish()]
    assert "".join(pieces) == tokenizer.decode(ids)


def test_what_may_begin_a_stop_string_is_held_back(tokenizer):
    assert spoken(tokenizer, "a<en", stop=("<end>",)) == ["a", "", "", "", "<en"]
    assert spoken(tokenizer, "ab<end>c", stop=("<end>",)) == ["a", "b", "", "", "", "", ""]
    assert "".join(spoken(tokenizer, "xaab", stop=("ab",))) == "xa"
    assert "".join(spoken(tokenizer, "one\ntwo", stop=("zzz", "\n"))) == "one"
