"""The pod templates in force: a pool whose pods cannot be made keeps the last template that Kubernetes accepted.

Before any node restarts for a template, its grants are checked, and the API server checks the pods by a dry run. If
either refuses, no node is restarted. A node that is down at that moment starts with the template before, which is kept
beside the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kraft_operator.api.pools import NodePool, Resources
from kraft_operator.api.template import PodTemplate
from kraft_operator.apply.grants import NotGrantedError, check_pool
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.pods import rehearsal

QUOTA: Final = "exceeded quota"
"""Text in the API server's errors for a used-up quota."""

Template = dict[str, Any]
"""The stored form of a pool's template: its fields `pod` and `resources`."""


class TemplateRefusal(NamedTuple):
    """Why no node may be restarted: the block of a plan."""

    reason: str
    message: str


class InForce(NamedTuple):
    """What a pass works with."""

    cluster: NamedCluster
    templates: Mapping[str, Template]
    """The last accepted templates, by pool."""
    refused: TemplateRefusal | None


async def templates_in_force(
    api: Api, cluster: NamedCluster, former: Mapping[str, Template], accepted: dict[str, str]
) -> InForce:
    """The cluster with the templates in force.

    `former` are the last accepted templates. `accepted` has digests of the pods that a dry run accepted, by pool, and
    is updated. Raises NotGrantedError if a pool without a former template names objects that it may not use, and
    ApiError if the API server does not answer.
    """
    spec = cluster.spec
    pools: list[NodePool] = []
    templates: dict[str, Template] = {}
    refused: TemplateRefusal | None = None
    for pool in spec.node_pools:
        mark = digest(rehearsal(cluster, pool))
        problem = await _problem(api, cluster, pool, tried=accepted.get(pool.name) == mark)
        before = None if problem is None else await _former(api, cluster, pool, former.get(pool.name))
        if isinstance(problem, NotGrantedError) and before is None:
            raise problem
        if problem is not None:
            refused = refused or _refusal(pool, problem, has_former=before is not None)
        elif not (spec.hibernated or spec.paused):
            accepted[pool.name] = mark
        pools.append(before or pool)
        if problem is None and accepted.get(pool.name) == mark:
            templates[pool.name] = template_of(pool)
        elif pool.name in former:
            templates[pool.name] = former[pool.name]
    if refused is None:
        return InForce(cluster, templates, None)
    changed = replace(cluster, spec=spec.model_copy(update={"node_pools": pools}))
    return InForce(changed, templates, None if spec.hibernated else refused)


async def _problem(
    api: Api, cluster: NamedCluster, pool: NodePool, *, tried: bool
) -> NotGrantedError | ApiError | None:
    """Why the pods of a pool cannot be made; None if nothing is known against them.

    A used-up quota does not count as a refusal, because a restart deletes the old pod first.
    """
    try:
        await check_pool(api, cluster, pool)
        if not (tried or cluster.spec.hibernated or cluster.spec.paused):
            await api.apply(rehearsal(cluster, pool), rehearse=True)
    except NotGrantedError as error:
        return error
    except ApiError as error:
        if not error.lasting:
            raise
        return None if QUOTA in str(error) else error
    return None


async def _former(api: Api, cluster: NamedCluster, pool: NodePool, former: Template | None) -> NodePool | None:
    """The pool with its former template; None if there is no other one, or if its grants have been withdrawn."""
    if former is None or former == template_of(pool):
        return None
    try:
        found = pool.model_copy(
            update={
                "pod": PodTemplate.model_validate(former["pod"]),
                "resources": Resources.model_validate(former["resources"]),
            }
        )
        await check_pool(api, cluster, found)
    except (ValidationError, KeyError, NotGrantedError):
        return None
    return found


def template_of(pool: NodePool) -> Template:
    """The stored form of a pool's template."""
    return {
        name: getattr(pool, name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for name in ("pod", "resources")
    }


def _refusal(pool: NodePool, problem: NotGrantedError | ApiError, *, has_former: bool) -> TemplateRefusal:
    reason = problem.reason if isinstance(problem, NotGrantedError) else "StepRefused"
    text = f"{problem}; no node is restarted until nodePools {pool.name} is corrected"
    return TemplateRefusal(reason, text + ", and a node that is down starts with the template before" * has_former)
