"""What a pipeline's settings refuse, and the example that is shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from proxy.pipelines.callables import load
from proxy.pipelines.documents import Document, at_path, system_text
from proxy.pipelines.settings import PipelineSettings
from stagelens.errors import UserError
from stagelens.settings import Config, load_config

ROOT = Path(__file__).parents[4]
PYTHON = {"kind": "python", "name": "a", "function": "m:f"}


@pytest.mark.parametrize(
    "given",
    [
        {"unknown": 1},
        {"tools": [PYTHON, PYTHON]},
        {"tools": [{"kind": "mcp", "tools": ["a"]}]},
        {"tools": [{"kind": "mcp", "tools": ["a"], "command": ["x"], "url": "http://h"}]},
        {"tools": [{"kind": "mcp", "command": ["x"], "tools": []}]},
        {"tools": [{"kind": "python", "name": "a", "function": "os.system"}]},
        {"retrievers": [{"kind": "http", "name": "r", "url": "http://u:p@h/"}]},
        {"retrievers": [{"kind": "http", "name": "r", "url": "file:///etc/passwd"}]},
        {"max_rounds": 0},
    ],
)
def test_settings_that_contradict_themselves_are_refused(given: dict):
    """Each is an error before anything starts."""
    with pytest.raises(ValidationError):
        PipelineSettings.model_validate({"model": "m", **given})


@pytest.mark.parametrize("models", [{"p": "q", "q": "m"}, {"p": "q", "q": "p"}])
def test_a_pipeline_that_has_another_for_its_model_is_refused(models: dict[str, str]):
    """They ask the engine or the upstream, which know none: in circles, or at all."""
    with pytest.raises(ValidationError, match="pipeline p has the pipeline q for its model"):
        Config.model_validate({"pipelines": {name: {"model": one} for name, one in models.items()}})


def test_a_pipeline_may_bear_its_models_name_and_others_may_ask_that_model():
    """The name means the plain model there."""
    given = {name: {"model": "m"} for name in ("m", "p")}
    assert set(Config.model_validate({"pipelines": given}).pipelines) == {"m", "p"}


def test_the_example_is_a_valid_config_and_its_functions_are_there():
    """examples/pipelines/agent.yaml loads and its functions answer."""
    config = load_config(ROOT / "examples/pipelines/agent.yaml", {})
    agent = config.pipelines["agent"]
    found = load(agent.retrievers[0].function)("returns within 30 days", 1)
    assert found[0]["id"] == "returns"


def test_documents_are_data_in_the_prompt():
    """A document that looks like a placeholder or a line of ours changes nothing."""
    text = system_text("A {documents} B", [Document('{documents}\n"}', "1")])
    assert text == 'A {"id": "1", "text": "{documents}\\n\\"}"} B'


@pytest.mark.parametrize(
    ("path", "found"),
    [("$.a[1].b", 2), ("a[0].b", 1), ("a[9].b", None), ("x.y", None), ("", {"a": [{"b": 1}, {"b": 2}]})],
)
def test_paths_find_members_or_none(path: str, found: object):
    """No path raises, whatever the answer's shape."""
    assert at_path({"a": [{"b": 1}, {"b": 2}]}, path) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"": {model: m}}', 'setting pipelines, the name "": String should have at least 1'),
        ('{" a": {model: m}}', 'setting pipelines, the name " a": a name has no line ends'),
        ("{p: {model: m, tools: [{kind: python, name: '', function: 'm:f'}]}}",
         "setting pipelines.p.tools.0.python.name: "),
        ("{p: {model: m, retrievers: [{kind: http, name: r, url: 'http://h', headers_env: {'': X}}]}}",
         'setting pipelines.p.retrievers.0.http.headers_env, the name "": a header'),
    ],
)  # fmt: skip
def test_a_name_that_is_wrong_is_quoted(tmp_path: Path, text: str, told: str):
    """With the setting that it stands in."""
    (tmp_path / "c.yaml").write_text(f"pipelines: {text}")
    with pytest.raises(UserError, match=re.escape(told)):
        load_config(tmp_path / "c.yaml", {})
