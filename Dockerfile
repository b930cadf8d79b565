# docker build --target node -t kraftcluster:dev .      a node, with our versions of Kafka's tools
# docker build --target operator -t kraft-operator:dev .
# docker build --target pipeline -t kraft-pipeline:dev .  kraft-pipeline with Spark (1.4 GB)
#
# BASE is Python on Debian. All packages come from deploy/locks, by hash.
ARG BASE=python:3.13-slim

# Rarely changed layers come first: tini, the dependencies of each target, then the wheel, once for all targets.
FROM ${BASE} AS tools
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini >/dev/null \
    && cp /usr/bin/tini-static /usr/local/bin/tini && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=1767225600

FROM tools AS node-needs
COPY deploy/locks/node.txt /tmp/lock.txt
RUN python3 -m venv /opt/kraft && /opt/kraft/bin/pip install -q --no-compile --require-hashes -r /tmp/lock.txt

FROM tools AS operator-needs
COPY deploy/locks/operator.txt /tmp/lock.txt
RUN python3 -m venv /opt/kraft && /opt/kraft/bin/pip install -q --no-compile --require-hashes -r /tmp/lock.txt

FROM tools AS build
COPY deploy/locks/build.txt /tmp/build.txt
RUN python3 -m venv /opt/build && /opt/build/bin/pip install -q --require-hashes -r /tmp/build.txt

# PySpark comes as source: a wheel is made of it by the tools of build.txt, not by what its build would fetch. Of its jars
# those stay away that no pipeline uses: Hive, MLlib, RocksDB, Connect's server, YARN, a compiler, other systems' libraries.
FROM build AS pipeline-needs
COPY deploy/locks/pipeline.txt /tmp/lock.txt
RUN /opt/build/bin/pip wheel -q --require-hashes --no-deps --no-build-isolation -w /tmp/wheels -r /tmp/lock.txt \
    && python3 -m venv /opt/kraft && /opt/kraft/bin/pip install -q --no-compile --no-deps /tmp/wheels/*.whl \
    && rm -rf /tmp/wheels && cd /opt/kraft/lib/python3*/site-packages \
    && rm -rf pyspark/examples pyspark/data pyspark/jars/connect-repl pandas/tests pyarrow/tests pyarrow/include \
    && cd pyspark/jars \
    && find . \( -name 'hive-[!s]*' -o -name 'hive-s[!t]*' -o -name 'spark-hive*' -o -name 'datanucleus-*' -o -name 'derby*' \
        -o -name 'spark-mllib*' -o -name 'spark-graphx*' -o -name 'breeze*' -o -name 'spire*' -o -name 'cats-*' -o -name 'algebra_*' \
        -o -name 'lapack*' -o -name 'blas*' -o -name 'arpack*' -o -name 'J[TL]*' -o -name 'rocksdbjni-*' -o -name 'spark-connect_*' \
        -o -name 'spark-yarn*' -o -name 'spark-repl*' -o -name 'scala-compiler-*' -o -name 'jline-*' \
        -o -name '*-osx-*' -o -name '*-windows-*' \) -delete

FROM build AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY protocol/src protocol/src
COPY node/src node/src
COPY operator/src operator/src
COPY pipeline/src pipeline/src
RUN /opt/build/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels .

# Each target without the other products, without pip, and compiled: its root is read-only.
FROM node-needs AS node-files
COPY --from=wheel /wheels /wheels
RUN /opt/kraft/bin/pip install -q --no-compile --no-deps /wheels/*.whl && cd /opt/kraft/lib/python3*/site-packages \
    && rm -rf kraft_operator kraft_local kraft_cli kraft_pipeline pip pip-* setuptools* pkg_resources _distutils_hack distutils-precedence.pth \
    && cd /opt/kraft/bin && rm -f pip* kraftcluster kubectl* kraft-pipeline \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kraft/lib

FROM operator-needs AS operator-files
COPY --from=wheel /wheels /wheels
RUN /opt/kraft/bin/pip install -q --no-compile --no-deps /wheels/*.whl && cd /opt/kraft/lib/python3*/site-packages \
    && rm -rf kraft_node kraft_local kraft_cli kraft_pipeline pip pip-* setuptools* pkg_resources _distutils_hack distutils-precedence.pth \
    && cd /opt/kraft/bin && rm -f pip* kafka-* kraftcluster kubectl* kraft-pipeline \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kraft/lib

FROM pipeline-needs AS pipeline-files
COPY --from=wheel /wheels /wheels
RUN /opt/kraft/bin/pip install -q --no-compile --no-deps /wheels/*.whl && cd /opt/kraft/lib/python3*/site-packages \
    && rm -rf kraft_node kraft_operator kraft_local kraft_cli pip pip-* setuptools* pkg_resources _distutils_hack distutils-precedence.pth \
    && cd /opt/kraft/bin && rm -f pip* kafka-* kraftcluster kubectl* \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/kraft/lib

FROM ${BASE} AS runtime
COPY --from=tools /usr/local/bin/tini /usr/local/bin/tini
RUN groupadd --gid 10001 kraft && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/kraft --shell /usr/sbin/nologin kraft \
    && mkdir -p /var/lib/kraft /etc/kraft && chown 10001:10001 /var/lib/kraft
ENV PATH=/opt/kraft/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=random
USER 10001:10001
WORKDIR /var/lib/kraft
# PID 1 hands signals on and reaps: kafka-storage and the other tools have no handlers of their own.
ENTRYPOINT ["/usr/local/bin/tini", "--"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="kraft-operator" \
      org.opencontainers.image.description="Kafka-compatible clusters from KRaftCluster resources" \
      org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.version="0.1.0"
COPY --from=operator-files /opt/kraft /opt/kraft
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import os,urllib.request as u;u.urlopen('http://127.0.0.1:'+os.environ.get('KRAFT_HEALTH_PORT','8081')+'/healthz',timeout=2)"]
CMD ["python", "-m", "kraft_operator"]

FROM runtime AS pipeline
LABEL org.opencontainers.image.title="kraft-pipeline" \
      org.opencontainers.image.description="Topics to tables, scrubs of replicas, archives of metadata, on Spark" \
      org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.version="0.1.0"
USER root
# Java's package wants to put a manual page where slim images have no folder.
RUN mkdir -p /usr/share/man/man1 && apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=pipeline-files /opt/kraft /opt/kraft
CMD ["kraft-pipeline", "--help"]

FROM runtime AS node
LABEL org.opencontainers.image.title="kraftcluster" \
      org.opencontainers.image.description="A node of a Kafka-compatible cluster, and its tools" \
      org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.version="0.1.0"
COPY --from=node-files /opt/kraft /opt/kraft
VOLUME ["/var/lib/kraft"]
EXPOSE 9090 9092 9404
HEALTHCHECK --interval=10s --timeout=3s --start-period=600s CMD ["python", "-c", "import os,urllib.request as u;u.urlopen('http://127.0.0.1:'+os.environ.get('KRAFT_HTTP_PORT','9404')+'/livez',timeout=2)"]
CMD ["kafka-server-start", "/etc/kraft/server.properties"]
