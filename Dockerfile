# The image of a node: `make image` builds it, and docs/howto/install.md says how to run it.
#
# The packages come from the directory `wheels` of the build context if it exists, and from pip's
# registry otherwise. A release names its base with a digest:
#     docker build --build-arg BASE=docker.io/library/python:3.11-slim-bookworm@sha256:… .
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY . .
# pip builds the wheel of Corvo in an environment of its own, out of the same source of packages.
# sqlite-utils brings pip along, which only its command line needs.
RUN if [ -d wheels ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/src/wheels; fi; \
    export PIP_CONSTRAINT=/src/requirements/constraints.txt PIP_NO_CACHE_DIR=1 \
    && python3 -m venv --without-pip /opt/corvo \
    && python3 -m pip wheel --no-deps --wheel-dir /wheel . \
    && python3 -m pip --python /opt/corvo/bin/python3 install /wheel/*.whl \
    && python3 -m pip --python /opt/corvo/bin/python3 uninstall --yes pip \
    && /opt/corvo/bin/python3 changes/sbom.py --wheels wheels >/opt/corvo/sbom.cdx.json \
    && cp deploy/image/healthy.py /opt/corvo/healthy.py

FROM ${BASE}
ARG VERSION=0.1.0.dev0
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.title="Corvo" \
      org.opencontainers.image.description="A job queue server with no database and no broker" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

# A number, so that Kubernetes can see that the user is not root.
RUN groupadd --gid 10001 corvo \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/corvo --no-create-home \
        --shell /usr/sbin/nologin corvo \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/corvo
COPY --from=build /opt/corvo /opt/corvo

# Compiled modules are in the image already, and its root may be read-only.
ENV PATH=/opt/corvo/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    CORVO_BIND=:8080 \
    CORVO_DATA_DIR=/var/lib/corvo/data
USER 10001:10001
WORKDIR /var/lib/corvo
VOLUME /var/lib/corvo
EXPOSE 8080 9400
STOPSIGNAL SIGTERM
# Only whether the node answers: a cluster without a majority is not helped by a restart.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "/opt/corvo/healthy.py", "/livez"]
# The node is process 1. It needs no init: it passes signals on and reaps orphans.
ENTRYPOINT ["corvo"]
CMD ["server"]
