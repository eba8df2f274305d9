"""List server, from which a new node learns the addresses of other nodes (FeedEx sect. 3.1).

It returns nodes that have called recently. It knows only addresses, not which feeds the nodes read.
"""

import random
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidings.exchange import messages, xmlrpc
from tidings.exchange.client import RPC_PATH
from tidings.exchange.peers import address_of
from tidings.exchange.protocol import Nid
from tidings.exchange.transport import FAULT_MALFORMED, read_body

#: Time in seconds for which a node stays listed after its last call.
LISTING_TTL_S = 86400.0
MAX_NODES = 5000
MAX_PER_ADDRESS = 3
MAX_LISTED = 30
#: Maximum size of a call in bytes. It is small because the only function has no argument besides
#: the port.
MAX_MESSAGE_BYTES = 2000


class ListServer:
    """List of the nodes that have called within the last day."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        max_per_address: int = MAX_PER_ADDRESS,
        seed: int | None = None,
    ) -> None:
        self._clock, self._max_per_address = clock, max_per_address
        self._nodes: dict[Nid, float] = {}  # time of the last call of each node, oldest first
        self._random = random.Random(seed)

    def get_neighbors(self, sender: Nid) -> list[Nid]:
        """Return a random sample of the other nodes, and add the sender to the list.

        The sender is not added if its address already has ``max_per_address`` nodes.
        """
        now = self._clock()
        self._nodes = {
            nid: at for nid, at in self._nodes.items() if now - at < LISTING_TTL_S and nid != sender
        }
        sample = self._random.sample(list(self._nodes), min(len(self._nodes), MAX_LISTED))
        if (
            sum(address_of(nid) == address_of(sender) for nid in self._nodes)
            < self._max_per_address
        ):
            self._nodes[sender] = now
        while len(self._nodes) > MAX_NODES:
            del self._nodes[next(iter(self._nodes))]
        return sample

    def app(self) -> Starlette:
        """Return the ASGI application that serves the XML-RPC endpoint."""
        return Starlette(routes=[Route(RPC_PATH, self._serve, methods=["POST"])])

    async def _serve(self, request: Request) -> Response:
        try:
            body = await read_body(request, MAX_MESSAGE_BYTES)
            if body is None:
                return Response(status_code=413)
            function, parameters = xmlrpc.read_call(body)
            if function != "get_neighbors" or len(parameters) != 1:
                raise xmlrpc.InvalidXmlRpc("a list server has only get_neighbors(port)")
            sender = messages.nid_of(request.client.host if request.client else "", parameters[0])
        except TimeoutError:
            return Response(status_code=408)
        except xmlrpc.InvalidXmlRpc as error:
            return Response(
                xmlrpc.write_fault(FAULT_MALFORMED, str(error)), media_type=xmlrpc.CONTENT_TYPE
            )
        return Response(
            xmlrpc.write_response(self.get_neighbors(sender)), media_type=xmlrpc.CONTENT_TYPE
        )
