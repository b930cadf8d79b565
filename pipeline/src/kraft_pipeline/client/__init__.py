"""The parts of a Kafka client that the pipeline needs: metadata, offsets, whole Fetch responses, idempotent Produce.

Other clients return single records, but the codec needs the bytes of whole responses. Each request has one version
(`messages`), which Apache Kafka serves since 3.1. If a broker lacks one of them, opening the connection fails and names
the request.

- `buffers`: the protocol's primitive types. `messages`: bodies of requests and responses.
- `connection`: one blocking socket, with pipelined requests; responses arrive in order.
- `cluster`: brokers, leaders and topic ids, refreshed after errors; offsets by time; retries.
- `groups`: commits offsets of a consumer group, for monitoring.
- `fetch`: the stored records of a range of one partition; the next Fetch runs while the caller works.
- `produce`: idempotent producer.

Tasks on Spark's executors and the driver use it, one thread per object. It must not import Spark or the codec's
columns. A `Cluster`, which is a context manager, owns the sockets.
"""

from kraft_pipeline.client.cluster import Cluster, Settings
from kraft_pipeline.client.errors import BrokerError, ClientError, DataLossError
from kraft_pipeline.client.fetch import Chunk, fetch_range

__all__ = ["BrokerError", "Chunk", "ClientError", "Cluster", "DataLossError", "Settings", "fetch_range"]
