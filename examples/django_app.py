"""python examples/django_app.py runserver --noreload"""

import json
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import JsonResponse
from django.urls import path

from pipeline import AsyncResult, submit
from pipeline.core.errors import BadRequest

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])


def ask(request):
    try:
        job = submit.apply_async(kwargs=json.loads(request.body))
    except BadRequest as error:
        return JsonResponse({"code": error.reason, "message": error.message}, status=400)
    return JsonResponse({"job": job.id}, status=202)


def look(_request, job):
    seen = AsyncResult(job)
    state, told = seen.state, seen.result
    return JsonResponse({"state": state, "told": told if isinstance(told, dict) else str(told)})


urlpatterns = [path("clips", ask), path("clips/<job>", look)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
