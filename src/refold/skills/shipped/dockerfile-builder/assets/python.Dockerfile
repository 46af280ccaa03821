# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build
WORKDIR /app
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /app/.venv
# Only this changes what is installed, so code can change without installing again.
COPY requirements.txt ./
RUN /app/.venv/bin/pip install -r requirements.txt
COPY src ./src

FROM python:3.12-slim
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /app
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin app
COPY --from=build /app /app
USER 10001:10001
EXPOSE 8000
CMD ["python", "-m", "src.main"]
