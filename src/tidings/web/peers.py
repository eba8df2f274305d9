"""The administrator's page about the exchange: who our neighbours are, what they give and get, and what they read."""

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.web.reader import sidebar
from tidings.web.request_context import RequestContext, Site, page

#: Feeds that are suggested, and former neighbours that are named.
MAX_SUGGESTIONS, MAX_FORMER_PEERS = 10, 20


def routes(site: Site) -> list[BaseRoute]:
    async def peers(context: RequestContext) -> Response:
        here = site.peer_exchange
        known = here.peers() if here is not None else []
        return await context.render(
            "peers.html",
            sidebar=await sidebar(context),
            here=here,
            present=[peer for peer in known if peer.present],
            past=[peer for peer in known if not peer.present][:MAX_FORMER_PEERS],
            suggested=here.node.interests.suggestions(MAX_SUGGESTIONS) if here is not None else [],
        )

    return [page(site, "/peers", peers, admin=True)]
