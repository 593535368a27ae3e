# Stagelens as an image. Targets: `server` (collector, reverse proxy, reading commands) and
# `gpu` (the same with vLLM embedded, for NVIDIA GPUs). See docs/docker.md.
FROM python:3.12-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/stagelens
ENV PATH=/opt/stagelens/bin:$PATH
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY tracer tracer
COPY proxy proxy
COPY collectors collectors
COPY dashboards dashboards
COPY stagelens stagelens
RUN pip install ".[server]"

FROM build AS build-gpu
RUN pip install ".[gpu]"

FROM python:3.12-slim-bookworm AS server
# A user of its own; /data is made here so that a named volume belongs to it.
RUN useradd --system --uid 10001 --create-home stagelens \
    && install -d -m 0700 -o stagelens /data
COPY --from=build /opt/stagelens /opt/stagelens
ENV PATH=/opt/stagelens/bin:$PATH STAGELENS_DATA_DIR=/data PYTHONUNBUFFERED=1
USER stagelens
VOLUME /data
EXPOSE 8000 4317 4318 8090
ENTRYPOINT ["stagelens"]
CMD ["--help"]

FROM python:3.12-slim-bookworm AS gpu
# Triton compiles its kernels at run time.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home stagelens \
    && install -d -m 0700 -o stagelens /data /models
COPY --from=build-gpu /opt/stagelens /opt/stagelens
ENV PATH=/opt/stagelens/bin:$PATH STAGELENS_DATA_DIR=/data PYTHONUNBUFFERED=1 HF_HOME=/models
USER stagelens
VOLUME ["/data", "/models"]
EXPOSE 8000
ENTRYPOINT ["stagelens"]
CMD ["--help"]
