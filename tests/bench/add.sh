#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures how long ADD of cni-ipoib takes on each of some masters, in turns, in one run.
#
# usage: tests/bench/add.sh MASTER[,MASTER]... [RUNS [OTHERS]]
#
# MASTER is the name of a link, or [NAME]: then the configuration has the list ["NAME"], and ADD
# chooses the master, which counts the attachments on each link. RUNS is the number of ADDs on
# each master (default 30). OTHERS is the number of other attachments that the node has (default
# 0); their namespace lives. RDMANET_BIN holds cni-ipoib and rdma-ipam, by default /opt/cni/bin.
# Runs as root. On each master one ADD comes before, so that no sample reads a program from the
# disk. Times are of whole processes, in milliseconds.
set -euo pipefail

IFS=, read -r -a masters <<<"${1:?usage: add.sh MASTER[,MASTER]... [RUNS [OTHERS]]}"
runs=${2:-30} others=${3:-0}
bin=${RDMANET_BIN:-/opt/cni/bin}
dir=$(mktemp -d)
pod=rdmanet-bench-$$
living=$pod-living
trap 'ip netns del "$pod" 2>/dev/null || true; ip netns del "$living" 2>/dev/null || true; rm -rf "$dir"' EXIT
export RDMANET_STATE=$dir/state CNI_PATH=$bin CNI_IFNAME=net1 CNI_NETNS=/run/netns/$pod

# link MASTER: prints the name of its link.
link() {
	local name=${1#[}
	echo "${name%]}"
}

# call VERB CONTAINER MASTER
call() {
	local master="\"$3\""
	[[ $3 != [* ]] || master="[\"$(link "$3")\"]"
	CNI_COMMAND=$1 CNI_CONTAINERID=$2 "$bin/cni-ipoib" >"$dir/answer" <<-JSON ||
		{"cniVersion": "1.1.0", "name": "bench", "type": "cni-ipoib", "master": $master,
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

# fill MASTER: records the other attachments, as copies of the files of one.
fill() {
	local number file content
	ip netns add "$living"
	CNI_NETNS=/run/netns/$living call ADD other0 "$1"
	while read -r file; do
		content=$(<"$file")
		for ((number = 1; number < others; number++)); do
			printf %s "${content:+$content$'\n'}" >"${file/other0/other$number}"
		done
	done < <(find "$dir/state" -name 'other0@net1')
}

for master in "${masters[@]}"; do
	ip link set "$(link "$master")" up
done
((others == 0)) || fill "${masters[0]}"
for master in "${masters[@]}"; do
	attach before "$master" >"$dir/first"
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
