# One image for migrate, worker, beat, the API and Flower. Versions and hashes are those of requirements.lock.
FROM python:3.12-slim AS build
RUN pip install --no-cache-dir uv
WORKDIR /src
COPY . .
RUN uv venv /opt/ironclip \
 && uv pip install --no-cache --python /opt/ironclip --constraint requirements.lock \
        ".[worker,whisper,flower,api,s3,sftp]"

FROM python:3.12-slim
COPY --from=build /opt/ironclip /opt/ironclip
COPY deploy/entrypoint /usr/local/bin/with-secrets
ENV PATH=/opt/ironclip/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --create-home --home-dir /var/lib/ironclip ironclip \
 && mkdir /var/lib/ironclip/scratch /var/lib/ironclip/output \
 && chown ironclip: /var/lib/ironclip/scratch /var/lib/ironclip/output
USER ironclip
WORKDIR /var/lib/ironclip
ENTRYPOINT ["sh", "/usr/local/bin/with-secrets"]
CMD ["ironclip", "--help"]
