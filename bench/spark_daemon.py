"""PySpark's daemon for benches: workers that have ended stay as zombies, so that their processor time is still told.

By itself it has the kernel forget them. Spark is told of it by `spark.python.daemon.module`.
"""

import signal

from pyspark import daemon

if __name__ == "__main__":
    daemon.SIGCHLD = signal.SIGURG  # what it ignores, which the kernel takes for a wish to be rid of zombies
    daemon.manager()
