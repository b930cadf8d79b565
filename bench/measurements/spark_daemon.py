"""PySpark's daemon for benches: workers that have ended stay as zombies, so that their CPU time remains readable.

PySpark's own daemon has the kernel reap them. Spark uses this module through `spark.python.daemon.module`.
"""

import signal

from pyspark import daemon

if __name__ == "__main__":
    # Ignoring SIGCHLD makes the kernel reap children at once.
    setattr(daemon, "SIGCHLD", signal.SIGURG)  # noqa: B010 - the name is final for mypy
    daemon.manager()
