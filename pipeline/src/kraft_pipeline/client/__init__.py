"""As much of a Kafka client as the pipeline needs: metadata, offsets, whole Fetch responses, idempotent Produce.

Clients that exist hand out one record after the other; the codec wants the bytes of whole responses, so the pipeline
asks for them itself. The versions of the requests are pinned (`messages`), all of them served since Apache Kafka 3.1;
a broker that lacks one is refused by name when the connection opens.

- `buffers`: the protocol's primitive types; `messages`: the requests and responses that are used, and nothing else.
- `connection`: one blocking socket; requests may be sent ahead, answers come in their order.
- `cluster`: brokers, leaders and topic ids, found again after errors; offsets by time; the one place with retries.
- `groups`: offsets of a consumer group, for those who watch its lag.
- `fetch`: the records of a range of one partition as they were stored, the next Fetch under way while the caller works.

Used by tasks on Spark's executors and by its driver, one thread an object. Must not import Spark or the codec's
columns. Sockets belong to a `Cluster`, which is a context manager.
"""

from kraft_pipeline.client.cluster import Cluster, Settings
from kraft_pipeline.client.errors import BrokerError, ClientError, DataLossError
from kraft_pipeline.client.fetch import Chunk, fetch_range

__all__ = ["BrokerError", "Chunk", "ClientError", "Cluster", "DataLossError", "Settings", "fetch_range"]
