"""XML-RPC transport of the exchange, which serves calls of other nodes and calls them.

`Exchange` runs a `Node`: it serves `routes`, makes the calls that the node requests and passes all
other effects to ``on_effect``. Calls have timeouts and size limits. Each peer has a bounded queue
of calls, so a slow peer does not delay the others.
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

#: Interval in seconds between two ticks of the node.
TICK_S = 1.0
#: Maximum length of a peer's call queue. Further calls are dropped.
MAX_QUEUED_CALLS = 100
#: Maximum number of calls per minute from an address without a peer.
UNKNOWN_CALLS_PER_MIN = 30
#: Maximum number of addresses that are remembered for this rate limit.
MAX_UNKNOWN_CALLERS = 10_000
#: XML-RPC fault codes (docs/exchange-protocol.md).
FAULT_REFUSED, FAULT_UNKNOWN, FAULT_MALFORMED = 1, 2, 3

log = Log("tidings.exchange")
Archive = Callable[[Query, int], Awaitable[Sequence[Entry]]]


class Exchange:
    """Running node of the exchange. Use it with ``async with`` and serve `routes` over HTTP."""

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
        """Create a transport for a node.

        ``on_effect`` applies the effects that are not calls, ``archive`` returns stored entries for
        a query (at most the given number), and ``signer`` signs proofs at `connect`.
        """
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
        """Tick once more after `TICK_S` seconds of this node's clock.

        That clock may run faster than real time. Notices of all polls in that time are sent
        together.
        """
        if self._delayed_tick is None or self._delayed_tick.done():
            self._delayed_tick = asyncio.create_task(self._tick_later())

    async def _tick_later(self) -> None:
        await self._sleep(TICK_S)
        self._tick_now()

    @property
    def is_busy(self) -> bool:
        """Whether calls or effects are in progress."""
        return bool(self._workers or self._tasks)

    def apply_effects(self) -> None:
        """Apply the effects of the node. Call this after every change of the node."""
        for effect in self.node.take_effects():
            if isinstance(effect, Offer):
                for nid in effect.to:
                    self._enqueue(nid, (effect.bundle, nid))
            elif isinstance(effect, Call):
                if effect.function == "query_feed":
                    # This call waits for further nodes, so it must not block the queue of the peer.
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
        """Run ``work`` in the background and log its errors."""

        async def run_and_log() -> None:
            try:
                await work
            except Exception:  # messages of untrusted nodes lead here and must not stop the node
                log.exception("exchange_task_failed")

        task = asyncio.create_task(run_and_log())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _enqueue(self, nid: Nid, item: Call | tuple[Bundle, Nid]) -> None:
        queue = self._queues.setdefault(nid, asyncio.Queue(MAX_QUEUED_CALLS))
        if queue.full():
            log.info("peer_queue_full", nid=nid)
            return
        queue.put_nowait(item)
        if nid not in self._workers:
            self._workers[nid] = asyncio.create_task(self._run_queue(nid, queue))

    async def _run_queue(self, nid: Nid, queue: "asyncio.Queue[Call | tuple[Bundle, Nid]]") -> None:
        try:
            while not queue.empty():
                item = queue.get_nowait()
                await (self._call(item) if isinstance(item, Call) else self._offer(nid, item[0]))
                self.apply_effects()
        finally:
            del self._workers[nid], self._queues[nid]

    # --- outgoing calls --------------------------------------------------------------------------

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
                        [messages.read_nid(nid) for nid in response[:100]], self._clock()
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
            if call.function == "query_feed":  # the requester waits for the answer
                node.on_answer(argument.id, nid, (), self._clock())
            if "connect first" in str(fault):
                node.on_refused(nid, self._clock(), started_at)
        except (OSError, TimeoutError, InvalidXmlRpc, TypeError, KeyError) as error:
            # An invalid response counts as unreachable.
            self._on_unreachable(nid, call.function, error, started_at)
        self.apply_effects()

    def _on_unreachable(self, nid: Nid, function: str, error: Exception, started_at: float) -> None:
        error_text = f"{type(error).__name__}: {error}"
        log.info("peer_call_failed", nid=nid, function=function, error=error_text)
        self.node.on_failed(nid, self._clock(), started_at)

    async def _connect(self, nid: Nid, subset: Mapping[str, int]) -> None:
        now, proof = self._clock(), {}
        if self._signer is not None:
            signature = self._signer.sign(connect_proof_message(nid, self.client.port, now))
            proof = {"key": self._signer.key, "time": now, "proof": signature}
        response = await self.client.call(
            nid, "connect", messages.write_subset(subset), *([proof] if proof else [])
        )
        their_subset = messages.read_subset(response["subset"])
        own_nid = messages.read_nid(response["you"])
        key = b""
        if "key" in response and self._proof_verifier.is_valid_proof(
            response["key"],
            response["proof"],
            {own_nid},
            int(nid.rpartition(":")[2]),
            float(response["time"]),
            self._clock(),
        ):
            key = response["key"]
        self.node.nid = self.node.nid or own_nid
        self.node.on_connected(nid, their_subset, self._clock(), key)

    # --- incoming calls --------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """Return the routes to serve at the port that this node announces to other nodes."""
        return [Route(RPC_PATH, self._serve, methods=["POST"])]

    async def _serve(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        try:
            body = await read_body(request, MAX_MESSAGE_BYTES)
            if body is None:
                return PlainTextResponse("the request is too large\n", 413)
            function, parameters = xmlrpc.read_call(body)
            sender = messages.nid_of(address, parameters[0] if parameters else None)
            if sender not in self.node.peers and not self._allow_unknown_caller(address):
                return PlainTextResponse(
                    "rate limit exceeded; wait a minute\n", 429, {"Retry-After": "60"}
                )
            response = await self._dispatch(function, sender, parameters[1:], request)
        except TimeoutError:
            return PlainTextResponse("the request took too long\n", 408)
        except CallRefused as refusal:
            return _xml(xmlrpc.write_fault(FAULT_REFUSED, str(refusal)))
        except (InvalidXmlRpc, LookupError, TypeError, ValueError) as error:
            return _xml(xmlrpc.write_fault(FAULT_MALFORMED, str(error)[:500]))
        self.apply_effects()
        return _xml(xmlrpc.write_response(response))

    def _allow_unknown_caller(self, address: str) -> bool:
        """Return whether an address without a peer may call, within its limit per minute."""
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
            raise CallRefused("you are not a peer; connect first, with a key that is pinned here")
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
                their_requesters = [messages.read_nid(nid) for nid in recent_requesters[:100]]
                if not node.trade.may_serve(sender, their_requesters, now):
                    raise CallRefused("entries are sent only in exchange; try again later")
                return [
                    messages.write_entry(entry)
                    for entry in await self._archive_batch(messages.read_query(query))
                ]
            case _:
                raise InvalidXmlRpc(f"there is no function {function[:50]} with these parameters")
        return "ok"

    async def _archive_batch(self, query: Query) -> list[Entry]:
        """Return as many archived entries as fit into one response."""
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
            signature = self._signer.sign(connect_proof_message(sender, self.client.port, now))
            response |= {"key": self._signer.key, "time": now, "proof": signature}
        return response

    async def _query(self, sender: Nid, query: Query) -> tuple[Holding, ...]:
        if (query.id, sender) in self._replies:
            return ()  # the query arrived twice, and the first call returns the answer
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

    # --- recovery --------------------------------------------------------------------------------

    async def recover(
        self, feed: str, since: float = 0.0, until: float = 4e9
    ) -> dict[Nid, list[Entry]]:
        """Recover entries of a feed from the archives of other nodes.

        Returns the entries published in the given time range by the node that had them, each entry
        once.
        """
        holdings = await self._query("", Query(secrets.token_hex(16), feed, since, until))
        return await download(
            self.client, self.node.trade, holdings, feed, since, until, self._clock
        )


async def read_body(request: Request, limit: int) -> bytes | None:
    """Return the body of a request, or None if it is longer than ``limit`` bytes.

    Raises `TimeoutError` if reading takes longer than `CALL_TIMEOUT_S`.
    """
    body = bytearray()
    async with asyncio.timeout(CALL_TIMEOUT_S):
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                return None
    return bytes(body)


def _xml(body: bytes) -> Response:
    return Response(body, media_type=xmlrpc.CONTENT_TYPE)
