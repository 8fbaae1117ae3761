"""Which targets do the settings name, and which mistakes are told in one sentence?"""

import hashlib
from pathlib import Path

import pytest

from pipeline.core.errors import SettingInvalid
from pipeline.delivery import Target, load, published_key
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
