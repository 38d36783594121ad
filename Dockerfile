# FewJoules with everything that training and Flower need, for the services of compose.yaml:
#   docker build -t fewjoules .
#   docker run --rm fewjoules plan
FROM python:3.12-slim
RUN useradd --create-home --uid 1000 fewjoules
WORKDIR /src
# pinned and first, as in the Makefile; the layer stays while only FewJoules changes
RUN pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt '.[flower]'
COPY examples /home/fewjoules/examples
USER 1000
WORKDIR /home/fewjoules
ENV FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FEWJOULES_STATE=/home/fewjoules/state
ENTRYPOINT ["fewjoules"]
CMD ["--help"]
