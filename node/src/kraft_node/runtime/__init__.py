"""The real world behind `base.env`: event loop, sockets, files, clocks, threads and signals.

This is the only package that imports `socket`, `select`, `threading`, `time` or touches files; the cores are handed the
`Env` that `runtime.env.RealEnv` makes, and `testing` makes another one in which a single seed decides everything.
`kafka-server-start` (`cli.server_start`) is its caller.

- `loop`: one event loop a process, on `epoll` where there is one. It is our own rather than asyncio's: nothing in the
  node awaits (handlers answer by calling back), and asyncio would cost 46 ms of every start and 11 MiB of an idle node.
- `net`: plain sockets on that loop. Responses of one burst leave in one system call; file slices leave by
  `os.sendfile` whenever the socket takes more. No task, future or protocol object a request.
- `background`: one thread a lane for what would block (fsync above all); results come back on the loop.
- `disk`: files as they are; a failed fsync is reported and never retried here.

It must not: know of Kafka, keep state of the node, or call the cores from any thread but the loop's.
"""
