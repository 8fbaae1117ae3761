"""What every kind of target promises. Add a kind in conftest.PLACES, never a promise for one kind only."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.core.errors import (
    LeaseLost,
    ScratchLost,
    TargetDiskFull,
    TargetNotFound,
    TargetPermissionDenied,
    TargetRefused,
)
from pipeline.core.output import File
from pipeline.delivery import Stored, Target, deliver, folder_of, published_key, published_keys
from tests.delivery.places import Folder, Place, Putter, Remote, Sample, sample_of

BAD_KEYS = [
    "",
    "/etc/x",
    "..",
    "a/../b",
    "../a",
    "a//b",
    "a/",
    "./a",
    "a/.part-1",
    ".a",
    "a\\b",
    "a\0b",
    "a\n",
    "a/b c",
    "~",
]


def test_what_was_put_lies_under_its_key_byte_for_byte(target: Target, place: Place, sample: Sample) -> None:
    stored = target.put(sample.path, sample.key, sample.sha256)

    assert stored == Stored(len(sample.content), sample.sha256) == target.head(sample.key)
    assert place.read(sample.key) == sample.content
    assert place.everything() == [sample.key]


def test_an_empty_file_can_be_put(target: Target, place: Place, tmp_path: Path) -> None:
    empty = sample_of(tmp_path / "empty-final.vtt", b"")

    assert target.put(empty.path, empty.key, empty.sha256).size == 0
    assert place.read(empty.key) == b""


def test_head_of_nothing_is_none(target: Target, sample: Sample) -> None:
    assert target.head(sample.key) is None


def test_head_tells_what_really_lies_there(target: Target, place: Place, sample: Sample) -> None:
    place.plant(sample.key, b"damaged")

    stored = target.head(sample.key)

    assert stored is not None
    assert stored.size == 7
    assert stored.sha256 != sample.sha256


def test_deliver_copies_once_and_then_only_looks(target: Target, place: Place, sample: Sample) -> None:
    first = deliver(target, sample.path, sample.key, sample.sha256)
    sample.path.unlink()
    second = deliver(target, sample.path, sample.key, sample.sha256)

    assert (first.skipped, second.skipped) == (False, True)
    assert (second.key, second.url, second.size, second.sha256) == (first.key, first.url, first.size, first.sha256)
    assert place.read(sample.key) == sample.content


def test_a_damaged_object_is_replaced_by_the_right_one(target: Target, place: Place, sample: Sample) -> None:
    place.plant(sample.key, sample.content[:-1] + bytes([sample.content[-1] ^ 1]))

    delivered = deliver(target, sample.path, sample.key, sample.sha256)

    assert not delivered.skipped
    assert place.read(sample.key) == sample.content
    assert place.everything() == [sample.key]


def test_a_key_takes_no_content_but_its_own(target: Target, place: Place, sample: Sample, tmp_path: Path) -> None:
    target.put(sample.path, sample.key, sample.sha256)
    other = sample_of(tmp_path / "other-final.mp4", b"other content")

    with pytest.raises(TargetRefused):
        target.put(other.path, sample.key, other.sha256)

    assert place.read(sample.key) == sample.content


def test_a_key_without_a_hash_is_refused(target: Target, place: Place, sample: Sample) -> None:
    with pytest.raises(TargetRefused):
        target.put(sample.path, "jobs/job-1/clip.mp4", sample.sha256)

    assert place.everything() == []


def test_a_file_that_changed_since_it_was_made_is_not_published(target: Target, place: Place, sample: Sample) -> None:
    sample.path.write_bytes(b"something else")

    with pytest.raises(ScratchLost):
        target.put(sample.path, sample.key, sample.sha256)

    assert place.everything() == []


def test_a_source_that_cannot_be_read_is_not_the_targets_fault(target: Target, place: Place, sample: Sample) -> None:
    sample.path.unlink()

    for unreadable in (sample.path, sample.path.parent):
        with pytest.raises(ScratchLost):
            target.put(unreadable, sample.key, sample.sha256)

    assert place.everything() == []


@pytest.mark.parametrize("at_call", [1, 3, None], ids=["first chunk", "in the middle", "just before the name"])
def test_a_put_that_is_stopped_leaves_nothing(
    target: Target, place: Place, sample: Sample, at_call: int | None
) -> None:
    for error in (LeaseLost(), KeyboardInterrupt(), ConnectionResetError("of the database")):
        stop = Stop(error, at_call)

        with pytest.raises(type(error)) as caught:
            target.put(sample.path, sample.key, sample.sha256, check=stop.check, on_progress=stop.told)

        assert caught.value is error
        assert place.everything() == []


class Stop:
    """Raises at a call of check, or at the first one after the last byte."""

    def __init__(self, error: BaseException, at_call: int | None) -> None:
        self._error, self._at_call = error, at_call
        self._calls, self._all_sent = 0, False

    def told(self, done: int, total: int) -> None:
        self._all_sent = done == total

    def check(self) -> None:
        self._calls += 1
        if self._calls == self._at_call or (self._at_call is None and self._all_sent):
            raise self._error


def test_a_lease_lost_after_the_last_byte_still_publishes_nothing(target: Target, place: Place, sample: Sample) -> None:
    lost = False

    def last_byte(done: int, total: int) -> None:
        nonlocal lost
        lost = done == total

    def check() -> None:
        if lost:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        target.put(sample.path, sample.key, sample.sha256, check=check, on_progress=last_byte)

    assert place.everything() == []


def test_a_look_can_be_stopped(target: Target, sample: Sample) -> None:
    target.put(sample.path, sample.key, sample.sha256)

    def stop() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        deliver(target, sample.path, sample.key, sample.sha256, check=stop)


def test_progress_rises_to_its_total_also_over_a_damaged_object(target: Target, place: Place, sample: Sample) -> None:
    place.plant(sample.key, b"x" * 2_000_000)
    seen: list[tuple[int, int]] = []

    deliver(target, sample.path, sample.key, sample.sha256, on_progress=lambda done, total: seen.append((done, total)))

    done = [d for d, _ in seen]
    assert done == sorted(set(done))
    assert len(done) > 4
    assert seen[-1][0] == seen[-1][1] >= len(sample.content)


def test_delete_removes_one_object_and_may_be_repeated(target: Target, place: Place, tmp_path: Path) -> None:
    one = sample_of(tmp_path / "one-final.mp4", b"one")
    two = sample_of(tmp_path / "two-final.mp4", b"two")
    for each in (one, two):
        target.put(each.path, each.key, each.sha256)

    target.delete(one.key)
    target.delete(one.key)
    target.delete("jobs/never/was-0123456789abcdef.mp4")

    assert place.everything() == [two.key]


def test_a_key_that_could_leave_the_root_is_refused(target: Target, sample: Sample) -> None:
    for key in BAD_KEYS:
        hashed = f"{key}-{sample.sha256[:16]}" if key.startswith(("/", "..", "a/..")) else key
        with pytest.raises(TargetRefused):
            target.put(sample.path, hashed, sample.sha256)
        for ask in (target.head, target.url, target.delete):
            with pytest.raises(TargetRefused):
                ask(key)


def test_a_target_that_is_not_there_is_not_found(target: Target, place: Place, sample: Sample) -> None:
    with place.gone():
        with pytest.raises(TargetNotFound):
            target.put(sample.path, sample.key, sample.sha256)
        with pytest.raises(TargetNotFound):
            target.head(sample.key)


def test_a_target_that_we_may_not_write_to_is_permission_denied(target: Target, place: Place, sample: Sample) -> None:
    with place.forbidden(), pytest.raises(TargetPermissionDenied):
        target.put(sample.path, sample.key, sample.sha256)

    assert place.everything() == []


def test_a_full_target_is_disk_full_and_keeps_nothing(target: Target, place: Place, sample: Sample) -> None:
    with place.full(), pytest.raises(TargetDiskFull):
        target.put(sample.path, sample.key, sample.sha256)


@pytest.mark.parametrize("at_call", [2, 7], ids=["while copying", "while reading back"])
def test_a_killed_put_leaves_no_object_and_the_next_one_succeeds(
    target: Target, place: Place, sample: Sample, putter: Putter, at_call: int
) -> None:
    victim = putter(sample, wait_at=str(at_call))
    victim.send_signal(signal.SIGKILL)
    victim.wait()

    assert target.head(sample.key) is None
    assert place.read(sample.key) is None
    assert not deliver(target, sample.path, sample.key, sample.sha256).skipped
    assert place.read(sample.key) == sample.content


def test_processes_that_put_one_key_at_once_agree(place: Place, sample: Sample, putter: Putter) -> None:
    count = 8 if isinstance(place, Folder) and not isinstance(place, Remote) else 3  # the others are slow to start
    putters = [putter(sample, wait_at="0") for _ in range(count)]

    for process in putters:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0].strip() for process in putters]

    assert answers == [sample.sha256] * count
    assert place.read(sample.key) == sample.content
    assert place.everything() == [sample.key]


@pytest.mark.parametrize(("then", "answer"), [("lease lost", "lease lost"), ("go on", None)])
def test_a_stopped_ghost_that_wakes_up_changes_no_byte_of_what_its_heir_published(
    target: Target, place: Place, sample: Sample, putter: Putter, then: str, answer: str | None
) -> None:
    ghost = putter(sample, wait_at="3", then=then)
    ghost.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, ghost.pid, os.WSTOPPED | os.WNOWAIT)
    deliver(target, sample.path, sample.key, sample.sha256)

    ghost.send_signal(signal.SIGCONT)
    said = ghost.communicate("go\n")[0].strip()

    assert said == (answer or sample.sha256)
    assert place.read(sample.key) == sample.content
    assert place.everything() == [sample.key]


def test_a_ghost_that_made_other_bytes_publishes_beside_its_heir(
    target: Target, place: Place, sample: Sample, putter: Putter, tmp_path: Path
) -> None:
    ghosts = sample_of(tmp_path / "ghost" / "clip-final.mp4", os.urandom(3_000_000))
    ghost = putter(ghosts, wait_at="2")
    deliver(target, sample.path, sample.key, sample.sha256)

    ghost.communicate("go\n")

    assert place.read(sample.key) == sample.content
    assert place.everything() == sorted([sample.key, ghosts.key])


def test_keys_of_generations_and_contents_never_meet() -> None:
    keys = {published_key("j", gen, "clip", sha * 64, ".mp4") for gen in (1, 2) for sha in "ab"}

    assert len(keys) == 4


# -- files that name each other --------------------------------------------------------------------------------------


def test_files_of_a_tree_keep_their_names_for_each_other(target: Target, place: Place, tmp_path: Path) -> None:
    made = {name: sample_of(tmp_path / f"{n}-final.ts", name.encode()) for n, name in enumerate(["a.ts", "low/b.ts"])}
    files = [File(name=s.path.name, sha256=s.sha256, size=len(s.content), path=path) for path, s in made.items()]
    keys = published_keys("job-1", 1, "clip-hls", files)

    for key, sample in zip(keys, made.values(), strict=True):
        deliver(target, sample.path, key, sample.sha256)
        assert deliver(target, sample.path, key, sample.sha256).skipped

    folder = f"jobs/job-1/g1/{folder_of('clip-hls', files)}"
    assert place.everything() == keys == [f"{folder}/a.ts", f"{folder}/low/b.ts"]
    assert place.read(keys[1]) == b"low/b.ts"


# -- what nobody needs -----------------------------------------------------------------------------------------------


def test_tidy_removes_what_a_killed_put_has_left(target: Target, place: Place, sample: Sample, putter: Putter) -> None:
    victim = putter(sample, wait_at="8")
    victim.send_signal(signal.SIGKILL)
    victim.wait()

    target.tidy("jobs", set(), timedelta(0))

    assert place.everything() == []
    assert getattr(place, "uploads", list)() == []
