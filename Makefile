# The usual targets; scripts/check and scripts/highs do the work.

.PHONY: build highs test check lab fmt bench fuzz dist man web image clean

build: ## the pure-Go program, bin/lorasim
	CGO_ENABLED=0 go build -trimpath -o bin/lorasim ./cmd/lorasim

highs: ## the program with the HiGHS solver, bin/lorasim
	scripts/highs
	eval "$$(scripts/highs --env)" && go build -trimpath -tags highs -o bin/lorasim ./cmd/lorasim

test: ## formatting, vet and the tests of the pure-Go build
	scripts/check --fast

check: ## everything CI runs
	scripts/check

lab: ## the tests of the module lab
	cd lab && go vet ./... && go test ./...

fmt:
	gofmt -w $$(git ls-files '*.go')

bench: ## the benchmarks of the hot paths
	go test -run '^$$' -bench . -benchmem ./sim ./router ./ilp ./trace/...

fuzz: ## every fuzz target, FUZZTIME each
	scripts/fuzz $(or $(FUZZTIME),60s)

dist: ## archives of static programs for Linux and macOS with checksums, dist/
	scripts/dist $(VERSION)

man: ## manual pages, bin/man
	go run ./cmd/lorasim man bin/man

web: ## the explorer without a server, as a folder of static files, bin/web
	go run ./scripts/web bin/web

image: ## a container image with lorasim alone
	VERSION=$(VERSION) scripts/image

clean:
	rm -rf bin dist
