"""Every route of the admin door: the table that routing, checks, document and page are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from ahcollector._openapi import (
    JSON,
    PROCESS,
    Answer,
    Body,
    Route,
    error_answers,
    process_routes,
    reference,
)
from ahcollector.admin import _examples as examples
from ahcollector.admin._answers import CONFLICT
from ahcollector.admin._params import (
    LETTER_ID_CHARS_MAX,
    LETTER_PAGE,
    METRIC_CHARS_MAX,
    PAGE_MAX,
    STEP_MS,
    STEP_MS_MIN,
)
from ahcollector.admin._pieces import (
    ERROR_MEDIA,
    PREFIX,
    answers,
    milliseconds,
    paging,
    path_parameter,
    query_parameter,
)
from ahcollector.admin._schemas import IDENTITY
from ahcollector.store.base import RANGE_POINTS_MAX, Aggregate
from ahwire.status import Code

__all__ = ["ROUTES"]

_AGENT: Final = path_parameter("agent_id", "web-1-agent")
_COMPANY: Final = path_parameter("company_id", "acme")
_SERVER: Final = path_parameter("server_id", "web-1")
_SERVER_QUERIED: Final = query_parameter(
    "server_id", "The server.", IDENTITY, example="web-1", required=True
)
_NO_AGENT: Final = (Code.NOT_FOUND, "the registry has no such agent")
_TIMEOUT: Final = (Code.TIMEOUT, "the body did not arrive in time")


def _agents() -> Iterable[Route]:
    tag = "agents"
    yield Route(
        method="PUT",
        path=f"{PREFIX}/agents/{{agent_id}}",
        name="putAgent",
        summary="Push an agent's record",
        doc="Takes effect at once: a token found unknown before is looked up anew, presence watches"
        " an active agent and forgets another.",
        tag=tag,
        parameters=(_AGENT,),
        body=Body(
            doc="The record; its `agent_id` is the one of the path.",
            media={JSON: reference("AgentRecord")},
            example=examples.RECORD,
        ),
        answers=answers(
            "Agent",
            "The agent as it is now.",
            examples.AGENT,
            _TIMEOUT,
            (CONFLICT, "the record is older than the one known, or would revive a revoked agent"),
        ),
    )
    yield Route(
        method="GET",
        path=f"{PREFIX}/agents/{{agent_id}}",
        name="getAgent",
        summary="Show an agent",
        tag=tag,
        parameters=(_AGENT,),
        answers=answers("Agent", "The agent.", examples.AGENT, _NO_AGENT),
    )
    yield Route(
        method="DELETE",
        path=f"{PREFIX}/agents/{{agent_id}}",
        name="revokeAgent",
        summary="Revoke an agent",
        doc="Its tokens are answered 403 from now on. Was it the last of its server that may send,"
        " the open alerts of the server are resolved with the reason `forgotten`; its series stay."
        " May be repeated.",
        tag=tag,
        parameters=(_AGENT,),
        answers=answers("Agent", "The agent, revoked.", examples.REVOKED, _NO_AGENT),
    )
    yield Route(
        method="GET",
        path=f"{PREFIX}/companies/{{company_id}}/servers/{{server_id}}/agents",
        name="listServerAgents",
        summary="List a server's agents",
        doc="Revoked ones too. A server nobody knows has none.",
        tag=tag,
        parameters=(_COMPANY, _SERVER, *paging(PAGE_MAX, "agent")),
        answers=answers("AgentPage", "A page.", examples.AGENT_PAGE),
    )


def _tenants() -> Iterable[Route]:
    tag = "tenants"
    kept = (
        "Agents, presence and series go, and what was received before and still waits on its way"
        " is dropped and counted. Its open alerts are resolved with the reason `forgotten`,"
        " in a process that judges threshold rules; while the hub's rules are not known there, that"
        " is answered 503. What was deleted before a failure stays deleted, and the"
    )
    for name, path, parameters, what in (
        ("deleteCompany", "/companies/{company_id}", (_COMPANY,), "company"),
        (
            "deleteServer",
            "/companies/{company_id}/servers/{server_id}",
            (_COMPANY, _SERVER),
            "server",
        ),
    ):
        yield Route(
            method="DELETE",
            path=f"{PREFIX}{path}",
            name=name,
            summary=f"Forget a {what}",
            doc=f"{kept} call may be repeated. It cannot be undone, and it is no ban: an agent that"
            " the hub still lists is known again with its next batch or the next sync. Revoke its"
            " agents at the hub first.",
            tag=tag,
            parameters=parameters,
            answers=answers("Forgotten", "What was forgotten.", {"agents": 1, "series": 12}),
        )


def _series() -> Iterable[Route]:
    tag = "series"
    yield Route(
        method="GET",
        path=f"{PREFIX}/companies/{{company_id}}/series/range",
        name="querySeriesRange",
        summary="Query a metric over time",
        doc="The point at t is the aggregate of the samples in (t - step, t]; steps without a"
        f" sample are absent. At most {RANGE_POINTS_MAX:,} steps.",
        tag=tag,
        parameters=(
            _COMPANY,
            _SERVER_QUERIED,
            query_parameter(
                "metric",
                "The metric's name, with or without `ah_`.",
                {"type": "string", "minLength": 1, "maxLength": METRIC_CHARS_MAX},
                example="ah_cpu_usage_percent",
                required=True,
            ),
            query_parameter(
                "start_ms",
                "The first point.",
                milliseconds("Unix milliseconds."),
                example="1790000000000",
                required=True,
            ),
            query_parameter(
                "end_ms",
                "The last point is not after it.",
                milliseconds("Unix milliseconds."),
                example="1790000060000",
                required=True,
            ),
            query_parameter(
                "step_ms",
                f"From a point to the next, from {STEP_MS_MIN}; from 30000 where samples are in "
                "VictoriaMetrics: 400 under it.",
                milliseconds("Milliseconds.", STEP_MS_MIN, default=STEP_MS),
                example="30000",
            ),
            query_parameter(
                "aggregate",
                "How the samples of a step become a point.",
                {"enum": [one.value for one in Aggregate], "default": Aggregate.AVG.value},
            ),
        ),
        answers=answers("SeriesList", "The series.", examples.SERIES),
    )
    yield Route(
        method="GET",
        path=f"{PREFIX}/companies/{{company_id}}/series/latest",
        name="querySeriesLatest",
        summary="Query the newest samples of a server",
        tag=tag,
        parameters=(
            _COMPANY,
            _SERVER_QUERIED,
            query_parameter(
                "since_ms",
                "Series whose newest sample is before it are left out; absent: 10 minutes ago.",
                milliseconds("Unix milliseconds."),
                example="1790000000000",
            ),
        ),
        answers=answers("SeriesList", "The series, each with one point.", examples.LATEST),
    )


def _state() -> Iterable[Route]:
    tag = "state"
    yield Route(
        method="GET",
        path=f"{PREFIX}/presence",
        name="listPresence",
        summary="List who is up and who is down",
        tag=tag,
        parameters=(
            query_parameter("company_id", "Only agents of this company.", IDENTITY, example="acme"),
            *paging(PAGE_MAX, "agent"),
        ),
        answers=answers("PresencePage", "A page.", examples.PRESENCE_PAGE),
    )
    yield Route(
        method="GET",
        path=f"{PREFIX}/counts",
        name="getCounts",
        summary="Count agents",
        tag=tag,
        answers=answers("Counts", "The counts.", examples.COUNTS),
    )
    yield Route(
        method="GET",
        path=f"{PREFIX}/outbox",
        name="getOutbox",
        summary="Show what the hub has not taken yet",
        tag=tag,
        answers=answers(
            "Outbox",
            "The state of the outbox.",
            examples.OUTBOX,
            (Code.NOT_FOUND, "this process has no outbox"),
        ),
    )


def _dead() -> Iterable[Route]:
    for part, what, page, example, missing in (
        ("outbox", "events that the hub did not take", "DeadEvent", examples.DEAD_EVENT, "outbox"),
        ("bus", "entries that no worker could take", "DeadEntry", examples.DEAD_ENTRY, "such bus"),
        (
            "worker",
            "batches that the store did not take",
            "DeadBatch",
            examples.DEAD_BATCH,
            "worker's dead letters",
        ),
    ):
        yield from _dead_of(part, what, page, example, (Code.NOT_FOUND, f"there is no {missing}"))


def _dead_of(
    part: str, what: str, page: str, example: Any, missing: tuple[Code, str]
) -> Iterable[Route]:
    path, name = f"{PREFIX}/{part}/dead", f"{part.capitalize()}Dead"
    chosen: dict[str, Any] = {
        "tag": "dead letters",
        "parameters": (
            query_parameter(
                "id",
                "This letter; repeatable. Not together with a body that says `all`.",
                {"type": "array", "items": {"type": "string", "maxLength": LETTER_ID_CHARS_MAX}},
            ),
        ),
    }
    body = Body(
        doc="Which letters. Without a body and without `id`: all.",
        media={JSON: reference("Chosen")},
        required=False,
        example={"ids": [example["letter_id"]]},
    )
    yield Route(
        method="GET",
        path=path,
        name=f"list{name}",
        summary=f"List {what}",
        tag="dead letters",
        parameters=paging(LETTER_PAGE, "letter"),
        answers=answers(
            f"{page}Page", "A page.", {"letters": [example], "next_after": None}, missing
        ),
    )
    yield Route(
        method="DELETE",
        path=path,
        name=f"delete{name}",
        summary=f"Forget {what}",
        doc="For good. Of unknown ids nothing is said: they are gone already.",
        body=attrs.evolve(
            body,
            doc='Which letters; to forget all of them say `{"all": true}`. Needed without `id`.',
        ),
        answers=answers("Deleted", "How many.", {"deleted": 1, "left": 0}, missing, _TIMEOUT),
        **chosen,
    )
    yield Route(
        method="POST",
        path=f"{path}/replay",
        name=f"replay{name}",
        summary=f"Send again {what}",
        doc="As many as there is room for; what cannot be sent again stays.",
        body=body,
        answers=answers("Replayed", "How many.", {"replayed": 1, "left": 0}, missing, _TIMEOUT),
        **chosen,
    )


def _reloads() -> Iterable[Route]:
    for what in ("rules", "silences"):
        yield Route(
            method="POST",
            path=f"{PREFIX}/reload/{what}",
            name=f"reload{what.capitalize()}",
            summary=f"Pull the {what} from the hub now",
            doc="What is in force stays so when the hub cannot be asked. A process that evaluates"
            " none answers 404.",
            tag="state",
            answers=answers(
                "Reloaded",
                "They were read.",
                {"in_force": 3},
                (Code.NOT_FOUND, f"this process evaluates no {what}"),
            ),
        )


def _metrics() -> Route:
    return Route(
        method="GET",
        path="/metrics",
        name="getMetrics",
        summary="The process's own metrics",
        tag=PROCESS,
        bearer=False,
        answers=(
            Answer(
                status=200,
                doc="In Prometheus' text format.",
                media={"text/plain": {"type": "string"}},
            ),
            *error_answers(
                [(404, Code.NOT_FOUND.value, "metrics are switched off")],
                media=ERROR_MEDIA,
                examples=True,
            ),
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (
    *_agents(),
    *_tenants(),
    *_series(),
    *_state(),
    *_dead(),
    *_reloads(),
    *process_routes(f"{PREFIX}/openapi.json"),
    _metrics(),
)
