"""Every controller, active or not, reports its endpoints and supported features to the active controller (KIP-919).

It sends ControllerRegistration (70) once per process, as soon as the metadata.version has the record. It sends it
again if the log does not contain the registration of this incarnation. `server.node` creates it for nodes with the
role controller and lets it follow the committed metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import CONTROLLER_REGISTRATION_SUPPORTED, METADATA_VERSION, SUPPORTED_RANGES
from kraft_protocol.errors import error_name
from kraft_protocol.ids import random_uuid
from kraft_protocol.wire.messages import ControllerRegistrationRequest

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage

log = logging.getLogger("kraft_node.server.controller_registration")

TIMEOUT_MS: Final = 5_000
"""How long a request may wait for an active controller before it is sent again."""

RETRY_FIRST_MS: Final = 100
RETRY_MAX_MS: Final = 120_000
"""Pauses after refusals double from the first to this maximum; Kafka's values."""


class ControllerRegistrar:
    """Keeps this controller registered. Call `moved` after every change of the image, `close` at the end."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: MetadataImage,
        link: ControllerLink,
        endpoints: Sequence[tuple[str, str, int, int]],
        zk_migration_ready: bool = False,
    ) -> None:
        """`endpoints`: (listener, host, port, security protocol number)."""
        self._zk_migration_ready = zk_migration_ready
        self.incarnation_id = random_uuid(env.rng)
        self._env = env
        self._node_id = node_id
        self._image = image
        self._link = link
        self._endpoints = endpoints
        self._under_way = False
        self._retry_ms = RETRY_FIRST_MS
        self._timer: Timer | None = None
        self._closed = False

    @property
    def is_registered(self) -> bool:
        """Whether the log contains the registration of this process."""
        registration = self._image.controllers.get(self._node_id)
        return registration is not None and registration.incarnation_id == self.incarnation_id

    def moved(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata has changed."""
        if delta.is_snapshot or delta.controllers or METADATA_VERSION in delta.features:
            assert image is self._image, "law: a node has one image"
            self._register_if_due()

    def close(self) -> None:
        """Send no further requests. A request that is under way is not cancelled."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _register_if_due(self) -> None:
        if self._closed or self._under_way or self._timer is not None or self.is_registered:
            return
        if self._image.metadata_level < CONTROLLER_REGISTRATION_SUPPORTED:
            return
        self._under_way = True
        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self._zk_migration_ready,
            listeners=[ControllerRegistrationRequest.Listener(*endpoint) for endpoint in self._endpoints],
            features=[
                ControllerRegistrationRequest.Feature(name, levels.min_level, levels.max_level)
                for name, levels in SUPPORTED_RANGES.items()
            ],
        )
        self._link.send(request, None, self._answered, TIMEOUT_MS)

    def _answered(self, answer: Any) -> None:
        self._under_way = False
        if isinstance(answer, BaseException) or answer.error_code:
            problem = str(answer) if isinstance(answer, BaseException) else error_name(answer.error_code)
            log.info("controller is not registered yet id=%d reason=%s", self._node_id, problem)
        else:
            self._retry_ms = RETRY_FIRST_MS
        # Also after a success: the record must still arrive here, or the request is repeated.
        self._timer = self._env.scheduler.call_later(self._retry_ms, self._look_again)
        self._retry_ms = min(RETRY_MAX_MS, 2 * self._retry_ms)

    def _look_again(self) -> None:
        self._timer = None
        self._register_if_due()
