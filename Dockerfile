# docker build -t tidings .        deploy/compose.yaml runs it with PostgreSQL and two workers; docs/scaling.md tells more.
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/tidings
COPY requirements.lock ./
# The versions that were tested; the lock also holds what only the laboratory needs, so it bounds and does not list.
RUN sed -n 's/ *\\$//; /^[a-z]/p' requirements.lock > versions.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/tidings/bin/pip install --no-cache-dir --constraint versions.txt ".[postgres,alerts,fulltext,keys]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data tidings && install -d -o tidings -g tidings -m 0700 /data
COPY --from=build /opt/tidings /opt/tidings
COPY --chmod=0755 deploy/entrypoint.sh /usr/local/bin/entrypoint.sh
ENV PATH=/opt/tidings/bin:$PATH PYTHONUNBUFFERED=1 TIDINGS_DATA_DIR=/data TIDINGS_SERVE_HOST=0.0.0.0
USER tidings
VOLUME /data
EXPOSE 8035
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8035/healthz', timeout=4)"]
ENTRYPOINT ["entrypoint.sh"]
CMD ["serve"]
