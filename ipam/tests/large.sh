#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Time and memory of one ADD with many ranges and exclusions, as a table.
#
#   ipam/tests/large.sh PATH-OF-rdma-ipam
set -euo pipefail
plugin=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A configuration of $1 ranges and $2 exclusions.
conf() {
	awk -v ranges="$1" -v exclusions="$2" -v dir="$scratch/$1-$2" 'BEGIN {
		printf "{\"cniVersion\":\"1.1.0\",\"name\":\"large\",\"ipam\":{\"type\":\"rdma-ipam\",\"dataDir\":\"%s\",\"ranges\":[[", dir
		for (i = 0; i < ranges; i++) printf "%s{\"subnet\":\"10.%d.%d.0/24\"}", i ? "," : "", i / 256, i % 256
		printf "]],\"exclude\":["
		for (i = 0; i < exclusions; i++) printf "%s\"1%d.%d.%d.7\"", i ? "," : "", i % 2, i / 512 % 256, int(i / 2) % 256
		printf "]}}"
	}'
}

echo '| ranges | exclusions | bytes | ADD s | peak KiB |'
echo '| --- | --- | --- | --- | --- |'
for size in '1 0' '200 2000' '1000 5000' '3000 20000' '4096 65536'; do
	read -r ranges exclusions <<<"$size"
	conf "$ranges" "$exclusions" >"$scratch/conf"
	CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_IFNAME=net1 CNI_NETNS=/no/such CNI_PATH=/opt/cni/bin RDMANET_LOG=error \
		/usr/bin/time -f '%e | %M' -o "$scratch/time" "$plugin" <"$scratch/conf" >"$scratch/answer"
	grep -q '"ips"' "$scratch/answer"
	echo "| $ranges | $exclusions | $(stat -c %s "$scratch/conf") | $(cat "$scratch/time") |"
done
