"""Which queue serves which stage? Here, because an app that only enqueues must know it too."""

from __future__ import annotations

from pipeline.core.job import Stage

IO = "io"
MEDIA = "media"
GPU = "gpu"  # only workers that ask for it by -Q serve it
CONTROL = "control"
DEFAULT = "celery"  # where an app that knows nothing of us sends `pipeline.submit`

QUEUE_OF: dict[Stage, str] = {
    Stage.RESOLVE: IO,
    Stage.CLIP: MEDIA,
    Stage.UPLOAD: IO,
    Stage.ASR: MEDIA,
    Stage.FINALIZE: IO,
}
ON_GPU = frozenset({Stage.CLIP, Stage.ASR})  # go there while somebody there has nothing to do
WORK = frozenset(QUEUE_OF.values()) | {GPU}  # where stages come from
QUEUES = (CONTROL, IO, MEDIA, DEFAULT)

SUBMIT = "pipeline.submit"
TRANSCRIBE = "pipeline.transcribe"  # a transcription that belongs to no job
SWEEP = "pipeline.sweep"
CANARY = "pipeline.canary"  # goes to the queue of one worker
MARKER = "pipeline.marker"  # goes to the queue that it speaks about


def task_of(stage: Stage) -> str:
    """The name of the Celery task that runs a stage."""
    return f"pipeline.{stage}"
