"""Page for administrators about exchange peers, their contributions and suggested feeds."""

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.web.reader import sidebar
from tidings.web.request_context import AppServices, RequestContext, page

#: Maximum number of suggested feeds, and of former peers, in the lists.
MAX_SUGGESTIONS, MAX_FORMER_PEERS = 10, 20


def routes(services: AppServices) -> list[BaseRoute]:
    async def peers(context: RequestContext) -> Response:
        exchange = services.peer_exchange
        known = exchange.peers() if exchange is not None else []
        return await context.render(
            "peers.html",
            sidebar=await sidebar(context),
            exchange=exchange,
            present=[peer for peer in known if peer.present],
            past=[peer for peer in known if not peer.present][:MAX_FORMER_PEERS],
            suggested=exchange.node.interests.suggestions(MAX_SUGGESTIONS) if exchange else [],
        )

    return [page(services, "/peers", peers, admin=True)]
