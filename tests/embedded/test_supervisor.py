"""Do children run on when they die, finish when they are asked to, and never outlive their supervisor?"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.processes import Identity, descendants, wait_until
from pipeline.supervisor import Child, Event, Happening, Supervisor, commands, end_leftovers

PATIENCE_S = 10
IDLE = ["sleep", "1000"]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def supervise(tmp_path: Path, events: list[Event]) -> Iterator[object]:
    started: list[Supervisor] = []

    def run(*children: Child, **options: object) -> Supervisor:
        options = {"grace_s": 5.0, "backoff_s": (0.0,), "on_event": events.append, **options}
        supervisor = Supervisor(children, home=tmp_path, **options)
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield run
    for supervisor in started:
        supervisor.drain()


def shell(name: str, script: str, **env: str) -> Child:
    return Child(name, ["sh", "-c", script], env)


def what(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.child, str(event.what)) for event in events]


def test_a_killed_child_is_started_again_and_its_neighbour_left_alone(supervise, events: list[Event]) -> None:
    supervisor = supervise(Child("one", IDLE), Child("two", IDLE))
    first, neighbour = supervisor.pid("one"), supervisor.pid("two")

    os.kill(first, signal.SIGKILL)

    assert wait_until(lambda: len(events) == 4, PATIENCE_S)
    assert supervisor.pid("one") not in (None, first)
    assert supervisor.pid("two") == neighbour
    assert what(events) == [("one", "started"), ("two", "started"), ("one", "died"), ("one", "started")]
    assert str(events[2]) == "one died (exit code -9), starting it again in 0 s"


def test_a_child_that_dies_again_and_again_is_given_more_and_more_time(supervise, events: list[Event]) -> None:
    supervise(shell("flimsy", "exit 3"), backoff_s=(0.0, 0.01, 0.02))

    assert wait_until(lambda: sum(event.what is Happening.DIED for event in events) >= 5, PATIENCE_S)
    deaths = [event for event in events if event.what is Happening.DIED]
    assert [event.again_in_s for event in deaths[:5]] == [0.0, 0.01, 0.02, 0.02, 0.02]
    assert {event.exit_code for event in deaths} == {3}


def test_what_a_dead_child_started_dies_before_its_heir_begins(supervise) -> None:
    supervisor = supervise(shell("pool", "sleep 1000 & sleep 1000"))
    first = supervisor.pid("pool")
    assert wait_until(lambda: len(descendants(first)) == 2, PATIENCE_S)
    workers = descendants(first)

    os.kill(first, signal.SIGKILL)

    assert wait_until(lambda: supervisor.pid("pool") not in (None, first), PATIENCE_S)
    assert not any(each.is_running for each in workers)


def test_draining_lets_a_child_finish(supervise, events: list[Event], tmp_path: Path) -> None:
    finish = "trap 'echo finished > \"$WHERE\"; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    supervisor = supervise(shell("careful", finish, WHERE=str(tmp_path / "done")))
    assert wait_until(lambda: "up" in supervisor.log("careful").read_text(), PATIENCE_S)

    codes = supervisor.drain()

    assert codes == {"careful": 0}
    assert (tmp_path / "done").read_text() == "finished\n"
    assert what(events)[-1] == ("careful", "stopped")
    assert not (tmp_path / "children.json").exists()


def test_draining_ends_a_stubborn_child_and_all_below_it_when_the_grace_is_over(supervise, events) -> None:
    supervisor = supervise(shell("stubborn", "trap '' TERM; echo up; sleep 1000 & wait; sleep 1000"), grace_s=0.3)
    assert wait_until(lambda: "up" in supervisor.log("stubborn").read_text(), PATIENCE_S)
    main = supervisor.pid("stubborn")
    assert wait_until(lambda: len(descendants(main)) == 1, PATIENCE_S)
    below = descendants(main)

    codes = supervisor.drain()

    assert codes == {"stubborn": -signal.SIGKILL}
    assert not any(each.is_running for each in below)
    assert what(events)[-1] == ("stubborn", "killed")


def test_nobody_is_started_again_while_draining_or_after_it(supervise, events: list[Event]) -> None:
    supervisor = supervise(Child("one", IDLE), Child("two", IDLE))

    codes = supervisor.drain()
    supervisor._look_round()  # as a watcher does that waited while we drained

    assert codes == {"one": -signal.SIGTERM, "two": -signal.SIGTERM}
    assert supervisor.pid("one") is None
    assert what(events)[-2:] == [("one", "stopped"), ("two", "stopped")]
    assert supervisor.drain() == {}


def test_children_get_their_own_variables_and_a_log_each(supervise) -> None:
    supervisor = supervise(shell("tells", 'echo "I have $GIFT"; exec sleep 1000', GIFT="a pen"))

    assert wait_until(lambda: "I have a pen" in supervisor.log("tells").read_text(), PATIENCE_S)


SUPERVISE = """
from pathlib import Path
from pipeline.supervisor import Child, Supervisor
Supervisor([Child("one", ["sleep", "1000"]), Child("two", ["sleep", "1000"])], home=Path(sys.argv[1])).start()
"""


def children_of(home: Path) -> list[Identity]:
    return [Identity(pid, started) for pid, started in json.loads((home / "children.json").read_text())]


def test_no_child_survives_a_supervisor_that_was_killed(tmp_path: Path, another) -> None:
    supervisor = another(SUPERVISE, str(tmp_path))
    children = children_of(tmp_path)
    assert len(children) == 2

    supervisor.kill()

    assert all(child.gone_within(PATIENCE_S) for child in children)


def test_children_that_did_survive_are_ended_by_the_next_supervisor(tmp_path: Path, another, supervise) -> None:
    unleashed = "from pipeline import processes\nstart = processes.start\n"
    unleashed += "processes.start = lambda argv, **more: start(argv, **{**more, 'ends_with_us': 0})\n"
    another(unleashed + SUPERVISE, str(tmp_path)).kill()
    children = children_of(tmp_path)
    assert all(child.is_running for child in children)

    supervisor = supervise(Child("one", IDLE))

    assert not any(child.is_running for child in children)
    assert supervisor.pid("one") is not None


def test_a_stranger_that_has_the_number_of_a_child_is_left_alone(tmp_path: Path, another) -> None:
    stranger = another("")
    (tmp_path / "children.json").write_text(json.dumps([[stranger.pid, "another boot:1"]]))

    assert end_leftovers(tmp_path) == []
    assert stranger.poll() is None


def test_ctrl_c_and_sigterm_drain(tmp_path: Path, another) -> None:
    code = """
from pathlib import Path
from pipeline.supervisor import Child, Supervisor, until_told_to_stop
with Supervisor([Child("one", ["sleep", "1000"])], home=Path(sys.argv[1]), on_event=lambda e: print(e, flush=True)):
    print("ready", flush=True)
    print(until_told_to_stop().name, flush=True)
sys.exit(0)
"""
    for sig in (signal.SIGINT, signal.SIGTERM):
        process = another("print('ready', flush=True)\n" + code, str(tmp_path / sig.name))
        assert process.stdout.readline() == "one started\n"
        assert process.stdout.readline() == "ready\n"
        # The handlers are set right after that line; until then the default would end it without a word.
        assert wait_until(lambda p=process: _hears(p.pid, signal.SIGTERM), PATIENCE_S)

        process.send_signal(sig)

        assert process.stdout.read() == f"{sig.name}\none stopped (exit code -15)\n"
        assert process.wait(PATIENCE_S) == 0


def _hears(pid: int, sig: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & 1 << (sig - 1))


def test_the_command_lines_show_no_secret_and_reach_our_tasks_from_any_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    worker, beat, flower = commands(
        {"BROKER_URL": "redis://:hidden@127.0.0.1"}, home=tmp_path, flower_port=5555, flower_login="me:hidden"
    )

    assert [child.name for child in (worker, beat, flower)] == ["worker", "beat", "flower"]
    assert worker.env["REMAP_SIGTERM"] == "SIGQUIT"
    assert flower.env["FLOWER_BASIC_AUTH"] == "me:hidden"
    assert "--address=127.0.0.1" in flower.argv
    assert not any("hidden" in word for child in (worker, beat, flower) for word in child.argv)
    assert worker.env["PYTHONPATH"].split(os.pathsep)[:2] == [str(Path(__file__).parents[2]), str(tmp_path)]
