"""Text files and how they are cut."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.documents.files import MOST_BYTES, chunks_of, read_text, text_files
from collectors.documents.model import BadDocumentsValue

TEXTS = st.text(st.sampled_from("ab .!\n\t…é"), min_size=1, max_size=600)


@given(TEXTS, st.integers(10, 120), st.integers(0, 60))
def test_no_chunk_is_too_long_and_nothing_is_lost(text: str, size: int, overlap: int):
    """Without overlap the chunks are the text; with it they are pieces of it, none too long."""
    bare = chunks_of(text, size, 0)
    assert "".join("".join(bare).split()) == "".join(text.split())
    for chunk in [*bare, *chunks_of(text, size, overlap)]:
        assert 0 < len(chunk) <= size
        assert chunk in text
    assert bool(bare) == bool(text.strip())


def test_paragraphs_stay_whole_where_they_fit():
    """Cuts lie between paragraphs, then sentences, then words; a word is cut last of all."""
    text = "First one. Still first.\n\nSecond one is a bit longer.\n\nThird."
    assert chunks_of(text, 40, 0) == ["First one. Still first.", "Second one is a bit longer.\n\nThird."]
    assert chunks_of("One two. Three four. Five.", 14, 0) == ["One two.", "Three four.", "Five."]
    assert chunks_of("x" * 25, 10, 0) == ["x" * 10, "x" * 10, "x" * 5]


def test_an_overlap_repeats_whole_pieces():
    """The next chunk begins with the last sentence of the one before."""
    text = "Aaaa aaaa. Bbbb bbbb. Cccc cccc. Dddd dddd."
    assert chunks_of(text, 22, 11) == [
        "Aaaa aaaa. Bbbb bbbb.", "Bbbb bbbb. Cccc cccc.", "Cccc cccc. Dddd dddd.",
    ]  # fmt: skip


def test_folders_stand_for_their_text_files(tmp_path: Path):
    """Each file once, in order; a named file may have any name."""
    (tmp_path / "in").mkdir()
    for name in ("b.md", "a.txt", "c.png", "in/d.RST"):
        (tmp_path / name).write_text("x")
    found = text_files([tmp_path, tmp_path / "a.txt", tmp_path / "c.png"])
    assert [f.relative_to(tmp_path).as_posix() for f in found] == ["a.txt", "b.md", "in/d.RST", "c.png"]
    with pytest.raises(BadDocumentsValue, match="does not exist"):
        text_files([tmp_path / "nope"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDocumentsValue, match="holds no text file"):
        text_files([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff\xfe\x00", "no UTF-8 text"), (b"a\0b", "no UTF-8 text"), (b" \n", "is empty")],
)
def test_what_is_no_text_is_one_sentence(tmp_path: Path, data: bytes, words: str):
    """The file is named and what to do."""
    file = tmp_path / "f"
    file.write_bytes(data)
    with pytest.raises(BadDocumentsValue, match=words):
        read_text(file)
    file.write_bytes("\ufeffhei".encode())
    assert read_text(file) == "hei"


def test_what_is_no_regular_file_is_said_at_once(tmp_path: Path):
    """A pipe would be waited for, a device may have no end."""
    pipe, there = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(there))
        for odd in (pipe, there, Path("/dev/zero")):
            with pytest.raises(BadDocumentsValue, match=f"{odd} is not a regular file"):
                text_files([odd])
            with pytest.raises(BadDocumentsValue, match="is not a regular file"):
                read_text(odd)


def test_a_file_that_is_too_large_is_read_no_further(tmp_path: Path):
    """Its size is said."""
    file = tmp_path / "f"
    with file.open("wb") as made:
        made.truncate(MOST_BYTES + 1)
    with pytest.raises(BadDocumentsValue, match="is larger than"):
        read_text(file)
