"""The parts of a Kafka client that the pipeline needs: metadata, offsets, whole Fetch responses, idempotent Produce.

Other clients return single records, but the codec needs the bytes of whole responses. `kraft_protocol.client` has the
requests, the connections, and the cluster with its leaders; here is what reads and writes whole batches.

- `fetch`: the stored records of a range of one partition; the next Fetch runs while the caller works.
- `produce`: idempotent producer.
- `groups`: commits offsets of a consumer group, for monitoring.

Tasks on Spark's executors and the driver use it, one thread per object. It must not import Spark or the codec's
columns. A `Cluster`, which is a context manager, owns the sockets.
"""

from kraft_pipeline.client.fetch import Chunk, fetch_range
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import BrokerError, ClientError, DataLossError

__all__ = ["BrokerError", "Chunk", "ClientError", "Cluster", "DataLossError", "Settings", "fetch_range"]
