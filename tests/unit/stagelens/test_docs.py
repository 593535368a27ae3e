"""What the documentation names exists, and what exists is documented."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from stagelens.cli import cli
from stagelens.settings import Config

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def text_of(page: Path) -> str:
    """The page without its sentence on what is planned."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("Planned: "))


def code_of(text: str) -> list[str]:
    """Lines of fenced blocks, and inline code spans."""
    fences = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [*(line for block in fences for line in block.splitlines()), *inline]


def options_of(command: str) -> set[str]:
    """The long options of one command, and of those below it."""
    found = cli.commands[command]
    below = found.commands.values() if isinstance(found, click.Group) else ()
    params = [p for one in (found, *below) for p in one.params]
    return {o for p in params if isinstance(p, click.Option) for o in p.opts if o[:2] == "--"}


def shown_options(command: str) -> set[str]:
    """Those that ``--help`` shows."""
    params = cli.commands[command].params
    return {
        p.opts[0] for p in params if isinstance(p, click.Option) and not p.hidden
    }  # fmt: skip


def leaves(model: type[BaseModel], prefix: str = "") -> dict[str, object]:
    """Every setting below ``model`` by its dotted name, with its default."""
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= leaves(inner, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.get_default(call_default_factory=True)
    return found


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def first_cells(text: str) -> list[list[str]]:
    """The code spans in the first cell of each row of the tables in ``text``."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", cell) for cell in rows]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_their_options_exist(page):
    """`stagelens COMMAND --option` in any code is something that can be typed."""
    for line in code_of(text_of(page)):
        for found in re.finditer(r"\bstagelens ([a-z]+)((?: [^|#]*)?)", line):
            command, rest = found.groups()
            assert command in cli.commands, f"{page.name}: {line}"
            named = set(OPTION.findall(rest.split(" -- ")[0]))
            assert named <= options_of(command), f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_named_alone_exist(page):
    """An option in inline code belongs to some command; engine flags stand after `-- `."""
    known = set().union(*(options_of(name) for name in cli.commands))
    for line in code_of(text_of(page)):
        if line.startswith("--") and not line.startswith("-- "):
            assert set(OPTION.findall(line)) <= known | {"--uds"}, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_and_pictures_exist(page):
    """Every relative link leads to a file, and to a heading in it where it names one."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.is_file(), f"{page.name}: {target}"
        if anchor:
            heads = re.findall(r"(?m)^#+ (.+)$", file.read_text(encoding="utf-8"))
            slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads]
            assert anchor in slugs, f"{page.name}: {target}"


def test_every_option_of_serve_is_in_the_table_and_the_other_way_round():
    """docs/serve.md lists what `stagelens serve --help` shows."""
    named = {spans[0] for spans in first_cells(section("docs/serve.md", "Options"))}
    assert named == shown_options("serve")


def test_every_option_of_report_is_in_the_tables():
    """docs/report.md lists what `stagelens report --help` shows."""
    text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    named = set(OPTION.findall(" ".join(s for spans in first_cells(text) for s in spans)))
    assert named == shown_options("report")


def test_every_setting_is_in_the_table_and_the_other_way_round():
    """docs/serve.md and the models name the same settings, and the same plain defaults."""
    text = section("docs/serve.md", "Settings")
    rows = re.findall(r"(?m)^\| `([a-z_.]+)` \| ([^|]+) \|", text)
    settings = leaves(Config)
    assert {name for name, _ in rows} == set(settings)
    for name, told in rows:
        default = settings[name]
        if default is None or isinstance(default, (bool, int, float, str)):
            assert told.strip("` ").lower() == str(default).lower(), name


def test_repairs_are_those_of_the_code():
    """Each repair in docs/stages.md is a text of the code, and the other way round."""
    named = {spans[0] for spans in first_cells(section("docs/stages.md", "Repairs"))}
    sources = [*(ROOT / "proxy").rglob("*.py"), *(ROOT / "collectors").rglob("*.py"),
               *(ROOT / "collectors").rglob("*.sql")]  # fmt: skip
    code = "\n".join(file.read_text(encoding="utf-8") for file in sources)
    assert named == set(re.findall(r'["\']([a-z]+(?:_[a-z]+)+:[a-z]+(?:_[a-z0-9]+)*)["\']', code))


def test_the_readme_is_short():
    """Under 150 lines, with the outputs in it."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
