"""What the fenced scratch promises to a holder, to its heir, and against a ghost."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline import scratch as scratch_module
from pipeline.core.errors import InternalTransient, LeaseLost, ScratchFull
from pipeline.scratch import Finished, Scratch, full_disk_is_ours, leases_of, remove_job, remove_leases

NAME = "clip-1-final.mp4"
CONTENT = b"frames" * 400_000
SHA = hashlib.sha256(CONTENT).hexdigest()

# Opens a file, writes, says so, and writes again when it hears a line: an ffmpeg that can be stopped in between.
WRITER = """
import sys
with open(sys.argv[1], sys.argv[2], buffering=0) as file:
    file.write(b"frames" * 1000) if sys.argv[2] == "wb" else None
    print("open", flush=True)
    sys.stdin.readline()
    file.seek(0)
    file.write(b"GHOST" * 5000)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def dead(root: Path) -> Scratch:
    return Scratch(root, "job-1", uuid4())


@pytest.fixture
def heir(root: Path) -> Scratch:
    return Scratch(root, "job-1", uuid4())


Writer = Callable[[Path, str], "subprocess.Popen[str]"]


@pytest.fixture
def stopped_writer() -> Iterator[Writer]:
    """Start a real process that has a file open for writing, and stop it there with SIGSTOP."""
    running: list[subprocess.Popen[str]] = []

    def start(path: Path, mode: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", WRITER, str(path), mode]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def wake(ghost: "subprocess.Popen[str]") -> None:
    ghost.send_signal(signal.SIGCONT)
    ghost.communicate("go\n")
    assert ghost.returncode == 0


def made(scratch: Scratch, content: bytes = CONTENT, name: str = NAME) -> Finished:
    work = scratch.path(name.replace("-final", "-work"))
    work.write_bytes(content)
    return scratch.publish(work, scratch.path(name))


def files_below(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(folder))] = (stat.S_IMODE(status.st_mode), status.st_mtime_ns, path.read_bytes())
    return found


# -- the folder ------------------------------------------------------------------------------------------------------


def test_a_holder_has_a_private_folder_named_by_job_and_fence(root: Path) -> None:
    scratch = Scratch(root, "job-1", "fence-1")

    assert scratch.dir == root / "jobs" / "job-1" / "fence-1"
    for folder in (root, root / "jobs", root / "jobs" / "job-1", scratch.dir):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", ".", "..", "a//b", ".hidden", "a\0b", "a\n"])
def test_no_name_leads_out_of_the_own_folder(heir: Scratch, name: str) -> None:
    with pytest.raises(ValueError, match="not a safe relative name"):
        heir.path(name)


@pytest.mark.parametrize(("job", "fence"), [("../x", "f"), ("a/b", "f"), ("", "f"), ("j", ".."), ("j", "a/b")])
def test_a_job_or_fence_that_is_no_plain_name_is_refused(root: Path, job: str, fence: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Scratch(root, job, fence)


def test_a_link_does_not_lead_out_of_the_own_folder(heir: Scratch, tmp_path: Path) -> None:
    (heir.dir / "hls").symlink_to(tmp_path)

    with pytest.raises(ValueError, match="not below"):
        heir.path("hls/segment.ts")


def test_a_folder_that_is_a_link_to_elsewhere_is_refused(heir: Scratch, tmp_path: Path) -> None:
    heir.job_dir.mkdir(parents=True)
    (heir.job_dir / heir.fence).symlink_to(tmp_path)

    with pytest.raises(ValueError, match="leads elsewhere"):
        _ = heir.dir


def test_a_name_may_have_folders(heir: Scratch) -> None:
    place = heir.path("hls/720p/segment-1-work.ts")

    place.write_bytes(b"")
    assert place == heir.dir / "hls" / "720p" / "segment-1-work.ts"


def test_free_bytes_is_what_the_disk_has_left(heir: Scratch) -> None:
    assert 0 < heir.free_bytes() <= os.statvfs(heir.dir).f_blocks * os.statvfs(heir.dir).f_frsize


# -- publish ---------------------------------------------------------------------------------------------------------


def test_a_published_file_is_final_read_only_and_hashed(heir: Scratch) -> None:
    done = made(heir)

    assert done == Finished(heir.dir / NAME, SHA, len(CONTENT))
    assert stat.S_IMODE(done.path.stat().st_mode) == 0o444
    assert [p.name for p in heir.dir.iterdir()] == [NAME]


def test_a_file_that_somebody_still_writes_is_not_published(
    heir: Scratch, stopped_writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_module, "WRITER_PAUSE_S", 0)
    work = heir.path("clip-1-work.mp4")
    stopped_writer(work, "wb")

    with pytest.raises(InternalTransient):
        heir.publish(work, heir.path(NAME))

    assert not heir.path(NAME).exists()


def test_where_the_kernel_cannot_tell_writers_a_file_is_published(
    heir: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_module, "_has_writer", lambda _fd: True)  # as NFS answers, of every file

    assert made(heir).sha256 == SHA
    assert [p.name for p in heir.dir.iterdir()] == [NAME]


def test_a_holder_publishes_only_below_its_own_fence(dead: Scratch, heir: Scratch) -> None:
    work = dead.path("clip-1-work.mp4")
    work.write_bytes(CONTENT)

    with pytest.raises(ValueError, match="not below"):
        heir.publish(work, heir.path(NAME))
    with pytest.raises(ValueError, match="not below"):
        dead.publish(work, heir.path(NAME))

    assert work.read_bytes() == CONTENT


@pytest.mark.parametrize(("work", "final"), [("clip.mp4", NAME), ("clip-work.mp4", "clip.mp4"), (NAME, NAME)])
def test_only_work_becomes_final(heir: Scratch, work: str, final: str) -> None:
    heir.path(work).write_bytes(CONTENT)

    with pytest.raises(ValueError, match="is not a '-"):
        heir.publish(heir.path(work), heir.path(final))


def test_a_holder_that_lost_its_lease_publishes_nothing(heir: Scratch) -> None:
    work = heir.path("clip-1-work.mp4")
    work.write_bytes(CONTENT)

    def stop() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        heir.publish(work, heir.path(NAME), check=stop)

    assert not heir.path(NAME).exists()


def test_a_lease_lost_while_the_last_byte_was_hashed_still_publishes_nothing(heir: Scratch) -> None:
    work = heir.path("clip-1-work.mp4")
    work.write_bytes(b"one chunk")
    answers = iter([None, LeaseLost()])

    def stop_at_second() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    with pytest.raises(LeaseLost):
        heir.publish(work, heir.path(NAME), check=stop_at_second)

    assert not heir.path(NAME).exists()


# -- the heir --------------------------------------------------------------------------------------------------------


def test_an_heir_links_a_dead_ones_finished_unit_and_touches_nothing(dead: Scratch, heir: Scratch) -> None:
    theirs = made(dead)
    before = files_below(dead.dir)

    found = heir.find(NAME, SHA)
    assert found == theirs.path
    ours = heir.adopt(found, SHA, NAME)

    assert ours == Finished(heir.dir / NAME, SHA, len(CONTENT))
    assert ours.path.samefile(theirs.path)
    assert files_below(dead.dir) == before
    assert [p.name for p in heir.dir.iterdir()] == [NAME]


def test_a_unit_whose_hash_is_wrong_is_neither_found_nor_adopted(dead: Scratch, heir: Scratch) -> None:
    theirs = made(dead, CONTENT + b"!")

    assert heir.find(NAME, SHA) is None
    assert heir.adopt(theirs.path, SHA, NAME) is None
    assert heir.reuse(NAME, SHA) is None
    assert list(heir.dir.iterdir()) == []


def test_a_good_unit_is_reused_although_another_dead_one_left_a_bad_one(root: Path) -> None:
    made(Scratch(root, "job-1", "fence-a"), b"bad")
    good = made(Scratch(root, "job-1", "fence-b"))
    heir = Scratch(root, "job-1", "fence-c")

    ours = heir.reuse(NAME, SHA)

    assert ours is not None
    assert ours.path.samefile(good.path)
    assert heir.reuse(NAME, SHA) == ours


def test_find_looks_at_others_only(heir: Scratch) -> None:
    made(heir)

    assert heir.find(NAME, SHA) is None


def test_a_final_file_that_is_not_read_only_was_never_published_and_is_copied(dead: Scratch, heir: Scratch) -> None:
    theirs = dead.path(NAME)
    theirs.write_bytes(CONTENT)

    ours = heir.adopt(theirs, SHA, NAME)

    assert ours is not None
    assert not ours.path.samefile(theirs)
    assert stat.S_IMODE(ours.path.stat().st_mode) == 0o444


def test_units_of_another_job_are_not_found(root: Path, heir: Scratch) -> None:
    other = made(Scratch(root, "job-2", "fence-1"))

    assert heir.find(NAME, SHA) is None
    with pytest.raises(ValueError, match="not of another lease on this job"):
        heir.adopt(other.path, SHA, NAME)


def test_a_unit_that_is_not_final_is_never_adopted(dead: Scratch, heir: Scratch) -> None:
    work = dead.path("clip-1-work.mp4")
    work.write_bytes(CONTENT)

    with pytest.raises(ValueError, match="is not a '-final' file"):
        heir.adopt(work, SHA, NAME)
    with pytest.raises(ValueError, match="is not a '-final' file"):
        heir.find("clip-1-work.mp4", SHA)


def test_a_link_in_a_dead_ones_folder_is_not_followed(dead: Scratch, heir: Scratch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(CONTENT)
    (dead.dir / NAME).symlink_to(tmp_path / "secret")

    assert heir.find(NAME, SHA) is None
    assert heir.adopt(dead.dir / NAME, SHA, NAME) is None


def test_a_unit_that_vanishes_is_none(dead: Scratch, heir: Scratch) -> None:
    theirs = made(dead)
    dead.remove_own()

    assert heir.adopt(theirs.path, SHA, NAME) is None
    assert heir.find(NAME, SHA) is None


def test_across_devices_a_unit_is_copied_read_only(
    dead: Scratch, heir: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = made(dead)

    def other_device(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_device)
    ours = heir.adopt(theirs.path, SHA, NAME)

    assert ours is not None
    assert not ours.path.samefile(theirs.path)
    assert ours.path.read_bytes() == CONTENT
    assert stat.S_IMODE(ours.path.stat().st_mode) == 0o444


def test_a_lost_lease_stops_an_adoption_and_leaves_nothing(dead: Scratch, heir: Scratch) -> None:
    theirs = made(dead)

    def stop() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        heir.adopt(theirs.path, SHA, NAME, check=stop)

    assert list(heir.dir.iterdir()) == []


# -- the ghost -------------------------------------------------------------------------------------------------------


def test_a_stopped_writer_that_wakes_up_changes_no_byte_of_what_its_heir_made(
    dead: Scratch, heir: Scratch, stopped_writer: Writer
) -> None:
    ghost = stopped_writer(dead.path("clip-1-work.mp4"), "wb")
    assert heir.reuse(NAME, SHA) is None
    ours = made(heir)

    wake(ghost)

    assert dead.path("clip-1-work.mp4").read_bytes().startswith(b"GHOST")
    assert ours.path.read_bytes() == CONTENT


@pytest.mark.parametrize("mode_bits", [0o444, 0o644])
def test_a_final_file_that_a_stopped_writer_still_has_open_is_copied_not_linked(
    dead: Scratch, heir: Scratch, stopped_writer: Writer, mode_bits: int
) -> None:
    theirs = dead.path(NAME)
    theirs.write_bytes(CONTENT)
    ghost = stopped_writer(theirs, "r+b")
    theirs.chmod(mode_bits)

    ours = heir.adopt(theirs, SHA, NAME)
    wake(ghost)

    assert ours is not None
    assert theirs.read_bytes().startswith(b"GHOST")
    assert ours.path.read_bytes() == CONTENT


def test_a_finished_unit_outlives_its_maker(dead: Scratch, heir: Scratch) -> None:
    made(dead)
    ours = heir.reuse(NAME, SHA)
    assert ours is not None

    dead.remove_own()

    assert ours.path.read_bytes() == CONTENT


def test_a_ghost_that_makes_its_unit_again_changes_no_byte_of_its_heirs(dead: Scratch, heir: Scratch) -> None:
    made(dead)
    ours = heir.reuse(NAME, SHA)
    assert ours is not None

    made(dead, b"made again")

    assert ours.path.read_bytes() == CONTENT


# -- the end ---------------------------------------------------------------------------------------------------------


def test_a_holder_removes_only_its_own_folder(root: Path, dead: Scratch, heir: Scratch) -> None:
    made(dead)
    made(heir)
    before = files_below(heir.dir)

    dead.remove_own()
    dead.remove_own()

    assert not dead.dir.exists()
    assert files_below(heir.dir) == before


def test_a_final_jobs_scratch_goes_as_a_whole_and_no_other_jobs(root: Path, dead: Scratch, heir: Scratch) -> None:
    other = made(Scratch(root, "job-2", "fence-1"))
    made(dead)
    made(heir)

    remove_job(root, "job-1")

    assert not heir.job_dir.exists()
    assert other.path.exists()


def test_whoever_begins_after_the_end_was_seen_keeps_his_folder(root: Path, dead: Scratch, heir: Scratch) -> None:
    made(dead)
    left = leases_of(root, "job-1")
    kept = made(heir)

    remove_leases(root, "job-1", left)

    assert (dead.dir.exists(), kept.path.exists()) == (False, True)
    remove_leases(root, "job-1", leases_of(root, "job-1"))
    assert (heir.job_dir.exists(), leases_of(root, "job-1")) == (False, [])


def test_a_ghost_does_not_bring_a_removed_folder_back(root: Path, dead: Scratch) -> None:
    made(dead)
    remove_job(root, "job-1")

    for name in ("clip-2-work.mp4", "hls/segment-1-work.ts"):
        with pytest.raises(FileNotFoundError):
            dead.path(name).write_bytes(b"late")

    assert not dead.job_dir.exists()


def test_a_full_disk_is_scratch_full_and_any_other_error_stays() -> None:
    with pytest.raises(ScratchFull), full_disk_is_ours(), Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")
    with pytest.raises(FileNotFoundError), full_disk_is_ours():
        Path("/nowhere/at/all").read_bytes()
