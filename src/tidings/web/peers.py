"""The administrator's page about the exchange: who our neighbours are, what they give and get, and what they read."""

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.web.reader import sidebar
from tidings.web.visit import Site, Visit, page

#: Feeds that are suggested, and former neighbours that are named.
MOST_SUGGESTED, MOST_PAST = 10, 20


def routes(site: Site) -> list[BaseRoute]:
    async def peers(visit: Visit) -> Response:
        here = site.neighbourhood
        known = here.peers() if here is not None else []
        return await visit.render(
            "peers.html",
            sidebar=await sidebar(visit),
            here=here,
            present=[peer for peer in known if peer.present],
            past=[peer for peer in known if not peer.present][:MOST_PAST],
            suggested=here.node.interests.suggestions(MOST_SUGGESTED) if here is not None else [],
        )

    return [page(site, "/peers", peers, admin=True)]
