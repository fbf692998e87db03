# fencepost serve, as a plain user, with its data in a volume. Clients log in; make users first (docs/deploy.md).
# This Python is built with profiles, which is worth 4 to 9 % of the CPU (docs/benchmarks.md); that of pyenv is not.
FROM python:3.13-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels /src

FROM python:3.13-slim
LABEL org.opencontainers.image.title="fencepost" \
      org.opencontainers.image.description="A message broker with the Apache Kafka protocol and exactly-once that holds" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels fencepost \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin fencepost \
 && install -d -o fencepost -m 0700 /var/lib/fencepost /backups
# A named volume at either folder takes its owner from it.
USER fencepost
VOLUME /var/lib/fencepost
EXPOSE 9092
# Programs inside the container, its health check among them, need no login.
ENV FENCEPOST_BOOTSTRAP=127.0.0.1:9093
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["fencepost", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["fencepost"]
CMD ["serve", "--data-dir", "/var/lib/fencepost", "--sasl", "SCRAM-SHA-256", "--listen", "0.0.0.0:9092", "--listen", "PLAINTEXT://127.0.0.1:9093"]
