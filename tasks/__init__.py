"""The Celery application: `celery -A tasks worker`, `beat` and `flower` start here."""

from __future__ import annotations

import sys

from pipeline import dispatch, settings
from pipeline.core.errors import SettingInvalid

try:
    settings.current().need("database_url", "broker_url")
except SettingInvalid as exc:
    sys.exit(f"ironclip: {exc}")

app = dispatch.App("ironclip", include=["tasks.stages", "tasks.upkeep", "tasks.submit"])
app.config_from_object("celeryconfig")

from tasks import worker  # noqa: E402 - the app must exist first

worker.install(app)
