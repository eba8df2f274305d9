"""Start and stop `tidings demo` in a subprocess from a page."""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.i18n import _
from tidings.users import Forbidden
from tidings.web.request_context import AppServices, RequestContext, page, remote_address
from tidings.web.subprocess_runner import terminate

COMMAND = ("-m", "tidings", "demo", "--port", "0", "--until-closed")
#: Seconds that the demo process has to stop before it is killed.
STOP_TIMEOUT_S = 10.0
#: Pattern of the demo's URL in the output of the demo process.
URL_PATTERN = re.compile(rb"http://\S+/demo")


class DemoLauncher:
    """Launcher of at most one demo process.

    The demo process stops when its standard input is closed, also if this process crashes.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._output_task: asyncio.Task[None] | None = None
        self.demo_url = ""  #: "" until the demo has started

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        if not self.running:
            self.demo_url = ""
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
            self._output_task = asyncio.create_task(self._read_output(self._process))

    def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _read_output(self, process: Process) -> None:
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if match := URL_PATTERN.search(line):
                    self.demo_url = match[0].decode()
        finally:
            self.stop()
            await terminate(process, STOP_TIMEOUT_S)


def routes(services: AppServices) -> list[BaseRoute]:
    demo = DemoLauncher()

    async def check(context: RequestContext) -> None:
        """Raise `Forbidden` unless an administrator requests the demo from this computer.

        Before setup, any local request is allowed. The demo listens only on loopback.
        """
        allowed = (
            context.user_or_none.admin
            if context.user_or_none is not None
            else await services.user_service.needs_setup()
        )
        if not allowed:
            raise Forbidden(_("only an administrator can start the demo"))
        if not is_local_request(context):
            raise Forbidden(
                _("the demo opens only on the server itself; run `tidings demo` on your computer")
            )

    async def show(context: RequestContext) -> Response:
        await check(context)
        return await context.render(
            "demo_launcher.html",
            demo_url=demo.demo_url if demo.running else "",
            running=demo.running,
        )

    async def change(context: RequestContext) -> Response:
        await check(context)
        if context.form.get("do") == "stop":
            demo.stop()
            if context.user_or_none is not None:
                context.flash(_("Demo stopped."))
            return context.redirect("/")
        await demo.start()
        return context.redirect("/demo")

    return [
        page(services, "/demo", show, public=True),
        page(services, "/demo", change, is_post=True, public=True),
    ]


def is_local_request(context: RequestContext) -> bool:
    return (
        remote_address(context.request) in ("127.0.0.1", "::1")
        and "x-forwarded-for" not in context.request.headers
    )
