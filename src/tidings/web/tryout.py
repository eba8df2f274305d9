"""The demo world at the press of a button: a process of its own on this machine, which ends when the service does."""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.people import Forbidden
from tidings.texts import _
from tidings.web.processes import end
from tidings.web.visit import Site, Visit, page, peer

COMMAND = ("-m", "tidings", "demo", "--port", "0", "--until-closed")
#: How long a world may take to end.
PATIENCE_S = 10.0
#: How a process says where its screen is.
PLACE = re.compile(rb"http://\S+/demo")


class Tryout:
    """At most one demo. It reads from us, and ends when there is nobody to read from, however we end."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self.place = ""  #: of its screen, when there is one

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        if not self.running:
            self.place = ""
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
            self._listening = asyncio.create_task(self._listen(self._process))

    def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if found := PLACE.search(line):
                    self.place = found[0].decode()
        finally:
            self.stop()
            await end(process, PATIENCE_S)


def routes(site: Site) -> list[BaseRoute]:
    demo = Tryout()

    async def check(visit: Visit) -> None:
        """Who may: an administrator, or anybody before there is one, who sits at this machine: the demo is nowhere else."""
        allowed = visit.somebody.admin if visit.somebody is not None else await site.people.is_new()
        if not allowed:
            raise Forbidden(_("only an administrator may start the demo world"))
        if not is_near(visit):
            raise Forbidden(_("the demo world is seen on the machine that it runs on: run `tidings demo` on yours"))

    async def show(visit: Visit) -> Response:
        await check(visit)
        return await visit.render("tryout.html", place=demo.place if demo.running else "", running=demo.running)

    async def change(visit: Visit) -> Response:
        await check(visit)
        if visit.form.get("do") == "stop":
            demo.stop()
            if visit.somebody is not None:
                visit.note(_("The demo world has ended."))
            return visit.go("/")
        await demo.start()
        return visit.go("/demo")

    return [
        page(site, "/demo", show, everybody=True),
        page(site, "/demo", change, posts=True, everybody=True),
    ]


def is_near(visit: Visit) -> bool:
    return peer(visit.request) in ("127.0.0.1", "::1") and "x-forwarded-for" not in visit.request.headers
