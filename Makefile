# This needs Go, Node with npm, and make. The race detector of the tests also needs a C compiler.

.DEFAULT_GOAL := help
.PHONY: help run build package image test lint check fuzz chaos sabotage bench wine country screenshots azurite kql \
	oidcprovider useragents browser openapi mcp clean

# How long `make fuzz` tries each target.
FUZZTIME ?= 30s
# How long `make chaos` runs, with how many processes, and with which seed (0: one from the time).
DURATION ?= 10m
NODES ?= 2
SEED ?= 0
# Arguments of `make bench`, such as BENCH='-only redirects,start' or
# BENCH='-write docs/performance.md'.
BENCH ?=

# Only the race detector needs C. So all else is compiled once.
export CGO_ENABLED = 0

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: azurite build ## run the service on http://localhost:7071, with Azurite under it (PORT=8080 for another port)
	@go build -o build/dev ./internal/tools/dev
	@exec build/dev

build: ## lay the function app out in build/app, for func start
	@rm -rf build/app
	@go run ./internal/tools/pack/cmd -dir build/app

package: ## write the packages to deploy, build/tiney-*.zip: docs/deployment.md has their plans
	@go run ./internal/tools/pack/cmd -os linux -arch amd64 -zip build/tiney-linux-amd64.zip
	@go run ./internal/tools/pack/cmd -os windows -arch 386 -zip build/tiney-windows-386.zip
	@go run ./internal/tools/pack/cmd -os windows -arch 386 -webapp -zip build/tiney-webapp-windows-386.zip
	@go run ./internal/tools/pack/cmd -os windows -arch amd64 -webapp -zip build/tiney-webapp-windows-amd64.zip
	@ls -l build/*.zip

image: ## write the container image to build/image, for linux/amd64 and linux/arm64; it needs no container engine
	@go run ./internal/tools/pack/cmd -image build/image
	@echo "build/image is an OCI image layout. To push it to a registry:"
	@echo "  go run github.com/google/go-containerregistry/cmd/crane@v0.22.1 push --index build/image REGISTRY/tiney:TAG"

# What `make test` leaves to `make check`: the browser and the packages.
SLOW = tiney/internal/testing/browser tiney/internal/tools/pack

test: azurite kql oidcprovider useragents openapi mcp internal/tools/country/node_modules/.installed ## run the tests, in about three minutes; `make check` runs all of them
	@go test -short -parallel 8 -timeout 10m $$(go list ./... | grep -vx $(SLOW:%=-e %))

# A warning fails, too: BCP081 is a type that does not exist, which would end each deployment.
lint: ## compile and lint the Bicep files, if bicep or az bicep is there; warnings fail
	@if command -v bicep >/dev/null; then bicep=bicep file=; \
	elif az bicep version >/dev/null 2>&1; then bicep='az bicep' file=--file; \
	else echo "NOT CHECKED: the Bicep files, since neither bicep nor az bicep is there."; exit; fi; \
	said=$$($$bicep build $$file infra/main.bicep --stdout 2>&1 >/dev/null && \
		$$bicep lint $$file infra/main.bicep 2>&1) || failed=true; \
	printf '%s\n' "$$said"; [ -z "$$failed" ] && ! echo "$$said" | grep -qE ' : (Warning|Error) '

# What has goroutines is tested with the race detector. e2e builds the whole executable with it. Some
# tests of functions and storage take long with it: they are run without it.
RACE = ./functions ./handler/... $(addprefix ./internal/,access clicks reaper telemetry) \
	$(addprefix ./storage/,counts lock memtable table)
# These have the machine to themselves, one after the other. Beside other busy programs, an emulator
# or a browser may stand still for longer than the service and its clients wait.
ALONE = ./storage ./internal/testing/simulation
PROCESSES = ./internal/testing/e2e ./internal/testing/browser

# What also runs as a 32-bit executable.
PURE = $(addprefix ./internal/,access clicks formats link telemetry) ./functions

check: azurite kql oidcprovider useragents browser openapi mcp internal/tools/country/node_modules/.installed ## what CI runs: linters, tidy modules, the packages, all tests with the race detector, Wine
	@internal/tools/dev/install.sh compiler chromium shellcheck
	@files=$$(gofmt -l $$(find . -name node_modules -prune -o -name '*.go' -print)) && test -z "$$files" || \
		{ echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; }
	go vet ./...
	@# With the flags of a package, which needs the same compiled then.
	GOOS=windows GOARCH=386 go vet -trimpath -tags nethttpomithttp2 ./...
	go tool staticcheck ./...
	go mod tidy -diff
	go tool actionlint
	shellcheck infra/*.sh internal/tools/dev/*.sh .ci/run
	@$(MAKE) --no-print-directory lint
	$(MAKE) package
	@set -e; trap 'exit 130' INT; failed=0; \
	for packages in "$(RACE)" $(ALONE); do \
		CGO_ENABLED=1 go test -race -parallel 8 -timeout 20m $$packages || failed=1; done; \
	go test -parallel 8 -timeout 20m ./functions $$(go list ./... | \
		grep -vxF "$$(go list $(RACE) $(ALONE) $(PROCESSES))") || failed=1; \
	go test -p 1 -parallel 8 -timeout 20m $(PROCESSES) || failed=1; \
	go test -timeout 10m -run '^TestEachPair$$' ./storage || failed=1; \
	go test -timeout 20m -run '^TestSimulation$$' ./internal/testing/simulation -simulation.operations 100000 \
		-simulation.seed $$(printf %d "0x$$(git rev-parse --short=12 HEAD 2>/dev/null || echo 1)") || failed=1; \
	exit $$failed
	@# Windows Consumption runs 32-bit executables, in which a 64-bit counter of a library may be
	@# misaligned. Not every machine runs them. A test run without tests finds out.
	GOARCH=386 go vet $(PURE) ./storage/...
	@if GOARCH=386 go test -run '^$$' ./internal/link >/dev/null 2>&1; then set -x; \
		GOARCH=386 go test $(PURE) && \
		GOARCH=386 go test -run 'Cache|Calls' ./storage; \
		else echo "NOT CHECKED: the 32-bit tests, since this machine runs no 32-bit executables."; fi
	@# Some machines cannot install or run Wine. They leave this out.
	@if internal/tools/dev/install.sh wine; then $(MAKE) --no-print-directory wine; \
		else echo "NOT CHECKED: that the packages for Windows run. See above what is missing."; fi

fuzz: ## fuzz every fuzz target for FUZZTIME each (30s)
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

chaos: azurite ## simulate 1,000,000 operations, then check processes for DURATION (10m), NODES (2) of them, and storage on Azurite
	go test -timeout 0 -v -run '^TestSimulation$$' ./internal/testing/simulation -simulation.operations 1000000 -simulation.seed $(SEED)
	go test -v -timeout 0 -run 'TestHistories|TestLong' ./internal/testing/simulation -simulation.duration $(DURATION) -simulation.nodes $(NODES) -simulation.seed $(SEED) -simulation.long
	go test -timeout 20m ./storage -memory=false

sabotage: ## break the product in each of some ways, and look whether the tests find it
	go test -v -timeout 0 -run '^TestSabotage$$' ./internal/testing/simulation -simulation.sabotage

bench: azurite useragents ## measure redirects, clicks, users, storage, start (twenty minutes; BENCH='-only start' for one part)
	@internal/tools/dev/install.sh wrk nginx
	@PATH="$$PATH:/usr/sbin" go run ./internal/tools/bench $(BENCH)

wine: azurite ## run the packages for Windows under Wine, which it installs on Debian and Ubuntu if run by root
	@internal/tools/dev/install.sh wine
	@mkdir -p build
	go test -count=1 -v -run '^TestWindowsPackages$$' ./internal/tools/pack -pack.wine >build/wine.txt 2>&1 || { cat build/wine.txt; exit 1; }
	@grep 'NOT CHECKED' build/wine.txt || echo "The packages for Windows run under Wine."

screenshots: azurite browser ## make the pictures of the pages in docs/screenshots anew
	@internal/tools/dev/install.sh chromium inter
	@mkdir -p docs/screenshots
	FONTCONFIG_FILE="$(CURDIR)/internal/testing/browser/fonts.conf" \
		go test -count=1 -run '^TestScreenshots$$' ./internal/testing/browser -browser.screenshots "$(CURDIR)/docs/screenshots"

country: internal/tools/country/node_modules/.installed ## write the table of countries by address anew, from its data set
	go run ./internal/tools/country

# These are installed from npm: the storage emulator, the parser of Kusto queries, the provider that
# tests sign in with, the user agents of bots and people, the checker that pages are accessible, the
# linter of the API's description, and clients of MCP. The data set of `make country` is installed
# from npm, too.
azurite kql oidcprovider useragents browser openapi mcp: %: internal/testing/%/node_modules/.installed

# No package needs its install scripts. Some scripts would compile code that the package also has as
# WebAssembly.
internal/%/node_modules/.installed: internal/%/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "Node with npm is needed, for the storage emulator and for checks: https://nodejs.org"; exit 1; }
	npm ci --ignore-scripts --no-audit --no-fund --prefix internal/$*
	@touch $@

clean: ## remove what was built and installed; Azurite's data in .azurite stays
	rm -rf build internal/*/*/node_modules
