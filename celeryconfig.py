"""How is Celery set? Each line says why."""

from datetime import timedelta

from kombu import Exchange, Queue

from beat_schedule import SCHEDULE
from pipeline import settings
from pipeline.core.routing import QUEUES
from pipeline.dispatch import wire

_now = settings.current()
_now.need("database_url", "broker_url")
globals().update(wire())  # broker, serializer and transport: what producers and workers must agree on

# An exchange each: bound to a common one, every queue would get a copy of every message.
task_queues = [Queue(name, Exchange(name), routing_key=name) for name in QUEUES]  # a plain worker serves these
task_create_missing_queues = True  # for -Q gpu

task_acks_late = True  # a crash means redelivery
task_reject_on_worker_lost = True  # within seconds; the row keeps it from running twice
task_acks_on_failure_or_timeout = True  # the row decides about retries
worker_prefetch_multiplier = 1  # holds exactly as many messages as it has slots
worker_cancel_long_running_tasks_on_connection_loss = False  # True killed a good run on a blip
worker_soft_shutdown_timeout = _now.shutdown_grace_sec  # needs REMAP_SIGTERM=SIGQUIT in the environment
worker_concurrency = _now.max_concurrency
broker_connection_retry_on_startup = True  # workers may start before the broker
broker_connection_max_retries = None  # for ever; 0 is not
worker_max_tasks_per_child = 200  # a leak in a codec ends with its child
worker_max_memory_per_child = 2_000_000  # KiB; looked at between tasks
worker_hijack_root_logger = False  # our JSON lines stay JSON
worker_redirect_stdouts = False

worker_send_task_events = True  # Flower
task_track_started = True  # Flower

beat_schedule = SCHEDULE
beat_max_loop_interval = 5  # looks at least that often
timezone = "UTC"
task_default_expires = None
result_expires = timedelta(days=1)
