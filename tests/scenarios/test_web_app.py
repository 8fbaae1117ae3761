"""Can a web app that has its own `tasks`, `celeryconfig` and broker hand in jobs, and is nothing mixed up?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from pipeline import AsyncResult, enqueue
from pipeline.core.errors import NoSuchJob
from tests.cluster.system import ROOT, System

TASKS = """
from celery import Celery
app = Celery("shop")
app.config_from_object("celeryconfig")

@app.task(name="shop.greet")
def greet():
    return "hello"
"""

CELERYCONFIG = """
broker_url = "memory://"
result_backend = "cache+memory://"
task_default_queue = "shop"
task_always_eager = False
"""

SHOP = """
import json, sys
from tasks import app, greet
from pipeline import submit

asked = submit.apply_async(kwargs=json.loads(sys.argv[1]))
greet.delay()
print(json.dumps({
    "job": asked.id,
    "outcome": asked.get(timeout=20)["outcome"],
    "their broker": app.conf.broker_url,
    "waiting at theirs": app.connection_for_read().channel()._size("shop"),
    "their tasks": sorted(name for name in app.tasks if not name.startswith("celery.")),
    "current app": greet.app.main,
    "their modules": [sys.modules[name].__file__ for name in ("tasks", "celeryconfig")],
}))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in {"tasks.py": TASKS, "celeryconfig.py": CELERYCONFIG, "shop.py": SHOP}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "theirs",
    [{}, {"CELERY_BROKER_URL": "memory://", "CELERY_RESULT_BACKEND": "cache+memory://"}],
    ids=["settings in a file", "settings in the environment"],
)
def test_a_web_app_with_tasks_and_celeryconfig_of_its_own_hands_in_a_job(
    warm: System, sample: Path, shop: Path, theirs: dict[str, str]
) -> None:
    request = {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}

    ran = subprocess.run(
        [sys.executable, "shop.py", json.dumps(request)],
        cwd=shop,
        env={**os.environ, **theirs, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["outcome"] == "full"
    assert warm.finished(told["job"])["outcome"] == "full"
    assert told["their broker"] == "memory://"
    assert told["waiting at theirs"] == 1
    assert told["their tasks"] == ["shop.greet"]
    assert told["current app"] == "shop"
    assert told["their modules"] == [str(shop / "tasks.py"), str(shop / "celeryconfig.py")]
    assert len(warm.events(told["job"], "queued")) == 1


def test_a_job_lives_or_dies_with_the_callers_transaction(warm: System, sample: Path) -> None:
    request = {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}
    with Session(warm.db.engine) as session:
        dropped = enqueue(request, session=session)
        session.rollback()

    with Session(warm.db.engine) as session:
        kept = enqueue(request, session=session)
        with pytest.raises(NoSuchJob):  # nobody else sees it yet
            warm.job(kept.id)
        session.commit()

    assert AsyncResult(str(kept.id)).get(timeout=60)["outcome"] == "full"
    with pytest.raises(NoSuchJob):
        warm.job(dropped.id)


def test_a_job_committed_through_a_bare_connection_is_published_by_sweep(warm: System, sample: Path) -> None:
    request = {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}

    with warm.db.engine.begin() as connection:
        job = enqueue(request, session=connection)

    assert warm.finished(job.id)["outcome"] == "full"
