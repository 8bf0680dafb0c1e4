# The image of one service, from what base.Dockerfile made. images.sh builds both and gives the arguments:
#
#   infra/docker/images.sh egest
ARG RUNTIME=hifi-base:services
ARG PARTS=hifi-base:parts

FROM ${PARTS} AS parts

FROM ${RUNTIME}
ARG SERVICE
COPY --from=parts /images/${SERVICE}/packages /
# Folders that the service may write; most have none.
ARG OWNED=
RUN for folder in ${OWNED}; do mkdir -p "$folder" && chown 10001:10001 "$folder"; done
COPY --from=parts /images/${SERVICE}/code /
ENV HIFI_INGEST_HOST=0.0.0.0 HIFI_INGEST_PORT=8080 HIFI_OBSERVE_HOST=0.0.0.0 HIFI_OBSERVE_PORT=9200 \
    HIFI_MANAGE_HOST=0.0.0.0 HIFI_MANAGE_PORT=9300 HIFI_VIEW_HOST=0.0.0.0 HIFI_VIEW_PORT=9400 HIFI_VIEW_DATA=/views
ARG PORT
EXPOSE 9000 ${PORT}
USER 10001:10001
# It drains on SIGTERM within HIFI_DRAIN_S (25 s, egest 45 s): give `docker stop` 10 s more.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 \
    CMD ["/opt/hifi/bin/python", "-I", "-S", "/opt/hifi/ready.py"]
ENTRYPOINT ["/opt/hifi/bin/service"]
ARG VERSION=0.1.0
ARG COMMIT=
ENV HIFI_COMMIT=${COMMIT}
ARG DESCRIPTION
LABEL org.opencontainers.image.title="hifi-${SERVICE}" \
      org.opencontainers.image.description="${DESCRIPTION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
