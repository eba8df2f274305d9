"""The exchange on the network: XML-RPC over HTTP, both ways, with the core in the middle.

`Exchange` runs a `Node`: it answers what others call (`routes`), makes the calls that the node wants made, and hands everything
else that the node wants done to ``on_effect``. Calls have time-outs and bounds; those of one neighbour wait in one short line,
so a slow neighbour holds up nobody.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tidings.document import Entry
from tidings.exchange import messages, xmlrpc
from tidings.exchange.archive import BATCH_SIZE
from tidings.exchange.client import CALL_TIMEOUT_S, QUERY_TIMEOUT_S, RPC_PATH, Client, download
from tidings.exchange.keys import ProofVerifier, Signer, connect_proof_message
from tidings.exchange.node import CallRefused, Node
from tidings.exchange.protocol import Bundle, Call, Effect, Holding, Nid, Offer, Query, Reply
from tidings.exchange.xmlrpc import MAX_MESSAGE_BYTES, Fault, InvalidXmlRpc
from tidings.logs import Log

#: The node is ticked so often.
TICK_S = 1.0
#: Calls that wait for one neighbour; what comes then is lost, as it would be by a slow network.
MAX_QUEUED_CALLS = 100
#: Calls a minute from an address that is no neighbour's, and addresses remembered for that.
UNKNOWN_CALLS_PER_MIN = 30
MAX_UNKNOWN_CALLERS = 10_000
FAULT_REFUSED, FAULT_UNKNOWN, FAULT_MALFORMED = 1, 2, 3

log = Log("tidings.exchange")
Archive = Callable[[Query, int], Awaitable[Sequence[Entry]]]


class Exchange:
    """A living node. ``async with Exchange(...) as exchange: ...`` while it runs; `routes` are to be served by somebody."""

    def __init__(
        self,
        node: Node,
        client: Client,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        on_effect: Callable[[Effect], Awaitable[None]],
        archive: Archive,
        signer: Signer | None = None,
    ) -> None:
        self.node, self.client, self._clock, self._sleep = node, client, clock, sleep
        self._on_effect, self._archive, self._signer = on_effect, archive, signer
        self._proof_verifier = ProofVerifier()
        self._queues: dict[Nid, asyncio.Queue[Call | tuple[Bundle, Nid]]] = {}
        self._workers: dict[Nid, asyncio.Task[None]] = {}
        self._replies: dict[tuple[str, Nid], asyncio.Future[tuple[Holding, ...]]] = {}
        self._unknown_callers: dict[str, tuple[float, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tick_task: asyncio.Task[None] | None = None
        self._delayed_tick: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Exchange":
        self._tick_task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [
            task
            for task in (self._tick_task, self._delayed_tick, *self._workers.values(), *self._tasks)
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()

    async def _tick(self) -> None:
        while True:
            self._tick_now()
            await asyncio.sleep(TICK_S)

    def _tick_now(self) -> None:
        self.node.tick(self._clock())
        self.apply_effects()

    def schedule_tick(self) -> None:
        """Tell neighbours in a moment of our clock, which may be faster than life, of what was looked at until then."""
        if self._delayed_tick is None or self._delayed_tick.done():
            self._delayed_tick = asyncio.create_task(self._tick_later())

    async def _tick_later(self) -> None:
        await self._sleep(TICK_S)
        self._tick_now()

    @property
    def is_busy(self) -> bool:
        """Whether something is being told or taken in."""
        return bool(self._workers or self._tasks)

    def apply_effects(self) -> None:
        """Do what the node wants done; to be called whenever it was told something."""
        for effect in self.node.take_effects():
            if isinstance(effect, Offer):
                for nid in effect.to:
                    self._enqueue(nid, (effect.bundle, nid))
            elif isinstance(effect, Call):
                if (
                    effect.function == "query_feed"
                ):  # waits for others, so nobody should wait for it
                    self.start_task(self._call(effect))
                else:
                    self._enqueue(effect.to, effect)
            elif isinstance(effect, Reply):
                waiting = self._replies.pop((effect.query.id, effect.to), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(effect.holdings)
            else:
                self.start_task(self._on_effect(effect))

    def start_task(self, work: Awaitable[None]) -> None:
        """Something that nobody waits for."""

        async def guarded() -> None:
            try:
                await work
            except Exception:  # strangers' messages lead here: one of them must not end the others
                log.exception("something that the exchange wanted was not done")

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _enqueue(self, nid: Nid, what: Call | tuple[Bundle, Nid]) -> None:
        queue = self._queues.setdefault(nid, asyncio.Queue(MAX_QUEUED_CALLS))
        if queue.full():
            log.info("neighbour too slow", nid=nid)
            return
        queue.put_nowait(what)
        if nid not in self._workers:
            self._workers[nid] = asyncio.create_task(self._run_queue(nid, queue))

    async def _run_queue(self, nid: Nid, queue: "asyncio.Queue[Call | tuple[Bundle, Nid]]") -> None:
        try:
            while not queue.empty():
                what = queue.get_nowait()
                await (self._call(what) if isinstance(what, Call) else self._offer(nid, what[0]))
                self.apply_effects()
        finally:
            del self._workers[nid], self._queues[nid]

    # --- calling -------------------------------------------------------------------------------------------------------

    async def _offer(self, nid: Nid, bundle: Bundle) -> None:
        node, started_at = self.node, self._clock()
        if nid not in node.peers:
            return
        try:
            if await self.client.call(nid, "check_did", bundle.did) == "seen":
                return
            await self.client.call(nid, "put_entries", messages.write_bundle(bundle))
        except Fault as fault:
            if "connect first" in str(fault):
                node.on_refused(nid, self._clock(), started_at)
        except (OSError, TimeoutError) as error:
            self._on_unreachable(nid, "put_entries", error, started_at)
        else:
            node.on_delivered(nid, bundle)

    async def _call(self, call: Call) -> None:
        node, nid, started_at = self.node, call.to, self._clock()
        argument: Any = call.argument
        try:
            match call.function:
                case "connect":
                    await self._connect(nid, argument)
                case "get_neighbors":
                    response = await self.client.call(nid, "get_neighbors")
                    node.add_candidates(
                        [messages.read_nid(one) for one in response[:100]], self._clock()
                    )
                case "update_subset":
                    await self.client.call(nid, "update_subset", messages.write_subset(argument))
                case "put_looks":
                    await self.client.call(nid, "put_looks", messages.write_notices(argument))
                case "dispute":
                    await self.client.call(nid, "dispute", *argument)
                case "query_feed":
                    response = await self.client.call(
                        nid, "query_feed", messages.write_query(argument), timeout_s=QUERY_TIMEOUT_S
                    )
                    node.on_answer(
                        argument.id, nid, messages.read_holdings(response), self._clock()
                    )
        except Fault as fault:
            if call.function == "connect":
                node.on_connected(nid, {}, self._clock())
            if call.function == "query_feed":  # others wait for it
                node.on_answer(argument.id, nid, (), self._clock())
            if "connect first" in str(fault):
                node.on_refused(nid, self._clock(), started_at)
        except (
            OSError,
            TimeoutError,
            InvalidXmlRpc,
            TypeError,
            KeyError,
        ) as error:  # unreachable, or it talks nonsense
            self._on_unreachable(nid, call.function, error, started_at)
        self.apply_effects()

    def _on_unreachable(self, nid: Nid, function: str, error: Exception, started_at: float) -> None:
        log.info(
            "not reached", nid=nid, function=function, error=f"{type(error).__name__}: {error}"
        )
        self.node.on_failed(nid, self._clock(), started_at)

    async def _connect(self, nid: Nid, subset: Mapping[str, int]) -> None:
        now, proof = self._clock(), {}
        if self._signer is not None:
            signed = self._signer.sign(connect_proof_message(nid, self.client.port, now))
            proof = {"key": self._signer.key, "time": now, "proof": signed}
        response = await self.client.call(
            nid, "connect", messages.write_subset(subset), *([proof] if proof else [])
        )
        theirs = messages.read_subset(response["subset"])
        you = messages.read_nid(response["you"])
        key = b""
        if "key" in response and self._proof_verifier.is_valid_proof(
            response["key"],
            response["proof"],
            {you},
            int(nid.rpartition(":")[2]),
            float(response["time"]),
            self._clock(),
        ):
            key = response["key"]
        self.node.nid = self.node.nid or you
        self.node.on_connected(nid, theirs, self._clock(), key)

    # --- being called --------------------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """To be served, at the port that we tell others."""
        return [Route(RPC_PATH, self._serve, methods=["POST"])]

    async def _serve(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        try:
            body = await read_body(request, MAX_MESSAGE_BYTES)
            if body is None:
                return PlainTextResponse("more than is read\n", 413)
            function, parameters = xmlrpc.read_call(body)
            sender = messages.nid_of(address, parameters[0] if parameters else None)
            if sender not in self.node.peers and not self._allow_unknown_caller(address):
                return PlainTextResponse(
                    "too many calls; wait a minute\n", 429, {"Retry-After": "60"}
                )
            response = await self._dispatch(function, sender, parameters[1:], request)
        except TimeoutError:
            return PlainTextResponse("too slow\n", 408)
        except CallRefused as refusal:
            return _xml(xmlrpc.write_fault(FAULT_REFUSED, str(refusal)))
        except (InvalidXmlRpc, LookupError, TypeError, ValueError) as error:
            return _xml(xmlrpc.write_fault(FAULT_MALFORMED, str(error)[:500]))
        self.apply_effects()
        return _xml(xmlrpc.write_response(response))

    def _allow_unknown_caller(self, address: str) -> bool:
        """Strangers may call a little."""
        now = self._clock()
        since, calls = self._unknown_callers.pop(address, (now, 0))
        if now - since > 60:
            since, calls = now, 0
        self._unknown_callers[address] = (since, calls + 1)
        while len(self._unknown_callers) > MAX_UNKNOWN_CALLERS:
            del self._unknown_callers[next(iter(self._unknown_callers))]
        return calls < UNKNOWN_CALLS_PER_MIN

    async def _dispatch(
        self, function: str, sender: Nid, parameters: list[Any], request: Request
    ) -> Any:
        node, now = self.node, self._clock()
        if node.settings.friends_only and function != "connect" and sender not in node.peers:
            raise CallRefused("you are not a neighbour; connect first, as a friend")
        match function, parameters:
            case "get_neighbors", []:
                return node.get_neighbors(sender, now)
            case "connect", [subset, *proof]:
                return self._accept(
                    sender, messages.read_subset(subset), proof[0] if proof else {}, request
                )
            case "update_subset", [subset]:
                node.update_subset(sender, messages.read_subset(subset), now)
            case "check_did", [bytes() as did]:
                return "seen" if node.check_did(sender, did, now) else "unseen"
            case "put_entries", [bundle]:
                node.put_entries(sender, messages.read_bundle(bundle), now)
            case "put_looks", [notices]:
                node.put_looks(sender, messages.read_notices(notices), now)
            case "dispute", [str() as feed, str() as identity, int() | float() as published]:
                node.dispute(sender, feed, identity, float(published) or None, now)
            case "query_feed", [query]:
                return messages.write_holdings(
                    await self._query(sender, messages.read_query(query))
                )
            case "get_entries", [query, list() as recent_requesters]:
                if not node.trade.may_serve(
                    sender, [messages.read_nid(one) for one in recent_requesters[:100]], now
                ):
                    raise CallRefused(
                        "only in return for something; we will see whether there is a ring"
                    )
                return [
                    messages.write_entry(entry)
                    for entry in await self._archive_batch(messages.read_query(query))
                ]
            case _:
                raise InvalidXmlRpc(f"there is no function {function[:50]} with these parameters")
        return "ok"

    async def _archive_batch(self, query: Query) -> list[Entry]:
        """As many entries as fit into one answer."""
        batch: list[Entry] = []
        size = 0
        for entry in messages.keep_sendable(await self._archive(query, BATCH_SIZE)):
            size += len(entry.content) + len(entry.summary) + 2000
            if batch and size > MAX_MESSAGE_BYTES // 4:
                break
            batch.append(entry)
        return batch

    def _accept(
        self, sender: Nid, subset: dict[str, int], proof: Any, request: Request
    ) -> dict[str, Any]:
        now, port, key = self._clock(), int(sender.rpartition(":")[2]), b""
        local = request.scope.get("server") or ("", 0)
        own_nids = (
            {self.node.nid, messages.nid_of(local[0], local[1])} if local[0] else {self.node.nid}
        )
        if (
            isinstance(proof, dict)
            and proof
            and self._proof_verifier.is_valid_proof(
                proof["key"], proof["proof"], own_nids, port, float(proof["time"]), now
            )
        ):
            key = proof["key"]
        response: dict[str, Any] = {
            "subset": messages.write_subset(self.node.connect(sender, subset, now, key)),
            "you": sender,
        }
        if self._signer is not None:
            signed = self._signer.sign(connect_proof_message(sender, self.client.port, now))
            response |= {"key": self._signer.key, "time": now, "proof": signed}
        return response

    async def _query(self, sender: Nid, query: Query) -> tuple[Holding, ...]:
        if (
            query.id,
            sender,
        ) in self._replies:  # it has come round to who asked: whoever waits already gets the answer
            return ()
        response: asyncio.Future[tuple[Holding, ...]] = asyncio.get_running_loop().create_future()
        self._replies[query.id, sender] = response
        try:
            self.node.query_feed(sender, query, self._clock())
            self.apply_effects()
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                return await response
        except TimeoutError:
            return ()
        finally:
            self._replies.pop((query.id, sender), None)

    # --- for the own side ----------------------------------------------------------------------------------------------

    async def recover(
        self, feed: str, since: float = 0.0, until: float = 4e9
    ) -> dict[Nid, list[Entry]]:
        """Entries of a feed from the archives of others, each once, by who gave them."""
        holdings = await self._query("", Query(secrets.token_hex(16), feed, since, until))
        return await download(
            self.client, self.node.trade, holdings, feed, since, until, self._clock
        )


async def read_body(request: Request, limit: int) -> bytes | None:
    """What a caller has to say, if it is no more than that; `TimeoutError` if it takes for ever."""
    body = bytearray()
    async with asyncio.timeout(CALL_TIMEOUT_S):
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                return None
    return bytes(body)


def _xml(body: bytes) -> Response:
    return Response(body, media_type=xmlrpc.CONTENT_TYPE)
