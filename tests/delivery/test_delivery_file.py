"""What only a folder can get wrong: links, odd files, read-only disks, roots that are missing mounts."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.errors import (
    TargetDiskFull,
    TargetDown,
    TargetNotFound,
    TargetPermissionDenied,
    TargetRefused,
    UploadFailed,
)
from pipeline.delivery import deliver
from pipeline.delivery.file import FileTarget
from pipeline.delivery.target import translated
from tests.delivery.places import Sample
from tests.needs import mounted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def test_a_linked_folder_does_not_lead_out_of_the_root(root: Path, tmp_path: Path, sample: Sample) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "jobs").symlink_to(outside)
    target = FileTarget("there", root)

    with pytest.raises(TargetRefused):
        target.put(sample.path, sample.key, sample.sha256)
    with pytest.raises(TargetRefused):
        target.head(sample.key)
    with pytest.raises(TargetRefused):
        target.delete(sample.key)

    assert list(outside.iterdir()) == []


def test_a_linked_object_is_neither_read_nor_written_through(root: Path, tmp_path: Path, sample: Sample) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(sample.content)
    (root / sample.key).parent.mkdir(parents=True)
    (root / sample.key).symlink_to(secret)
    target = FileTarget("there", root)

    with pytest.raises(TargetRefused):
        target.head(sample.key)
    target.put(sample.path, sample.key, sample.sha256)
    target.delete(sample.key)

    assert secret.read_bytes() == sample.content
    assert secret.stat().st_nlink == 1


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path, sample: Sample) -> None:
    (tmp_path / "link").symlink_to(root)

    FileTarget("there", tmp_path / "link").put(sample.path, sample.key, sample.sha256)

    assert (root / sample.key).read_bytes() == sample.content


def test_bytes_that_the_disk_changed_are_found_when_read_back(root: Path, sample: Sample) -> None:
    def damage(done: int, total: int) -> None:
        if done == total // 2:  # all is written, nothing is read back
            (part,) = root.rglob(".part-*")
            with part.open("r+b") as file:
                file.write(b"damaged")

    with pytest.raises(UploadFailed):
        FileTarget("there", root).put(sample.path, sample.key, sample.sha256, on_progress=damage)

    assert [p for p in root.rglob("*") if p.is_file()] == []


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_put_returns(
    root: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(fd: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def noted_rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        order.append("name")
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    FileTarget("there", root).put(sample.path, sample.key, sample.sha256)

    assert order == ["folder", "folder", "folder", "file", "name", "folder"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_something_that_is_no_file_under_the_key_is_refused_and_does_not_hang(
    root: Path, sample: Sample, make: Callable[[Path], None]
) -> None:
    (root / sample.key).parent.mkdir(parents=True)
    make(root / sample.key)

    with pytest.raises(TargetRefused):
        deliver(FileTarget("there", root), sample.path, sample.key, sample.sha256)


def test_a_file_in_place_of_a_folder_is_refused(root: Path, sample: Sample) -> None:
    (root / "jobs").write_text("in the way")

    with pytest.raises(TargetRefused):
        FileTarget("there", root).put(sample.path, sample.key, sample.sha256)


def test_a_read_only_disk_is_permission_denied(root: Path, sample: Sample) -> None:
    with mounted(root, "size=1m,ro"), pytest.raises(TargetPermissionDenied):
        FileTarget("there", root).put(sample.path, sample.key, sample.sha256)


def test_only_the_root_that_is_ours_is_created(tmp_path: Path, sample: Sample) -> None:
    ours, mount = tmp_path / "a" / "output", tmp_path / "mnt"

    deliver(FileTarget("local", ours, create_root=True), sample.path, sample.key, sample.sha256)
    with pytest.raises(TargetNotFound):
        deliver(FileTarget("nas", mount), sample.path, sample.key, sample.sha256)

    assert (ours / sample.key).read_bytes() == sample.content
    assert not mount.exists()


@pytest.mark.parametrize("create_root", [True, False])
def test_a_root_that_is_a_file_is_not_found(tmp_path: Path, sample: Sample, create_root: bool) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(TargetNotFound):
        FileTarget("nas", tmp_path / "file", create_root=create_root).head(sample.key)


def test_the_url_of_a_file_is_one_that_a_browser_opens(root: Path, sample: Sample) -> None:
    assert FileTarget("there", root).url(sample.key) == f"file://{root}/{sample.key}"


@pytest.mark.parametrize(
    ("number", "kind", "service"),
    [
        (errno.EACCES, TargetPermissionDenied, None),
        (errno.EPERM, TargetPermissionDenied, None),
        (errno.EROFS, TargetPermissionDenied, None),
        (errno.ENOSPC, TargetDiskFull, None),
        (errno.EDQUOT, TargetDiskFull, None),
        (errno.ESTALE, TargetDown, "target:nas"),
        (errno.EIO, TargetDown, "target:nas"),
        (errno.ETIMEDOUT, TargetDown, "target:nas"),
        (errno.ENOTCONN, TargetDown, "target:nas"),
        (errno.EMFILE, UploadFailed, None),
        (None, UploadFailed, None),
    ],
)
def test_a_system_error_says_whether_the_target_is_down_or_refuses(
    number: int | None, kind: type[Exception], service: str | None
) -> None:
    error = translated("nas", "clip.mp4", OSError(number, "why") if number else OSError("why"))

    assert type(error) is kind
    assert error.service == service
