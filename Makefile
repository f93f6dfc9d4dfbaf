# Needs Go, Node with npm, and make; the race detector of the tests needs a C compiler too.

.DEFAULT_GOAL := help
.PHONY: help run build package test check fuzz chaos azurite kql clean compiler

# How long `make fuzz` tries each target.
FUZZTIME ?= 30s
# How long `make chaos` goes on, with how many processes, and from which seed (0: one from the time).
DURATION ?= 10m
NODES ?= 2
SEED ?= 0

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

run: azurite build ## run the service on http://localhost:7071, with Azurite under it (PORT=8080 for another port)
	@go build -o build/dev ./internal/dev
	@exec build/dev

build: ## lay the function app out in build/app, for func start
	@rm -rf build/app
	@go run ./internal/pack/cmd -dir build/app

package: ## write the packages to deploy: build/tiney-linux-amd64.zip and build/tiney-windows-386.zip
	@go run ./internal/pack/cmd -os linux -arch amd64 -zip build/tiney-linux-amd64.zip
	@go run ./internal/pack/cmd -os windows -arch 386 -zip build/tiney-windows-386.zip
	@ls -l build/*.zip

test: azurite kql compiler ## run all tests, with the race detector, against an Azurite of their own
	CGO_ENABLED=1 go test -race -p 1 -parallel 8 -timeout 10m ./...

check: ## what CI runs: formatting, vet, staticcheck, tidy modules, the packages, all tests
	@test -z "$$(gofmt -l .)" || { echo "not formatted, run gofmt -w:"; gofmt -l .; exit 1; }
	go vet ./...
	GOOS=windows GOARCH=386 go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	$(MAKE) package
	$(MAKE) test
	@# Windows Consumption runs 32-bit executables, where a 64-bit counter of a library may be misaligned.
	@if [ "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" = linux/amd64 ]; then set -x; \
		CGO_ENABLED=0 GOARCH=386 go test ./link ./telemetry ./functions && \
		CGO_ENABLED=0 GOARCH=386 go test -run 'Cache|Calls' ./storage; fi

fuzz: ## fuzz every fuzz target for FUZZTIME each (30s)
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

chaos: azurite ## check random histories under faults for DURATION (10m), with NODES processes (2)
	go test -v -timeout 0 -run 'TestHistories|TestLong' ./internal/chaos -chaos.duration $(DURATION) -chaos.nodes $(NODES) -chaos.seed $(SEED) -chaos.long

azurite: internal/azurite/node_modules/.installed

kql: internal/kql/node_modules/.installed

internal/%/node_modules/.installed: internal/%/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "Node with npm is needed, for the storage emulator and to check queries: https://nodejs.org"; exit 1; }
	npm ci --no-audit --no-fund --prefix internal/$*
	@touch $@

compiler:
	@command -v "$${CC:-cc}" >/dev/null || command -v gcc >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq gcc libc6-dev; \
		else echo "The race detector needs a C compiler: install gcc or clang (Debian, Ubuntu: apt-get install gcc libc6-dev)"; exit 1; fi; }

clean: ## remove what was built and installed; Azurite's data in .azurite stays
	rm -rf build internal/azurite/node_modules internal/kql/node_modules
