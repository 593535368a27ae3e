"""Prompts from a file: ShareGPT-like JSON, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagelens.bench.lengths import MOST
from stagelens.bench.talk import Message, Turn
from stagelens.errors import UserError

CHARACTERS_PER_TOKEN = 4
UNKNOWN_OUTPUT = 64
_ROLES = {"human": "user", "user": "user", "system": "system",
          "developer": "system", "gpt": "assistant", "assistant": "assistant",
          "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
          "model": "assistant", "ai": "assistant"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation of the file; the answers in it give the lengths alone."""

    turns: tuple[Turn, ...]


def read_items(path: Path) -> tuple[tuple[Item, ...], int]:
    """The conversations, and how many entries held none that can be sent.

    An entry is ``{"conversations": [{"from", "value"}]}``, ``{"messages": [{"role",
    "content"}]}`` or ``{"prompt": TEXT}``; ``output_tokens`` (or ``max_tokens``) in it is
    the length of each answer. Without it an answer in the file gives its length, at four
    characters a token, and 64 tokens are taken where there is none.

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
    return tuple(found), len(entries) - len(found)


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
    firsts = {tuple(m["content"] for m in one.turns[0].messages) for one in items}
    return len(items) - len(firsts)


def _item(entry: Any) -> Item | None:  # noqa: ANN401
    if not isinstance(entry, dict):
        return None
    length = _length(entry)
    if isinstance(entry.get("prompt"), str) and entry["prompt"].strip():
        asked: Message = {"role": "user", "content": entry["prompt"]}
        return Item((Turn((asked,), length or UNKNOWN_OUTPUT),))
    return _turns(_messages(entry.get("messages") or entry.get("conversations")), length)


def _length(entry: dict[str, Any]) -> int | None:
    """Raises _WrongError for what is no length: the answers would be of another one than was written."""
    name = "output_tokens" if entry.get("output_tokens") is not None else "max_tokens"
    told = entry.get(name)
    if isinstance(told, float) and told.is_integer():
        told = int(told)
    if told is not None and not (type(told) is int and 0 < told <= MOST):
        raise _WrongError(f"{name} {told!r} is no length: write a whole number from 1 to {MOST:,}")
    return told


def _messages(told: Any) -> list[Message]:  # noqa: ANN401
    found: list[Message] = []
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict):
            role = _ROLES.get(str(one.get("role") or one.get("from")).lower())
            content = _text(one.get("content") or one.get("value"))
            if role and content.strip():
                found.append({"role": role, "content": content})
    return found


def _text(content: Any) -> str:  # noqa: ANN401
    """The words of a message; of one in parts, those of its text parts."""
    if isinstance(content, list):
        parts = [one.get("text") for one in content if isinstance(one, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _turns(messages: list[Message], length: int | None) -> Item | None:
    turns: list[Turn] = []
    asked: list[Message] = []
    for one in messages:
        if one["role"] == "assistant":
            if any(m["role"] == "user" for m in asked):
                said = max(1, len(one["content"]) // CHARACTERS_PER_TOKEN)
                turns.append(Turn(tuple(asked), length or said))
                asked = []
        else:
            asked.append(one)
    if any(m["role"] == "user" for m in asked):
        turns.append(Turn(tuple(asked), length or UNKNOWN_OUTPUT))
    return Item(tuple(turns)) if turns else None
