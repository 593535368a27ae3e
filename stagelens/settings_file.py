"""Files of settings: YAML mappings, read strictly, each mistake one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from stagelens.errors import UserError


class KeyTwiceError(Exception):
    """A mapping has a key twice, of which YAML would silently take the last."""


class _NoKeyTwice(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise KeyTwiceError(f"line {key.start_mark.line + 1}: the key {key.value} is there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_mapping(path: Path, what: str) -> dict[str, Any] | None:
    """The mapping in ``path``, None where it is empty; ``what`` names the file in a mistake.

    Raises:
        UserError: exit code 2; it cannot be read, or is no YAML mapping with each key once.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _NoKeyTwice)  # noqa: S506  a SafeLoader
    except OSError as problem:
        raise UserError(f"{what} {path} cannot be read ({problem.strerror}): check the path", 2) from None
    except KeyTwiceError as problem:
        raise UserError(f"{what} {path}, {problem}: leave one of them out", 2) from None
    except RecursionError:
        raise UserError(f"{what} {path} is nested too deeply: mend it", 2) from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        where = getattr(problem, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise UserError(f"{what} {path}{line} is not valid YAML: mend it", 2) from None
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{what} {path} must be a mapping of settings (key: value)", 2)
    return data
