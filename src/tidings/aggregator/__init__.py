"""The living loop: importer, reader, monitor and the policy that says when to look next (Han et al., Fig. 13).

`Aggregator` begins what is due, `polls` are under way until they are recorded, `Brain` decides what is next and `planner` tells
the policy of feeds. Beside them: `importer` brings feeds in, `monitor` and `dating` judge documents, `repair` looks for lost
posts, `push` listens to hubs, `explain` says what is known and why.
"""

from tidings.aggregator.aggregator import Aggregator, PollTotals
from tidings.aggregator.poll_tasks import SkippedPoll
from tidings.aggregator.scheduler import Scheduler

__all__ = ["Aggregator", "PollTotals", "Scheduler", "SkippedPoll"]
