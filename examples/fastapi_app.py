"""uvicorn --app-dir examples fastapi_app:app"""

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from pipeline import AsyncResult, submit
from pipeline.core.errors import BadRequest

app = FastAPI()


@app.post("/clips", status_code=202)
def ask(request: dict[str, Any]):
    return {"job": submit.apply_async(kwargs=request).id}


@app.get("/clips/{job}")
def look(job: str):
    seen = AsyncResult(job)
    return {"state": seen.state, "told": seen.result if isinstance(seen.result, dict) else str(seen.result)}


@app.exception_handler(BadRequest)
def refuse(_request, error):
    return JSONResponse({"code": error.reason, "message": error.message}, 400)
