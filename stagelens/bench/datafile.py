"""Prompts from a file: ShareGPT-like JSON, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stagelens.bench.lengths import MOST
from stagelens.bench.talk import Content, Message, Turn, text_of
from stagelens.errors import UserError

CHARACTERS_PER_TOKEN = 4
UNKNOWN_OUTPUT = 64
_ROLES = {"human": "user", "user": "user", "system": "system",
          "developer": "developer", "gpt": "assistant", "assistant": "assistant",
          "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
          "model": "assistant", "ai": "assistant"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation of the file; the answers in it give the lengths alone."""

    turns: tuple[Turn, ...]
    unsent: int = 0
    """Messages of the entry that no request holds: blank, of a tool, of a role that is not known,
    or an answer to nothing."""
    unknown_lengths: int = 0
    """Turns whose answer has no length in the file."""


class DataFile(NamedTuple):
    """``skipped`` entries held nothing that can be sent."""

    items: tuple[Item, ...]
    skipped: int


def read_items(path: Path) -> DataFile:
    """The conversations, in the order of the file.

    An entry is ``{"conversations": [{"from", "value"}]}``, ``{"messages": [{"role",
    "content"}]}`` or ``{"prompt": TEXT}``, which may have a ``completion``; ``output_tokens``
    (or ``max_tokens``) in it is the length of each answer. Without it an answer in the file
    gives its length, at four characters a token, and 64 tokens are taken where there is none.

    Raises:
        UserError: it cannot be read, holds nothing to send, or an answer's length that is none.
    """
    try:
        entries = _entries(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise UserError(f"data file {path} cannot be read ({problem.strerror})", 2) from None
    except RecursionError:
        raise UserError(f"data file {path} is nested too deeply to be read", 2) from None
    except ValueError as problem:
        where = f": see {problem}" if str(problem).startswith("line ") else ""
        raise UserError(
            f"data file {path} is neither JSON nor JSON lines in UTF-8{where}", 2
        ) from None
    found = _found(path, entries)
    if not found:
        raise UserError(
            f"data file {path} holds no prompt: each entry needs conversations, messages or "
            "prompt (docs/bench.md)", 2
        )  # fmt: skip
    return DataFile(tuple(found), len(entries) - len(found))


class _WrongError(Exception):
    """An entry that says what cannot be done."""


def _found(path: Path, entries: list[Any]) -> list[Item]:
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            item = _item(entry)
        except _WrongError as problem:
            raise UserError(f"data file {path}, entry {number}: {problem}", 2) from None
        if item is not None:
            found.append(item)
    return found


def _entries(text: str) -> list[Any]:
    """Raises ValueError, ``line N`` where that is known."""
    try:
        told = json.loads(text)
    except ValueError as problem:
        return _by_lines(text, getattr(problem, "lineno", 1))
    return told if isinstance(told, list) else [told]


def _by_lines(text: str, wrong_as_a_whole: int) -> list[Any]:
    """Divided by line feeds alone: strings may hold what else Unicode calls an end of line."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            raise ValueError(f"line {number if found else wrong_as_a_whole}") from None
    return found


def alike(items: Sequence[Item]) -> int:
    """How many begin with a prompt that an earlier one begins with."""
    firsts = {json.dumps([m["content"] for m in one.turns[0].messages]) for one in items}
    return len(items) - len(firsts)


def _item(entry: Any) -> Item | None:  # noqa: ANN401
    if not isinstance(entry, dict):
        return None
    length = _length(entry)
    if isinstance(entry.get("prompt"), str) and entry["prompt"].strip():
        told: list[Message | None] = [{"role": "user", "content": entry["prompt"]}]
        if isinstance(entry.get("completion"), str) and entry["completion"].strip():
            told.append({"role": "assistant", "content": entry["completion"]})
    else:
        told = _messages(entry.get("messages") or entry.get("conversations"))
    return _turns(told, length)


def _length(entry: dict[str, Any]) -> int | None:
    """Raises _WrongError for what is no length: the answers would be of another one than was written."""
    name = "output_tokens" if entry.get("output_tokens") is not None else "max_tokens"
    told = entry.get(name)
    if isinstance(told, float) and told.is_integer():
        told = int(told)
    if told is not None and not (type(told) is int and 0 < told <= MOST):
        raise _WrongError(f"{name} {told!r} is no length: write a whole number from 1 to {MOST:,}")
    return told


def _messages(told: Any) -> list[Message | None]:  # noqa: ANN401
    return [_message(one) for one in told] if isinstance(told, list) else []


def _message(one: Any) -> Message | None:  # noqa: ANN401
    """None where no request can hold it."""
    if not isinstance(one, dict):
        return None
    role = _ROLES.get(str(one.get("role") or one.get("from")).lower())
    content = _content(one.get("content") or one.get("value"))
    return {"role": role, "content": content} if role and content else None


def _content(told: Any) -> Content:  # noqa: ANN401
    """What is said, in parts where it is (OpenAI's form of pictures and sound); "" where nothing is."""
    if isinstance(told, list):
        parts = [one for one in told if isinstance(one, dict)]
        return parts if any(one.get("type") != "text" for one in parts) or text_of(parts).strip() else ""
    return told if isinstance(told, str) and told.strip() else ""


def _turns(told: list[Message | None], length: int | None) -> Item | None:
    turns: list[Turn] = []
    asked: list[Message] = []
    unsent = unknown = 0
    for one in told:
        if one is None:
            unsent += 1
        elif one["role"] != "assistant":
            asked.append(one)
        elif any(m["role"] == "user" for m in asked):
            said = max(1, len(text_of(one["content"])) // CHARACTERS_PER_TOKEN)
            turns.append(Turn(tuple(asked), length or said))
            asked = []
        else:
            unsent += 1
    if any(m["role"] == "user" for m in asked):
        turns.append(Turn(tuple(asked), length or UNKNOWN_OUTPUT))
        unknown = int(length is None)
    else:
        unsent += len(asked)
    return Item(tuple(turns), unsent, unknown) if turns else None
