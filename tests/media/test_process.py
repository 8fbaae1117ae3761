"""Does a program ever outlive the one that wanted it?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.core.errors import ClipTimeout, FfmpegKilled, LeaseLost, SourceTimeout, ToolMissing
from pipeline.media import ffmpeg, process

# A program with a child of its own; both say who they are, then do nothing for ever.
TREE = "echo $$ >> pids; sh -c 'echo $$ >> pids; exec sleep 1000' & wait"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(condition: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def pids(folder: Path, count: int) -> list[int]:
    file = folder / "pids"
    wait_for(lambda: file.exists() and len(file.read_text().split()) == count)
    return [int(pid) for pid in file.read_text().split()]


@pytest.fixture
def worker(tmp_path: Path) -> Callable[[list[str]], subprocess.Popen[bytes]]:
    """A Python process of its own that runs a program through `process.run`."""

    def start(argv: list[str]) -> subprocess.Popen[bytes]:
        code = f"""
            from pathlib import Path
            from pipeline.media import process
            process.run({argv!r}, cwd=Path({str(tmp_path)!r}))
        """
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parents[2])

    return start


def encode_for_ever(folder: Path) -> list[str]:
    source = ["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30"]
    return [ffmpeg.locate(), "-v", "error", "-y", "-re", *source, "-f", "mpegts", str(folder / "endless.ts")]


def test_what_a_program_says_arrives_line_by_line_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    said: list[str] = []

    ended = process.run(["sh", "-c", "echo one; echo two; echo bad >&2; exit 3"], cwd=tmp_path, on_line=said.append)

    assert said == ["one", "two"]
    assert ended == process.Ended(3, ("bad",))


def test_a_program_killed_by_a_signal_ends_with_that_signal(tmp_path: Path) -> None:
    ended = [process.run(["sh", "-c", f"kill -{n} $$"], cwd=tmp_path).returncode for n in (9, 11, 13, 15)]

    assert ended == [-9, -11, -13, -15]


def test_only_the_last_words_are_kept_and_none_is_endless(tmp_path: Path) -> None:
    script = "for i in $(seq 100); do echo line $i >&2; done; head -c 100000 /dev/zero | tr '\\0' x >&2"

    ended = process.run(["sh", "-c", script], cwd=tmp_path, keep_lines=5)

    assert len(ended.tail) == 5
    assert max(map(len, ended.tail)) <= process.LONGEST_LINE


def test_a_program_that_is_not_there_is_a_missing_tool(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="no-such-program could not be started"):
        process.run(["no-such-program"], cwd=tmp_path)


def test_a_program_sees_neither_our_passwords_nor_dumps_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:secret@h/db")
    said: list[str] = []

    process.run(["sh", "-c", "env; ulimit -c"], cwd=tmp_path, on_line=said.append)

    assert not [line for line in said if "secret" in line]
    assert said[-1] == "0"


def test_a_check_that_raises_kills_the_whole_tree(tmp_path: Path) -> None:
    def lost() -> None:
        if (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        process.run(["sh", "-c", TREE], cwd=tmp_path, check=lost)

    wait_for(lambda: not [pid for pid in pids(tmp_path, 2) if is_alive(pid)], within_s=5)


def test_the_check_is_asked_every_second_even_of_a_program_that_never_stops_talking(tmp_path: Path) -> None:
    asked: list[float] = []

    def check() -> None:
        asked.append(time.monotonic())
        if len(asked) == 4:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        process.run(["yes"], cwd=tmp_path, check=check, on_line=lambda _line: None)

    assert max(later - earlier for earlier, later in pairwise(asked)) < 1.0


def test_the_end_of_the_time_kills_the_whole_tree(tmp_path: Path) -> None:
    with pytest.raises(ClipTimeout, match=r"ran longer than 0\.5 s"):
        process.run(["sh", "-c", TREE], cwd=tmp_path, timeout_s=0.5)
    with pytest.raises(SourceTimeout):
        process.run(["sleep", "9"], cwd=tmp_path, timeout_s=0.1, timeout_error=SourceTimeout)

    wait_for(lambda: not [pid for pid in pids(tmp_path, 2) if is_alive(pid)], within_s=5)


def test_what_a_program_leaves_behind_is_killed_when_it_ends(tmp_path: Path) -> None:
    ended = process.run(["sh", "-c", "sleep 1000 & echo $! >> pids"], cwd=tmp_path)

    assert ended.returncode == 0
    wait_for(lambda: not is_alive(pids(tmp_path, 1)[0]))


def test_kill_9_of_the_worker_leaves_nothing_of_the_tree(
    tmp_path: Path, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ours = worker(["sh", "-c", TREE])
    tree = pids(tmp_path, 2)

    ours.kill()
    ours.wait()

    wait_for(lambda: not [pid for pid in tree if is_alive(pid)], within_s=5)


def test_a_worker_whose_pipe_was_inherited_by_another_takes_the_program_with_it(
    tmp_path: Path, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ours = worker(["sh", "-c", TREE])
    tree = pids(tmp_path, 2)
    guard = parent_of(tree[0])
    pipe = os.open(f"/proc/{guard}/fd/0", os.O_RDWR)  # as a fork of the worker would hold it

    ours.kill()
    ours.wait()

    wait_for(lambda: not [pid for pid in tree if is_alive(pid)], within_s=5)
    os.close(pipe)


def test_kill_9_of_the_worker_leaves_no_ffmpeg(tmp_path: Path, worker: Callable[..., subprocess.Popen[bytes]]) -> None:
    ours = worker(encode_for_ever(tmp_path))
    wait_for((tmp_path / "endless.ts").exists)
    guard = next(int(p) for p in Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split())
    program = int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])

    ours.kill()
    ours.wait()

    wait_for(lambda: not is_alive(guard) and not is_alive(program), within_s=5)


def test_a_stopped_program_dies_with_the_worker_too(
    tmp_path: Path, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ours = worker(["sh", "-c", "echo $$ >> pids; exec sleep 1000"])
    program = pids(tmp_path, 1)[0]
    os.kill(program, signal.SIGSTOP)

    ours.kill()
    ours.wait()

    wait_for(lambda: not is_alive(program), within_s=5)


def test_kill_9_of_the_guard_leaves_no_program_and_is_seen_as_killed(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_the_guard() -> None:
        if (tmp_path / "pids").exists() and not killed:
            killed.extend(pids(tmp_path, 2))
            os.kill(parent_of(killed[0]), signal.SIGKILL)

    ended = process.run(["sh", "-c", TREE], cwd=tmp_path, check=kill_the_guard)

    assert ended.returncode == -9
    wait_for(lambda: not [pid for pid in killed if is_alive(pid)], within_s=5)


def test_a_killed_ffmpeg_is_tried_again(tmp_path: Path) -> None:
    output = tmp_path / "endless.ts"
    graph = ffmpeg.written([ffmpeg.generated("testsrc2=size=320x240:rate=30,realtime")], output)

    def kill_it() -> None:
        own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        for guard in own:
            for program in Path(f"/proc/{guard}/task/{guard}/children").read_text().split():
                if output.exists():
                    os.kill(int(program), signal.SIGKILL)

    with pytest.raises(FfmpegKilled, match="signal 9"):
        ffmpeg.run_graph(graph, output=output, cwd=tmp_path, check=kill_it)
