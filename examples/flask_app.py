"""flask --app examples/flask_app run"""

from flask import Flask, request

from pipeline import AsyncResult, submit
from pipeline.core.errors import BadRequest

app = Flask(__name__)


@app.post("/clips")
def ask():
    job = submit.apply_async(kwargs=request.get_json())
    return {"job": job.id}, 202


@app.get("/clips/<job>")
def look(job):
    seen = AsyncResult(job)
    return {"state": seen.state, "told": seen.result if isinstance(seen.result, dict) else str(seen.result)}


@app.errorhandler(BadRequest)
def refuse(error):
    return {"code": error.reason, "message": error.message}, 400
