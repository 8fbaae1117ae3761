from __future__ import annotations

from tests.cluster.fixtures import *  # noqa: F403 - fixtures are found by their names here
from tests.cluster.fixtures import _warm  # noqa: F401
