"""The dashboard's files: asked about each time, so that a page and its scripts are always of one version."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

DASHBOARD = Path(__file__).parent / "dashboard"


class Pages(StaticFiles):
    """What stands in `dashboard/`, with `index.html` at its top."""

    def __init__(self) -> None:
        super().__init__(directory=DASHBOARD, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
