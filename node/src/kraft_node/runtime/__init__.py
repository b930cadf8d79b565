"""The real world behind `base.env`: event loop, sockets, files, clocks, threads and signals.

Only this package imports `socket`, `select`, `threading`, `time` or uses files. The cores get the `Env` that
`runtime.env.RealEnv` makes; `testing` makes another `Env`, in which a single seed decides everything.
`kafka-server-start` (`cli.server_start`) is its caller.

- `loop`: one event loop per process, on `epoll` if available. It is our own instead of asyncio's: no code in the node
  awaits, because handlers answer through callbacks. asyncio would cost 46 ms at every start and 11 MiB in an idle
  node.
- `net`: plain sockets on that loop. Responses of one burst leave in one system call; file slices leave through
  `os.sendfile` whenever the socket accepts more. No task, future or protocol object per request.
- `background`: one thread per lane for blocking work (above all fsync); results return on the loop.
- `disk`: files of the operating system. A failed fsync is reported and never retried here.
- `connecting`: tries the addresses of a name; `residency`: whether bytes are in the page cache; `dirty_pages`: how much
  may be written before Linux makes writers wait.
- `garbage`: when Python looks for cyclic garbage; `cpu_slice`: how soon Linux runs the loop's thread.
- `zookeeper`: sessions of ZooKeeper with kazoo, for a controller that migrates; `zookeeper_sasl`: their login by SASL.

This package must not know Kafka, keep state of the node, or call the cores from any thread but the loop's.
"""
