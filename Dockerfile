# lorasim alone, a static program in an empty image; docs/container.md says how to run it.
#   docker build -t lorasim . && docker run --rm lorasim sim
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY internal/standins internal/standins
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X lorasim/cmd/cli.Release=${VERSION}" -o /lorasim ./cmd/lorasim \
    && mkdir /work

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /lorasim /lorasim
COPY --from=build --chown=65532:65532 /work /work
USER 65532:65532
WORKDIR /work
# The gateway listens where other hosts reach it. It starts with a key for clients or with --insecure alone.
ENV LORASIM_LISTEN=0.0.0.0:8000
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/lorasim", "check", "--health"]
ENTRYPOINT ["/lorasim"]
