"""Files of prompts as they are found: other line ends, parts, roles, marks, mistakes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stagelens.bench.datafile import alike, read_items
from stagelens.bench.datanotes import data_notes
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Speech
from stagelens.bench.wire import Target
from stagelens.errors import UserError


def told(file, **given: object) -> str:
    """What a load with ``file`` says of it."""
    made = BenchSettings(url="http://127.0.0.1:1", rate=[1], data=file, **given)
    return " ".join(data_notes(read_items(file), made))


def _body(request: bytes) -> dict[str, object]:
    return json.loads(request.partition(b"\r\n\r\n")[2])


def test_a_line_ends_at_its_line_feed_alone(tmp_path):
    """Strings may hold U+2028, U+0085 and form feeds unescaped: no entry is cut there."""
    texts = ["a\u2028b", "c\u0085d", "e\u2029f"]
    file = tmp_path / "d.jsonl"
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    file.write_bytes("\r\n".join([*lines, "", "  "]).encode())
    items, skipped = read_items(file)
    assert [one.turns[0].messages[0]["content"] for one in items] == texts
    assert skipped == 0


def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path):
    """Some editors put one in front."""
    file = tmp_path / "d.json"
    file.write_bytes(b'\xef\xbb\xbf[{"prompt": "hello"}]')
    assert len(read_items(file)[0]) == 1


def test_messages_in_parts_are_sent_as_they_are(tmp_path):
    """OpenAI's form of content as a list, with a picture; completions take its text alone."""
    parts = [{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": {"url": "u"}},
             {"type": "text", "text": "this?"}]  # fmt: skip
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"messages": [{"role": "user", "content": parts}]}]))
    [item] = read_items(file)[0]
    assert item.turns[0].messages[0]["content"] == parts
    speech = Speech(Target("h", 80, "/v1", tls=False), "m")
    asked = [speech, replace(speech, endpoint="completions")]
    chat, plain = (_body(one.request([*item.turns[0].messages], 3, stream=True)) for one in asked)
    assert chat["messages"][0]["content"] == parts
    assert plain["prompt"] == "what is\nthis?"
    assert "1 message sent without pictures" in told(file, endpoint="completions")
    assert "pictures" not in told(file)


@pytest.mark.parametrize("name", ["gpt", "bing", "bard", "Assistant", "model"])
def test_each_name_of_the_assistant_ends_a_turn(tmp_path, name):
    """An answer that is not known as one would put two questions into one turn."""
    said = [("human", "a"), (name, "x" * 40), ("human", "b")]
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"conversations": [{"from": f, "value": v} for f, v in said]}]))
    [item] = read_items(file)[0]
    assert [one.output_tokens for one in item.turns] == [10, 64]


@pytest.mark.parametrize("name", ["output_tokens", "max_tokens"])
@pytest.mark.parametrize("length", [True, "12", 0, -5, 2.5, 1e9, float("nan"), [3]])
def test_what_is_no_length_is_refused_with_its_place(tmp_path, length, name):
    """Answers of another length would not be as the file says."""
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"prompt": "a"}, {"prompt": "a", name: length}]))
    with pytest.raises(UserError, match=f"entry 2: {name} .* is no length: write a whole number") as told:
        read_items(file)
    assert told.value.exit_code == 2


@pytest.mark.parametrize(("length", "meant"), [(None, 64), (12, 12), (12.0, 12)])
def test_a_length_that_is_given_or_left_open_is_taken(tmp_path, length, meant):
    """A whole number however it is written; null is none."""
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"prompt": "a", "output_tokens": length}]))
    [item] = read_items(file)[0]
    assert (type(item.turns[0].output_tokens), item.turns[0].output_tokens) == (int, meant)


def test_entries_with_a_blank_prompt_are_left_out_and_counted(tmp_path):
    """As those with none."""
    file = tmp_path / "d.json"
    blank = [{"prompt": " \n"}, {"messages": [{"role": "user", "content": "\t"}]}]
    file.write_text(json.dumps([*blank, {"prompt": "a"}]))
    items, skipped = read_items(file)
    assert (len(items), skipped) == (1, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"prompt": "a"}\n{"prompt":\n{"prompt": "c"}\n', "in UTF-8: see line 2"),
        ('[\n{"prompt": "a"},\n{"prompt" "b"}\n]', "in UTF-8: see line 3"),
        ("[" * 200_000, "nested too deeply"),
        ("", "holds no prompt: each entry needs"),
        ("\n \n", "holds no prompt: each entry needs"),
        ("\0", "in UTF-8: see line 1"),
        ('{"data": [{"prompt": "a"}]}', "holds no prompt: each entry needs"),
        ('["a", "b"]', "holds no prompt: each entry needs"),
        ('{"messages": [{"role": "system", "content": "only"}]}', "holds no prompt"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path, text, said):
    """In JSON lines and in one document; no traceback."""
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as told:
        read_items(file)
    assert told.value.exit_code == 2


def test_prompts_that_are_there_again_are_counted(tmp_path):
    """A server finds the second one in its prefix cache."""
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"prompt": text} for text in "aabac"]))
    assert alike(read_items(file)[0]) == 2


def test_messages_that_are_not_sent_are_counted_and_said(tmp_path):
    """Calls of tools and their results, unknown roles, an answer to nothing; the rest is sent."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
    said = [
        {"role": "assistant", "content": "Hello!"}, {"role": "developer", "content": "be short"},
        {"role": "user", "content": "the weather?"}, call, {"role": "tool", "content": "rain"},
        {"role": "critic", "content": "hm"}, {"role": "assistant", "content": "x" * 40},
    ]  # fmt: skip
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"messages": said}, {"prompt": " "}]))
    [item] = read_items(file).items
    [turn] = item.turns
    assert [one["role"] for one in turn.messages] == ["developer", "user"]
    assert (turn.output_tokens, item.unsent) == (10, 4)
    assert "1 conversation, in" in told(file)
    assert "4 messages not sent (blank, of a tool" in told(file)
    assert "1 more held no prompt" in told(file)


def test_a_completion_gives_the_length_of_its_answer(tmp_path):
    """Where there is none, that 64 tokens are taken is said, unless --output tells."""
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"prompt": "a", "completion": "x" * 40}, {"prompt": "b"}]))
    assert [one.turns[0].output_tokens for one in read_items(file).items] == [10, 64]
    assert "1 turn with no answer and no length: 64 tokens are asked for" in told(file)
    assert "no length" not in told(file, output="9")
