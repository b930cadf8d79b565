"""Sessions of ZooKeeper by kazoo (`migration.zookeeper`). kazoo comes with the extra `zookeeper`.

kazoo has threads of its own. Its calls here wait, so they belong in a lane. A session that is lost is not begun again:
the caller must look first at what others have written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, ZookeeperError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

from kraft_node.base.config.zookeeper import JAAS_KEY, ZooKeeperSettings
from kraft_node.migration.zookeeper import (
    Connect,
    Create,
    Delete,
    NoAnswerError,
    Operation,
    Refusal,
    SetData,
    TransactionError,
    Znode,
)

SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes with secrets."""
AT_ONCE: Final = 1000
"""Requests that are sent before the first answer is awaited."""


class KazooSession:
    """One session with one of the servers of `zookeeper.connect` (`host:port,host:port/chroot`)."""

    def __init__(
        self,
        servers: str,
        *,
        session_ms: int,
        connect_ms: int,
        security: Mapping[str, Any] | None = None,
        sets_acls: bool = False,
    ) -> None:
        """`security`: kazoo's options of TLS and SASL. `sets_acls`: znodes are made for this identity only."""
        self._sets_acls = sets_acls
        self._answer_s = session_ms / 1000
        self._client = KazooClient(hosts=servers, timeout=session_ms / 1000, read_only=False, **(security or {}))
        self._lost = False
        self._client.add_listener(self._moved)
        try:
            with self._errors():
                self._client.start(timeout=connect_ms / 1000)
        except NoAnswerError:
            self.close()
            raise

    def get(self, paths: Sequence[str]) -> list[Znode | None]:
        """The znodes in this order; None if a znode does not exist."""

        def found(answer: Any) -> Znode:
            data, stat = answer
            return Znode(data or b"", stat.version)

        return self._many(self._client.get_async, paths, found)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names of the children, sorted; None if the znode does not exist."""
        return self._many(self._client.get_children_async, paths, sorted)

    def _many(self, ask: Callable[[str], Any], paths: Sequence[str], found: Callable[[Any], Any]) -> list[Any]:
        answers: list[Any] = []
        for first in range(0, len(paths), AT_ONCE):
            with self._errors():
                self._require_session()
                for waiting in [ask(path) for path in paths[first : first + AT_ONCE]]:
                    try:
                        answers.append(found(waiting.get(timeout=self._answer_s)))
                    except NoNodeError:
                        answers.append(None)
        return answers

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations or none. Raises TransactionError."""
        with self._errors():
            self._require_session()
            transaction = self._client.transaction()
            for one in operations:
                if isinstance(one, Create):
                    acl = acl_of(one.path) if self._sets_acls else None
                    transaction.create(one.path, one.data, acl=acl, sequence=one.sequential)
                elif isinstance(one, SetData):
                    transaction.set_data(one.path, one.data, one.version)
                elif isinstance(one, Delete):
                    transaction.delete(one.path, one.version)
                else:
                    transaction.check(one.path, one.version)
            results = transaction.commit_async().get(timeout=self._answer_s)
        refused = _refused(operations, results)
        if refused is not None:
            raise refused

    def close(self) -> None:
        """End the session; ZooKeeper removes its ephemeral znodes."""
        self._client.stop()
        self._client.close()

    def _moved(self, state: str) -> None:
        """Called by kazoo in a thread of its own."""
        if state == "LOST":
            self._lost = True

    def _require_session(self) -> None:
        if self._lost:
            raise NoAnswerError("the session is over")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """kazoo's errors of connections and sessions as ours."""

        try:
            yield
        except exceptions.AuthFailedError as e:
            raise NoAnswerError(f"the login of {JAAS_KEY} has failed") from e
        except (KazooException, ZookeeperError, KazooTimeoutError) as e:
            raise NoAnswerError(f"{type(e).__name__}: {e}".removesuffix(": ")) from e


def kazoo_sessions(settings: ZooKeeperSettings) -> Connect:
    """Begins sessions as the controller's configuration says."""
    security: dict[str, Any] = {}
    if settings.uses_tls:
        own = settings.own_certificate
        checks = {"verify_certs": True, "check_hostname": settings.checks_host_name}
        security |= {"use_ssl": True, "ca": settings.trusted, "certfile": own, "keyfile": own, **checks}
    if settings.login is not None:
        from kraft_node.runtime.zookeeper_sasl import sasl_options  # noqa: PLC0415  (imports pure-sasl)

        security["sasl_options"] = sasl_options(settings.login)
    return partial(
        KazooSession,
        settings.servers,
        session_ms=settings.session_ms,
        connect_ms=settings.connect_ms,
        security=security,
        sets_acls=settings.sets_acls,
    )


def acl_of(path: str) -> list[Any]:
    """Kafka's ACL of a znode with `zookeeper.set.acl`: its creator may do all, others may read all but secrets."""
    found = list(CREATOR_ALL_ACL)
    return found if path.startswith(SENSITIVE) else [*found, *READ_ACL_UNSAFE]


def _refused(operations: Sequence[Operation], results: Sequence[Any]) -> TransactionError | None:
    reasons = {
        exceptions.NoNodeError: Refusal.NO_NODE,
        exceptions.NodeExistsError: Refusal.NODE_EXISTS,
        exceptions.BadVersionError: Refusal.BAD_VERSION,
        exceptions.NotEmptyError: Refusal.NOT_EMPTY,
    }
    for operation, result in zip(operations, results, strict=True):
        for kind, refusal in reasons.items():
            if isinstance(result, kind):
                return TransactionError(operation, refusal)
    failed = next((result for result in results if isinstance(result, Exception)), None)
    if failed is not None:
        raise NoAnswerError(f"{type(failed).__name__}: {failed}".removesuffix(": "))
    return None
