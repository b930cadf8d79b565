"""Iceberg tables through PyIceberg.

- `table`: the `Committer`. `commits`: what PyIceberg's commits lack. `expiry`: snapshots that leave the metadata.
- `catalogs`: PyIceberg's catalogs, and their failures.
- `fields`: transforms, bounds and values of partitions. `path`: a table at a path, without a catalog.
- `versions`: the text of a table's metadata.
"""

from kraft_pipeline.tables.iceberg.table import IcebergTable

__all__ = ["IcebergTable"]
