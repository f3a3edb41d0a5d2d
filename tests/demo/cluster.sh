#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The third act. Runs on this machine, beside the cluster that tests/demo/run has started: kubectl and rdmanet are in PATH, and
# KUBECONFIG names the cluster. An administrator installs rdmanet as README.md does. Two pods of a Deployment then start on two
# nodes, exchange packets and use verbs over InfiniBand, and leave nothing behind.
#
# The script fails at the first check that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# shellcheck source=tests/demo/show.sh
source tests/demo/show.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly columns=NAME:.metadata.name,NODE:.spec.nodeName,STATUS:.status.phase

# pod_on NODE: prints the name of the pod of the Deployment on this node.
pod_on() { kubectl get pods --selector app=trainers --field-selector "spec.nodeName=$1" --output name; }
# address POD: prints the address of its net1.
address() { kubectl exec "$1" -- ip -4 -oneline addr show net1 | sed -E 's/.* inet ([0-9.]+).*/\1/'; }
# bandwidth CLIENT SERVER ADDRESS: runs ib_write_bw from one pod to the other. Node N has the HCA softib(N-1).
bandwidth() {
	kubectl exec "$2" -- ib_write_bw -d softib1 -n 200 -F >"$work/server.log" 2>&1 &
	local server=$!
	for ((i = 0; i < 60; i++)); do
		kubectl exec "$2" -- ss -Hltn 'sport = :18515' | grep -q . && break
		sleep 1
	done
	show kubectl exec "$1" -- ib_write_bw -d softib0 -n 200 -F "$3"
	wait "$server" || broken "the server failed: $(tail -n 3 "$work/server.log")"
}
# nothing_left: checks the three places of each node where an attachment could have left something.
nothing_left() {
	local node left
	for node in node-1 node-2; do
		left=$(tests/node/at "$node" find /var/lib/cni/rdma-ipam -type f -path '*/addresses/*')
		[[ -z $left ]] || broken "addresses are left on $node: $left"
		left=$(tests/node/at "$node" find /run/rdmanet -type f)
		[[ -z $left ]] || broken "attachments are left on $node: $left"
		left=$(tests/node/at "$node" sh -c 'ip -oneline link show type ipoib | grep "@" || true')
		[[ -z $left ]] || broken "links are left on $node: $left"
	done
	fact 'no interface is left on the nodes, no attachment written down, no address allocated'
}

step '12. A cluster of two nodes with an InfiniBand port each'
show kubectl get nodes
show tests/node/at node-1 ip -brief link show type ipoib
show tests/node/at node-2 ip -brief link show type ipoib

step '13. An administrator installs rdmanet, a pool of addresses and a network'
show sh -c 'kubectl apply -k conf/base | tail -n 3'
show kubectl -n rdmanet-system rollout status daemonset/rdmanet-agent --timeout 10m
show kubectl -n rdmanet-system rollout status deployment/rdmanet-controller --timeout 10m
show kubectl apply -f conf/pools/rail0.yaml -f conf/networks/ib-ipoib.yaml
show kubectl wait ippool/rail0 --for condition=Ready --timeout 10m

step '14. A Deployment asks for the network in one annotation'
sed '/^#/d; s/replicas: 4/replicas: 2/' tests/node/trainers.yaml >"$work/trainers.yaml"
show cat "$work/trainers.yaml"
show kubectl apply -f "$work/trainers.yaml"
show kubectl rollout status deployment/trainers --timeout 10m
show kubectl get pods --output "custom-columns=$columns"
show rdmanet addresses

step '15. The pods reach each other over InfiniBand'
a=$(pod_on node-1) b=$(pod_on node-2)
there=$(address "$b")
[[ -n $a && -n $there ]] || broken "expected a pod on each node, got '$a' and '$b'"
show kubectl exec "$a" -- ping -c 3 -W 10 -I net1 "$there"
show kubectl exec "$a" -- ip neigh show dev net1
bandwidth "$a" "$b" "$there"

step '16. The Deployment goes'
show kubectl delete deployment trainers --cascade=foreground --timeout 10m
show rdmanet addresses
nothing_left
