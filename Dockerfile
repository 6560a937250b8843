# lorasim alone, a static program in an empty image:
#   docker build -t lorasim . && docker run --rm -v "$PWD:/work" lorasim sim
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X lorasim/cmd/cli.Release=${VERSION}" -o /lorasim ./cmd/lorasim

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /lorasim /lorasim
WORKDIR /work
ENTRYPOINT ["/lorasim"]
