"""The living loop: importer, reader, monitor and the policy that says when to look next (Han et al., Fig. 13).

`Aggregator` polls what is due and records it; `Brain` holds the policy. Beside them: `importer` brings feeds in, `monitor` and
`dating` judge documents, `repair` looks for lost posts, `push` listens to hubs, `explain` says what is known and why.
"""

from tidings.aggregator.aggregator import Aggregator, Polled
from tidings.aggregator.brain import Brain
from tidings.aggregator.polls import Skipped

__all__ = ["Aggregator", "Brain", "Polled", "Skipped"]
