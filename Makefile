# SPDX-License-Identifier: Apache-2.0
#
# Two commands matter: `make demo` shows the main use, and `make test` runs what continuous integration runs.
# Each installs what it needs on a Debian 12 machine that has Rust and Go (`setup`). The commands for nodes (build,
# install, rdmanet, image) need Rust and a C compiler, and install no package; image also needs docker, podman or buildah.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# ARCH is the architecture of the nodes, amd64 or arm64. Default: that of this machine. The compiler of a machine of another
# architecture cannot link for x86-64; Rust's own linker can, as the plugins have no C code.
TARGET := $(subst arm64,aarch64,$(subst amd64,x86_64,$(or $(ARCH),$(shell uname -m))))-unknown-linux-musl
ifneq ($(shell uname -m),x86_64)
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER ?= rust-lld
endif
export CARGO_TARGET_DIR ?= $(CURDIR)/target
BIN := $(CARGO_TARGET_DIR)/$(TARGET)/release
PREFIX ?= /opt/cni/bin
BINDIR ?= /usr/local/bin

# The packages of `setup` are there before a build of `bench` starts.
.NOTPARALLEL:
.PHONY: help demo test bench bench-kube bench-multus chaos chaos-cluster bench-scale bench-last bench-thousand bench-faults bench-chaos build lint image install rdmanet setup clean

help: ## Lists the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: setup ## Shows pods on a software InfiniBand fabric: children, a bond, whole ports, and a cluster with kubelets (a few minutes, more the first time)
	@DEMO_COLOUR="$$([[ -t 1 ]] && echo 1)" tests/demo/run --build

test: setup ## Runs what CI runs: lints, units, namespaces, clusters, the fabric in VMs on three kernels
	@tests/all

bench: setup build ## Measures ADD and DEL as whole processes, beside the reference plugins (root)
	@cargo run --quiet --release --target $(TARGET) -p bench -- --bin "$(BIN)" --peers "$$(tests/go/build macvlan host-local)" $(BENCH)

bench-kube: setup build ## Measures rdma-ipam with pools beside whereabouts, and nv-ipam (RDMANET_NV_IPAM), on a real API server (two minutes)
	@cargo run --quiet --profile measure -p bench-kube --bin bench-kube -- "$(BIN)/rdma-ipam" "$$(tests/go/build whereabouts)/whereabouts" \
	  "$$(go -C tests/go/whereabouts list -m -f '{{.Dir}}' github.com/k8snetworkplumbingwg/whereabouts)/doc/crds" $(BENCH)

bench-multus: setup build ## Measures the chain from runtime to Multus to plugin with 0 to 8 networks, beside whereabouts, and nv-ipam if there is one (root; four minutes)
	@CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" cargo run --quiet -p multus -- "$$(tests/go/build whereabouts)/whereabouts" \
	  "$$(go -C tests/go/whereabouts list -m -f '{{.Dir}}' github.com/k8snetworkplumbingwg/whereabouts)/doc/crds" $(BENCH)

bench-scale: setup build ## Measures a thousand agents on one API server (AGENTS=300 for fewer, AGENTS=10000 for more; RAILS=8 pools, PODS=100 on each node, BLOCK=4 addresses in a block)
	@cargo run --quiet --profile measure -p bench-kube --bin bench-scale -- "$(BIN)/rdma-ipam" $(or $(AGENTS),1000) $(or $(RAILS),1) $(or $(PODS),1) $(or $(BLOCK),64)

bench-last: setup build ## Measures a pool that forty nodes use to its last address (three minutes; NODES=10 for fewer)
	@cargo run --quiet --profile measure -p bench-kube --bin bench-last -- "$(BIN)/rdma-ipam" $(or $(NODES),40)

bench-thousand: setup build ## Measures a thousand pods that need a thousand addresses on ten nodes, beside whereabouts (half an hour; PODS, NODES, LIMIT in seconds)
	@cargo run --quiet --profile measure -p bench-kube --bin bench-thousand -- "$(BIN)/rdma-ipam" "$$(tests/go/build whereabouts)/whereabouts" \
	  "$$(go -C tests/go/whereabouts list -m -f '{{.Dir}}' github.com/k8snetworkplumbingwg/whereabouts)/doc/crds" $(or $(PODS),1000) $(or $(NODES),10) $(or $(LIMIT),900)

bench-faults: setup build ## Counts what leaks under the same faults with rdma-ipam and with whereabouts (root; half an hour; PODS, SEED)
	@cargo run --quiet --profile measure -p bench-kube --bin bench-faults -- "$(BIN)/rdma-ipam" "$$(tests/go/build --group whereabouts)" \
	  "$$(go -C tests/go/whereabouts list -m -f '{{.Dir}}' github.com/k8snetworkplumbingwg/whereabouts)/doc/crds" $(or $(PODS),10) $(SEED)

chaos: setup ## Tests agents and plugins on a real API server under many faults (RDMANET_CHAOS_OPERATIONS, _SEED, _MACHINES)
	@cargo build --quiet -p agent -p controller -p ipam
	@cargo test --quiet -p agents --test chaos -- --nocapture

chaos-cluster: setup ## Tests a cluster with kubelets and containerd under ten minutes of chaos, then under each fault (root; hours; MINUTES=N, SEED=N)
	@RDMANET_CHAOS_MINUTES=$(or $(MINUTES),10) $(if $(SEED),RDMANET_CHAOS_SEED=$(SEED)) tests/all node_faults

bench-chaos: setup ## Gives whereabouts and rdmanet the same ten minutes of chaos on one cluster, and prints what each leaves (root; MINUTES=N, SEED=N; PEER=dranet in place of whereabouts)
	@[[ "$(PEER)" =~ ^(whereabouts|dranet)?$$ ]] || { echo "PEER is '$(PEER)', not whereabouts or dranet" >&2; exit 1; }
	@cargo build --quiet -p cli
	@export RDMANET_CHAOS_MINUTES=$(or $(MINUTES),10) $(if $(SEED),RDMANET_CHAOS_SEED=$(SEED)); \
	  $(if $(filter dranet,$(PEER)),RDMANET_CLUSTER=$$(tests/node/up --rails 8 --memory 1024 --until-exit $$$$); export RDMANET_CLUSTER;) \
	  cargo test --quiet -p node --test node -- --nocapture beside_$(or $(PEER),whereabouts)

build: ## Builds both plugins as static binaries (ARCH=arm64 for Grace nodes)
	@tests/setup $(TARGET)
	@cargo build --locked --release --target $(TARGET) -p cni-ipoib -p ipam

lint: setup ## Checks formatting, clippy, rustdoc, shell scripts, documents, licences and dependencies
	@tests/lint

image: ## Builds the image of agent, controller and both plugins: make image IMAGE=NAME:TAG [ARCH=arm64] (docker, podman or buildah)
	@tests/setup $(TARGET)
	@conf/image/build "$(IMAGE)" $(ARCH)

install: build ## Installs both plugins into PREFIX (/opt/cni/bin), each by one rename: make install PREFIX=DIR [ARCH=arm64]
	@for plugin in cni-ipoib rdma-ipam; do \
	  install -D -m 0755 "$(BIN)/$$plugin" "$(PREFIX)/.$$plugin.new" && mv -f "$(PREFIX)/.$$plugin.new" "$(PREFIX)/$$plugin"; \
	done

rdmanet: ## Installs the command rdmanet into BINDIR (/usr/local/bin); some minutes the first time
	@cargo build --quiet --locked --release -p cli
	@install -D -m 0755 "$(CARGO_TARGET_DIR)/release/rdmanet" "$(BINDIR)/rdmanet"

setup:
	@tests/setup

clean: ## Removes the build results and the caches of the tests
	rm -rf "$(CARGO_TARGET_DIR)" "$${RDMANET_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/rdmanet}"
