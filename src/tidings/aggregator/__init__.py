"""Aggregator of tidings, which polls feeds and stores their new entries.

The architecture is that of Han et al., Fig. 13. `aggregator` starts due polls, `poll_tasks` runs
them, `poller` fetches and parses, `document_diff` and `entry_dates` find and date new entries,
`result_writer` stores results in batches, `scheduler` and `planner` decide the next poll.
`importer` adds feeds, `gap_repair` recovers missed posts, `websub` receives pushes,
`peer_exchange` connects to peers, and `explain` gives the reasons of decisions.
"""

from tidings.aggregator.aggregator import Aggregator, PollTotals
from tidings.aggregator.poll_tasks import SkippedPoll
from tidings.aggregator.scheduler import Scheduler

__all__ = ["Aggregator", "PollTotals", "Scheduler", "SkippedPoll"]
