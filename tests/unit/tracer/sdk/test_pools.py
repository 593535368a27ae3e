"""Process pools: the children's spans and stages belong to the task that submitted them."""

from __future__ import annotations

import pytest

from tests.support.otlp_peer import otlp_peer
from tests.support.programs import run

PROGRAM = """
import multiprocessing, pathlib
from concurrent.futures import CancelledError

@tracer.tool
def slow(x):
    time.sleep(0.2)
    if x == 13:
        raise LookupError("thirteen")
    return x * 2

def prepared(mark):
    os.environ["MARK"] = mark

def mark(_):
    return os.environ.get("MARK")

if __name__ == "__main__":
    tracer.configure("pools", os.environ["AT"])
    context = multiprocessing.get_context(os.environ["HOW"])
    with tracer.trace("task"):
        with tracer.ProcessPoolExecutor(2, context, prepared, ("here",)) as pool:
            print(pool.submit(slow, 2).result(), list(pool.map(slow, [3, 4])), pool.submit(mark, 0).result())
            failing = pool.submit(slow, 13)
            print(type(failing.exception()).__name__, failing.done(), failing.running())
"""


def run_file(folder, source, **environment):
    """Run ``source`` as a file: processes that are no forks import it."""
    program = folder / "program.py"
    program.write_text("import os, sys, time\nimport tracer\n" + source)
    return run(
        "import subprocess\n"
        "sys.exit(subprocess.run([sys.executable, os.environ['PROGRAM']]).returncode)",
        PROGRAM=str(program), **environment,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_calls_in_processes_are_below_their_task_and_count_in_its_stages(how, tmp_path):
    """Results and errors as the standard pool gives them; four tools of 0.2 s in the record."""
    with otlp_peer() as peer:
        done = run_file(tmp_path, PROGRAM, AT=peer.url, HOW=how)
        spans = {(s.name, s.span_id): s for s in peer.spans()}
    assert done.stdout.split("\n")[:2] == ["4 [6, 8] here", "LookupError True False"]
    [task] = [s for s in spans.values() if s.name == "task"]
    tools = [s for s in spans.values() if s.name == "execute_tool slow"]
    assert len(tools) == 4
    assert {(t.trace_id, t.parent_span_id) for t in tools} == {(task.trace_id, task.span_id)}
    told = {a.key: a.value.int_value for a in task.attributes}
    assert told["stagelens.stage.tool_count"] == 4
    assert told["stagelens.stage.tool_ns"] >= 600_000_000


HOOKED = """
import multiprocessing

def hide(name, text):
    return "hidden by the hook"

@tracer.tool
def look(x):
    return x

if __name__ == "__main__":
    hook = hide if os.environ["HOOK"] == "module" else lambda _name, text: text.replace("CANARY", "")
    tracer.configure("pools", os.environ["AT"], capture_content=True, redact=hook)
    context = multiprocessing.get_context(os.environ["HOW"])
    with tracer.ProcessPoolExecutor(1, context) as pool:
        print(pool.submit(look, "CANARY").result(), pool.submit(look, "CANARY").result())
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("hook", ["module", "lambda"])
def test_the_redaction_hook_holds_in_the_processes_or_they_record_no_content(how, hook, tmp_path):
    """A lambda cannot be taken along to a process that is no fork, which tells it once."""
    with otlp_peer() as peer:
        done = run_file(tmp_path, HOOKED, AT=peer.url, HOW=how, HOOK=hook)
        spans = peer.spans()
    assert done.stdout.split() == ["CANARY", "CANARY"]
    assert len(spans) == 2
    assert "CANARY" not in str(spans)
    results = [a.value.string_value for s in spans for a in s.attributes if a.key.endswith("call.result")]
    lost = hook == "lambda" and how != "fork"
    assert results == ([] if lost else ["hidden by the hook" if hook == "module" else ""] * 2)
    assert done.stderr.count("no content is recorded in this process") == lost


def test_without_set_up_it_is_the_standard_pool():
    """The very same future, and nothing wrapped."""
    done = run(
        """
        if __name__ == "__main__":
            import multiprocessing
            with tracer.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
                future = pool.submit(abs, -3)
                print(future.result(), type(future).__name__)
        """
    )
    assert done.stdout.strip() == "3 Future"


def test_spans_of_a_plain_child_of_multiprocessing_are_sent_at_its_end():
    """``multiprocessing`` ends forked children without ``atexit``: they are sent all the same."""
    with otlp_peer() as peer:
        run(
            """
            import multiprocessing
            tracer.configure(endpoint=os.environ["AT"])
            with tracer.trace("task"):
                child = multiprocessing.get_context("fork").Process(target=look)
                child.start()
                child.join()
            """,
            AT=peer.url,
        )
        task, look = sorted(peer.spans(), key=lambda s: s.name, reverse=True)
    assert (task.name, look.name) == ("task", "execute_tool look")
    assert look.parent_span_id == task.span_id


def test_headers_carry_a_trace_to_where_there_is_no_pool():
    """A queue's message: ``inject`` on one side, ``continue_from`` on the other."""
    import tracer
    from tracer.testing import recording

    with recording() as seen:
        with tracer.trace("sends"):
            message = dict(tracer.inject({}))
        with tracer.continue_from(message), tracer.trace("works"):
            pass
    sends, works = seen.spans
    assert works.parent.span_id == sends.context.span_id
    assert works.attributes["stagelens.record.version"] == 1
