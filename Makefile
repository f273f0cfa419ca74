# `make` or `make help` lists the targets.
.PHONY: help build install uninstall dist demo mirror test interop conformance sim soak kill fuzz loom sanitize bench instructions lint docs
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 21

build: ## the xroce command, in target/release
	@dev/deps
	cargo build --release --bin xroce

PREFIX ?= /usr/local
export PREFIX DESTDIR
install: ## the command, its manual pages and completions: PREFIX=where (/usr/local); DESTDIR before it, for packagers
	@dev/install

uninstall: ## takes them away again
	@dev/install --remove

dist: ## packages in target/dist: a tarball with install.sh, and a .deb; they run where nothing else is installed
	@dev/dist

demo: ## installs what is missing, builds, and shows RC and UC over AF_XDP between two namespaces
	@dev/demo

mirror: ## the storage case: nodes that mirror each other, metadata on RC and data on UC, with loss
	@dev/mirror

test: ## everything; what this machine cannot run is skipped with its reason and counted at the end
	@dev/test

interop: ## the whole matrix against the kernel's rdma_rxe in guests (long)
	@dev/interop

conformance: ## the packet scripts against a live xroce and the kernel's rdma_rxe, over AF_XDP
	@dev/conformance

SEED ?= 0
SEEDS ?= 10000
sim: ## the deterministic simulation: SEED=first seed (0), SEEDS=how many (10000)
	@dev/deps
	cargo run --release -p xroce-simulation -- --from $(SEED) --seeds $(SEEDS)

# Not --release: the debug assertions look along.
MINUTES ?= 20
soak: ## every operation over a veth that loses, corrupts and reorders: MINUTES=how long (20)
	@dev/deps
	cargo run -p xroce-hostile --bin xroce-soak -- $(MINUTES)

ROUNDS ?= 100
kill: ## kill -9 of either end under load, nothing may be left: ROUNDS=how often (100)
	@dev/deps
	cargo build -p xroce-hostile
	$${CARGO_TARGET_DIR:-target}/debug/xroce-kill $(ROUNDS)

TARGET ?= all
SECONDS ?= 60
fuzz: ## fuzzing with libFuzzer (nightly): TARGET=name or all, SECONDS=each (60); fuzz/README.md
	@dev/fuzz $(TARGET) $(SECONDS)

PREEMPTIONS ?= 3
loom: ## the lock-free parts under a model checker: PREEMPTIONS=switches that are tried (3; make test tries 2)
	LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS) cargo test --release -p xroce-loom

sanitize: ## tests under AddressSanitizer and, where it can be had, ThreadSanitizer (nightly)
	@dev/sanitize

bench: ## speed as ratios to what the machine does without xroce: a table and a plot in bench/results (minutes, root)
	@dev/bench

TABLE ?= compare
instructions: ## instructions of each way of a packet, by callgrind: TABLE=compare, check or update
	@dev/bench instructions $(TABLE)

lint: ## formatting and clippy
	@dev/deps
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

docs: ## the pages made from the code, the API documentation and the book, in target/doc and target/book
	@dev/docs
