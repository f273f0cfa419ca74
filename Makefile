# `make` or `make help` lists the targets.
.PHONY: help build demo mirror test interop sim fuzz loom sanitize lint docs
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## the xroce command, in target/release
	@dev/deps
	cargo build --release --bin xroce

demo: ## installs what is missing, builds, and shows RC and UC over AF_XDP between two namespaces
	@dev/demo

mirror: ## the storage case: nodes that mirror each other, metadata on RC and data on UC, with loss
	@dev/mirror

test: ## everything; what this machine cannot run is skipped with its reason and counted at the end
	@dev/test

interop: ## the whole matrix against the kernel's rdma_rxe in guests (long)
	@dev/interop

SEED ?= 0
SEEDS ?= 10000
sim: ## the deterministic simulation: SEED=first seed (0), SEEDS=how many (10000)
	@dev/deps
	cargo run --release -p xroce-simulation -- --from $(SEED) --seeds $(SEEDS)

TARGET ?= all
SECONDS ?= 60
fuzz: ## fuzzing with libFuzzer (nightly): TARGET=name or all, SECONDS=each (60); fuzz/README.md
	@dev/fuzz $(TARGET) $(SECONDS)

PREEMPTIONS ?= 3
loom: ## the lock-free parts under a model checker: PREEMPTIONS=switches that are tried (3; make test tries 2)
	LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS) cargo test --release -p xroce-loom

sanitize: ## tests under AddressSanitizer and, where it can be had, ThreadSanitizer (nightly)
	@dev/sanitize

lint: ## formatting and clippy
	@dev/deps
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

docs: ## the API documentation and the book, in target/doc and target/book
	@dev/docs
