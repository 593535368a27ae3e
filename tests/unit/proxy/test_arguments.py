"""Engine flags and models are checked before anything is started."""

from __future__ import annotations

import pytest

from proxy.engine.arguments import check_model, parse_engine_args
from proxy.errors import ProxyError


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("/no/such/folder", "does not exist"),
        ("./gone", "does not exist"),
        ("{dir}", "has no config.json"),
        ("{dir}/file.txt", "is a file"),
    ],
)
def test_a_path_that_is_no_model_is_wrong_usage(tmp_path, model, says):
    """One sentence with the path, the rule and the way out; exit code 2."""
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(ProxyError, match=says) as caught:
        check_model(model.format(dir=tmp_path))
    assert caught.value.exit_code == 2


def test_a_model_folder_and_a_hub_name_are_let_through(tmp_path):
    """A folder with a config.json, and a name that only a hub can judge."""
    (tmp_path / "config.json").write_text("{}")
    check_model(str(tmp_path))
    check_model("org/name")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--port", "9"], "--port is set by stagelens"),
        (["--model=x"], "--model=x is set by stagelens"),
        (["--no-such-flag"], "engine flags: .*no-such-flag"),
        (["--max-model-len", "many"], "engine flags: .*max-model-len"),
        (["--disable-log-stats"], "takes away the engine's stamps"),
        (["--api-server-count", "2"], "must be 1"),
    ],
)
def test_a_wrong_engine_flag_is_one_sentence(tmp_path, flags, says):
    """Unknown, malformed, owned and harmful flags: exit code 2, no usage text."""
    with pytest.raises(ProxyError, match=says) as caught:
        parse_engine_args(str(tmp_path), "127.0.0.1", 0, flags)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.engine
def test_engine_flags_pass_through_and_iteration_details_are_on(tmp_path):
    """vLLM's own parser takes the flags; the step statistics are always wanted."""
    args = parse_engine_args(str(tmp_path), "127.0.0.1", 0, ["--max-model-len", "2048"])
    assert args.max_model_len == 2048
    assert args.enable_logging_iteration_details is True
