"""Settings of a load: what can be asked for, and how a mistake is told."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from stagelens.bench.command import _key, make_settings
from stagelens.bench.lengths import parse_lengths
from stagelens.bench.settings import BenchSettings
from stagelens.errors import UserError

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "one of rate, concurrency and replay"),
        ({"rate": [1], "concurrency": [2]}, "one of rate, concurrency and replay"),
        ({"rate": [0]}, "above 0"),
        ({"rate": [2, 2]}, "twice"),
        ({"find_max": True}, "needs limits"),
        ({"find_max": True, "goodput": {"ttft": 1}, "concurrency": [2]}, "one rate to begin with"),
        ({"rate": [1], "goodput": {"speed": 1}}, "ttft, tpot, e2e, itl"),
        ({"rate": [1], "name": "a b"}, "letters, digits"),
        ({"rate": [1], "tags": {"a": "b,c"}}, "spaces, commas"),
        ({"rate": [1], "input": "many"}, "lognormal:MEAN,SD"),
        ({"replay": "r", "prefix_share": 0.5}, "what was recorded"),
        ({"rate": [1], "endpoint": "completions", "turns": "3"}, "chat endpoint"),
        ({"rate": [1], "colour": "red"}, "Extra inputs"),
        ({"rate": [100.00001, 100.00002]}, "twice"),
        ({"rate": [1], "tags": {"run": "x"}}, "this command's own"),
        ({"rate": [1], "tags": {"a": "b\x01"}}, "spaces, commas"),
        ({"rate": [1], "speed": 2}, "speed is of a replay"),
        ({"rate": [1], "ca": "x.pem"}, "ca is of a server behind https"),
        ({"rate": [1], "duration_s": float("inf")}, "finite number"),
        ({"rate": [1], "timeout_s": 1e300}, "less than or equal to 31536000"),
        ({"rate": [1], "stream": False, "goodput": {"tpot": 1, "e2e": 1}}, "limits tpot are of streams"),
        ({"rate": [1], "data": "d.json", "input": "9"}, "input: a load with data takes its prompts"),
        ({"rate": [1], "data": "d.json", "prefix_share": 0.5}, "prefix_share: a load with data"),
        ({"replay": "r", "output": "9"}, "output: a load with replay"),
        ({"rate": [1], "burstiness": 3}, "burstiness is of arrivals gamma"),
        ({"rate": [1], "arrivals": "constant", "burstiness": 3}, "burstiness is of arrivals gamma"),
        ({"rate": [1], "think_s": 1}, "think_s is of conversations: give turns"),
        ({"rate": [1], "body": {"n": [float("nan")]}}, "what no JSON can"),
        ({"rate": [1], "body": {"n": float("inf")}}, "what no JSON can"),
        ({"find_max": True, "goodput": {"ttft": 1}, "requests": 9}, "before a queue has built up"),
        ({"rate": [1], "warmup_s": 2, "warmup_requests": 3}, "stands in place of warmup_s"),
        ({"rate": [1], "body": {"max_tokens": 3}}, "max_tokens is what --output tells"),
        ({"rate": [1], "body": {"messages": []}}, "messages is what --data tells"),
        ({"concurrency": [2], "arrivals": "gamma"}, "arrivals: a load with concurrency has no schedule"),
    ],
)
def test_a_load_that_cannot_be_is_refused(given, said):
    """Each mistake has its own sentence."""
    with pytest.raises(ValidationError, match=said):
        BenchSettings(url=URL, **given)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://key@x:1", "http://h:99999",
                                 "http://h:x", "http://a..b", "http://h/a b", "http://h/v1#x"])  # fmt: skip
def test_an_address_that_is_none_is_refused(url):
    """It is told how one is written."""
    with pytest.raises(ValidationError, match="address"):
        BenchSettings(url=url, rate=(1,))


def test_options_lie_over_the_files_settings(tmp_path):
    """A load file gives what the command line does not."""
    file = tmp_path / "load.yaml"
    file.write_text(f"url: {URL}\nrate: 4\ninput: uniform:8,16\ngoodput: {{ttft: 0.5}}\n")
    made = make_settings(file, {"rate": "1,2.5", "tags": ("a=b",), "body": '{"top_k": 1}'})
    assert made.rate == (1.0, 2.5)
    assert (made.input, made.goodput, made.tags) == ("uniform:8,16", {"ttft": 0.5}, {"a": "b"})
    assert made.body == {"top_k": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [("colour: red", "unknown setting colour"), ("- 1", "mapping"), ("a: [", "not valid YAML"),
     ("rate: 1\nrate: 2", "line 2: the key rate is there twice"), ("{a: " * 2000, "nested too deeply"),
     ("rate: 4", "url is missing: give --url"), (f"url: {URL}\nrate: x", "rate.0 = 'x'")],
)  # fmt: skip
def test_a_mistake_in_a_load_file_is_one_sentence(tmp_path, text, said):
    """The setting is named; exit code 2."""
    file = tmp_path / "load.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=re.escape(said)) as told:
        make_settings(file, {})
    assert told.value.exit_code == 2


def test_a_key_is_taken_without_the_line_end_behind_it(monkeypatch):
    """And one that cannot stand in a header is told before anything is sent."""
    monkeypatch.setenv("K", "sk-x\n")
    assert _key("K") == "sk-x"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert _key("OPENAI_API_KEY") is None
    monkeypatch.setenv("K", "sk\nx: y")
    with pytest.raises(UserError, match="K holds what no key can") as told:
        _key("K")
    assert told.value.exit_code == 2


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_variable_that_was_named_for_the_key_and_holds_none_is_told(monkeypatch, value):
    """Without the key each request would be refused."""
    monkeypatch.delenv("NOPE", raising=False)
    if value is not None:
        monkeypatch.setenv("NOPE", value)
    with pytest.raises(UserError, match="--key-env NOPE: the variable is not set") as told:
        _key("NOPE")
    assert told.value.exit_code == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate": "1,,2"}, "rate.1 = ''"),
        ({"concurrency": "1,"}, "concurrency.1 = ''"),
        ({"rate": "1", "goodput": "ttft=2", "find_max_goodput": "ttft=1"}, "leave --goodput out"),
        ({"rate": "1", "body": '{"n": NaN}'}, "what no JSON can"),
    ],
)
def test_an_option_that_would_be_read_otherwise_than_written_is_refused(given, said):
    """Nothing is dropped in silence."""
    with pytest.raises(UserError, match=re.escape(said)) as told:
        make_settings(None, {"url": URL, **given})
    assert told.value.exit_code == 2


def test_every_setting_is_in_the_table_and_the_other_way_round():
    """docs/bench.md and the model name the same settings, and the same plain defaults."""
    root = Path(__file__).resolve().parents[4]
    text = (root / "docs/bench.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^\| `([a-z0-9_]+)` \|[^|]*\| ([^|]+) \|", text))
    fields = BenchSettings.model_fields
    assert set(rows) == set(fields)
    for name, told in rows.items():
        default = fields[name].get_default(call_default_factory=True)
        if isinstance(default, (bool, int, float, str)):
            assert told.strip("` ").lower() == f"{default}".lower(), name


@pytest.mark.parametrize("name", ["input", "output", "turns"])
@pytest.mark.parametrize("told", [32, "32", 32.0])
def test_a_length_of_a_file_may_be_a_number(name, told):
    """``input: 32`` in YAML is what ``--input 32`` is."""
    made = BenchSettings(url=URL, rate=[1], **{name: told})
    assert parse_lengths(getattr(made, name)).draw(random.Random(0)) == 32


@pytest.mark.parametrize("told", [True, [32], {"normal": 3}])
def test_what_is_no_length_is_refused_in_a_file(told):
    """A boolean is no number of tokens."""
    with pytest.raises(ValidationError, match="input"):
        BenchSettings(url=URL, rate=[1], input=told)
