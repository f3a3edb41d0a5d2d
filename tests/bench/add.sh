#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures how long ADD of cni-ipoib takes on each of some masters, in turns, in one run.
#
# usage: tests/bench/add.sh MASTER[,MASTER]... [RUNS [OTHERS]]
#
# RUNS is the number of ADDs on each master (default 30). OTHERS is the number of other
# attachments that the node has (default 0). RDMANET_BIN holds cni-ipoib and rdma-ipam, by
# default /opt/cni/bin. Runs as root. On each master one ADD comes before, so that no sample
# reads a program from the disk. Times are of whole processes, in milliseconds.
set -euo pipefail

IFS=, read -r -a masters <<<"${1:?usage: add.sh MASTER[,MASTER]... [RUNS [OTHERS]]}"
runs=${2:-30} others=${3:-0}
bin=${RDMANET_BIN:-/opt/cni/bin}
dir=$(mktemp -d)
pod=rdmanet-bench-$$
trap 'ip netns del "$pod" 2>/dev/null || true; rm -rf "$dir"' EXIT
export RDMANET_STATE=$dir/state CNI_PATH=$bin CNI_IFNAME=net1 CNI_NETNS=/run/netns/$pod

# call VERB CONTAINER MASTER
call() {
	CNI_COMMAND=$1 CNI_CONTAINERID=$2 "$bin/cni-ipoib" >"$dir/answer" <<-JSON ||
		{"cniVersion": "1.1.0", "name": "bench", "type": "cni-ipoib", "master": "$3",
		 "ipam": {"type": "rdma-ipam", "dataDir": "$dir/ipam", "subnet": "10.99.0.0/16", "cooldown": 0}}
	JSON
		{
			cat "$dir/answer" >&2
			exit 1
		}
}

# attach CONTAINER MASTER: prints how long ADD took, in microseconds.
attach() {
	local start end
	ip netns add "$pod"
	start=${EPOCHREALTIME/./}
	call ADD "$1" "$2"
	end=${EPOCHREALTIME/./}
	echo $((end - start))
}

detach() {
	call DEL "$1" "$2"
	ip netns del "$pod"
}

for master in "${masters[@]}"; do
	ip link set "$master" up
	attach before "$master" >"$dir/first"
	if [[ $master == "${masters[0]}" ]]; then
		written=$dir/state/attachments/bench/before@net1
		for ((number = 0; number < others; number++)); do
			cp "$written" "$dir/state/attachments/bench/other$number@net1"
		done
	fi
	detach before "$master"
done
for ((run = 0; run < runs; run++)); do
	for master in "${masters[@]}"; do
		attach "run$run" "$master" >>"$dir/times-$master"
		detach "run$run" "$master"
	done
done
echo "ADD, ms, with $others other attachments: master runs min p50 p95"
for master in "${masters[@]}"; do
	sort -n "$dir/times-$master" | awk -v master="$master" '{ times[NR] = $1 / 1000 }
		END { printf "%s %d %.2f %.2f %.2f\n", master, NR, times[1], times[int((NR + 1) / 2)], times[int(NR * 0.95 + 0.5)] }'
done
