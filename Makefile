# What a developer runs. CI runs .ci/run.
GO ?= go
ALL = ./... ./examples/...
FUZZTIME ?= 20s

.PHONY: test race lint bench demo fuzz ci

test: ## Postgres suites skip where there is no Postgres
	$(GO) test $(ALL)

race:
	$(GO) test -race $(ALL)

lint: ## what CI checks; golangci-lint reads .golangci.yml and is stricter
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet $(ALL)
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 $(ALL)

bench: ## needs a Postgres; set TALLYSTICK_TEST_POSTGRES_VIA to choose it
	$(GO) run ./internal/bench

demo:
	$(GO) run ./examples/gateway demo

fuzz: ## every fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

ci:
	.ci/run
