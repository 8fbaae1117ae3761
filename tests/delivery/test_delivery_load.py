"""Which targets do the settings name, and which mistakes are told in one sentence?"""

import hashlib
from pathlib import Path

import pytest

from pipeline.core.errors import SettingInvalid
from pipeline.core.output import File
from pipeline.delivery import Target, folder_of, load, published_key, published_keys
from pipeline.settings import Settings

SHA = hashlib.sha256(b"").hexdigest()


def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, toml: str | bytes | None) -> dict[str, Target]:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "output"))
    if toml is not None:
        (tmp_path / "targets.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
        monkeypatch.setenv("TARGETS_FILE", str(tmp_path / "targets.toml"))
    return load(Settings())


def test_without_a_file_there_is_local_alone_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert list(loaded(monkeypatch, tmp_path, None)) == ["local"]
    assert list(tmp_path.iterdir()) == []


def test_targets_of_the_file_stand_beside_local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toml = '[targets.nas]\nkind = "file"\npath = "/srv/clips"\n[targets.b-2]\nkind = "file"\npath = "/srv/b"\n'

    targets = loaded(monkeypatch, tmp_path, toml)

    assert list(targets) == ["local", "nas", "b-2"]
    assert all(target.name == name for name, target in targets.items())


def test_a_missing_targets_file_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TARGETS_FILE", str(tmp_path / "none.toml"))

    with pytest.raises(SettingInvalid, match=r"none\.toml cannot be read"):
        load(Settings())


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[targets", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        ('[targets.a]\nkind="file"\npath="/a"\n[targets.a]\nkind="file"\npath="/b"', "not valid TOML"),
        ('[target.a]\nkind="file"\npath="/a"', "nothing else"),
        ("targets = 3", "nothing else"),
        ("[targets]\na = 3", "must be a table"),
        ('[targets.local]\nkind="file"\npath="/a"', "another name"),
        ('[targets.""]\nkind="file"\npath="/a"', "cannot name a target"),
        ('[targets."../x"]\nkind="file"\npath="/a"', "cannot name a target"),
        ('[targets."A"]\nkind="file"\npath="/a"', "cannot name a target"),
        ('[targets.a]\nkind="ftp"\npath="/a"', "known kinds: file"),
        ('[targets.a]\npath="/a"', "known kinds: file"),
        ('[targets.a]\nkind=["file"]\npath="/a"', "known kinds: file"),
        ('[targets.a]\nkind="file"', "absolute 'path'"),
        ('[targets.a]\nkind="file"\npath="relative"', "absolute 'path'"),
        ('[targets.a]\nkind="file"\npath=3', "absolute 'path'"),
        ('[targets.a]\nkind="file"\npath="/a"\npaht="/b"', "absolute 'path'"),
        ('[targets.a]\nkind="s3"', "needs 'bucket'"),
        ('[targets.a]\nkind="s3"\nbucket="b"\nsecret="x"', "has no option 'secret'"),
        ('[targets.a]\nkind="s3"\nbucket="b"\nsecret_env="X"', "needs one of 'access_key'"),
        ('[targets.a]\nkind="s3"\nbucket="b"\naccess_key="X"', "needs one of 'access_key'"),
        ('[targets.a]\nkind="s3"\nbucket="b"\naccess_key="a"\nsecret_env="X"\nsecret_file="/x"', "one is enough"),
        ('[targets.a]\nkind="s3"\nbucket="b"\nendpoint="host:9000"', "as 'endpoint'"),
        ('[targets.a]\nkind="s3"\nbucket="b"\nendpoint="https://u:p@host"', "without a login"),
        ('[targets.a]\nkind="s3"\nbucket="b"\nprefix="../x"', "'prefix' of plain names"),
        ('[targets.a]\nkind="s3"\nbucket="b"\npart_mb=1', "from 5 to 5000"),
        ('[targets.a]\nkind="s3"\nbucket="b"\ntimeout_s=true', "from 1 to 600"),
        ('[targets.a]\nkind="s3"\nbucket="b"\npath_style="yes"', "true or false"),
        ('[targets.a]\nkind="sftp"\nhost="h"\nuser="u"\npath="/p"\nkey_file="/k"', "anybody could be the server"),
        ('[targets.a]\nkind="sftp"\nhost="h"\nuser="u"\npath="/p"\nhost_key="aa:bb"\nkey_file="/k"', "like SHA256:"),
        ('[targets.a]\nkind="sftp"\nhost="h"\nuser="u"\npath="/p"\nknown_hosts="/k"', "needs 'key_file'"),
        ('[targets.a]\nkind="sftp"\nuser="u"\npath="/p"\nknown_hosts="/k"\nkey_file="/k"', "needs 'host'"),
        ('[targets.a]\nkind="sftp"\nhost="h"\nuser="u"\npath="/p"\nknown_hosts="k"\nkey_file="/k"', "absolute path"),
    ],
)
def test_a_mistake_in_the_targets_file_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, toml: str | bytes, said: str
) -> None:
    with pytest.raises(SettingInvalid) as caught:
        loaded(monkeypatch, tmp_path, toml)

    assert said in caught.value.message
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message


def test_a_published_key_is_readable_and_carries_the_hash() -> None:
    assert published_key("0190-ab", 2, "Clip 1/720p", SHA, ".mp4") == f"jobs/0190-ab/g2/Clip-1-720p-{SHA[:16]}.mp4"


@pytest.mark.parametrize("name", ["../../etc", "", "...", "é", "a\0b", "x" * 500, "-"])
def test_any_name_makes_a_safe_key(name: str) -> None:
    key = published_key("job", 1, name, SHA, ".m3u8")

    assert ".." not in key
    assert key.isascii()
    assert len(key) < 200
    assert key.endswith(f"-{SHA[:16]}.m3u8")


@pytest.mark.parametrize(
    ("job", "sha256", "suffix"),
    [("../x", SHA, ""), ("", SHA, ""), ("a/b", SHA, ""), ("j", SHA[:63], ""), ("j", SHA.upper(), ""), ("j", SHA, "/x")],
)
def test_a_key_is_not_made_of_an_odd_job_hash_or_suffix(job: str, sha256: str, suffix: str) -> None:
    with pytest.raises(ValueError, match=r"is not|cannot be"):
        published_key(job, 1, "clip", sha256, suffix)


def file_of(path: str, sha256: str = SHA) -> File:
    return File(name="x-final.ts", sha256=sha256, size=1, path=path)


def test_the_folder_of_a_tree_changes_with_every_name_and_content_and_with_nothing_else() -> None:
    tree = [file_of("a.ts"), file_of("b.ts")]
    others = [
        [file_of("a.ts")],
        [file_of("a.ts"), file_of("c.ts")],
        [file_of("a.ts"), file_of("b.ts", "f" * 64)],
        [file_of("a.ts", "f" * 64), file_of("b.ts")],
    ]

    assert folder_of("clip", tree) == folder_of("clip", tree[::-1])
    assert len({folder_of("clip", each) for each in [tree, *others]}) == 5


def test_a_file_without_a_path_stands_beside_the_tree() -> None:
    alone, inside = file_of(""), file_of("low/a.ts")

    keys = published_keys("job", 2, "clip", [alone, inside])

    assert keys[0] == published_key("job", 2, "clip", SHA, ".ts")
    assert keys[1] == f"jobs/job/g2/{folder_of('clip', [inside])}/low/a.ts"


@pytest.mark.parametrize("path", ["../a.ts", "/a.ts", "a//b", ".a", "a/.."])
def test_a_path_that_could_leave_its_tree_makes_no_key(path: str) -> None:
    with pytest.raises(ValueError, match="not a safe"):
        published_keys("job", 1, "clip", [file_of(path)])
