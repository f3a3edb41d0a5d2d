#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The main job, for real: two pods get IPoIB interfaces from cni-ipoib and addresses from rdma-ipam, talk over
# InfiniBand, and leave nothing behind. Runs inside the fabric's VM:
#
#   tests/fabric/run --hcas 2 --bin "$(tests/go/build cnitool)" --share "$PWD/conf:/etc/cni/net.d" tests/demo/demo.sh
#
# Exits with an error as soon as one of the promises does not hold. DEMO_COLOUR=1 colours the output.
set -euo pipefail

export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d PATH=/opt/cni/bin:$PATH
store=/var/lib/cni/rdma-ipam

bold='' dim='' green='' plain=''
if [[ ${DEMO_COLOUR:-} == 1 ]]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'
fi

step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
# show COMMAND...: the command as a person would type it, and what it prints.
show() {
	printf '%s  $ %s%s\n' "$dim" "$*" "$plain"
	"$@" 2>&1 | { sed 's/^/    /' && printf '\n'; } | sed '/^$/d'
}
fact() { printf '  %s✔%s %s\n' "$green" "$plain" "$*"; }
broken() {
	printf '  ✘ %s\n' "$*"
	exit 1
}
address() { ip -n "$1" -json -4 addr show net1 | jq -r '.[0].addr_info[0].local'; }

attach() { show env CNI_IFNAME=net1 cnitool add "$1" "/run/netns/$2"; }

step '1. A node with two InfiniBand ports'
ip link set ib0 up
ip link set ib1 up
for port in ib0 ib1; do
	for ((i = 0; i < 100; i++)); do
		[[ $(cat "/sys/class/net/$port/carrier") == 1 ]] && break
		sleep 0.1
	done
done
show rdma link
show ip -brief link show type ipoib

step '2. Two pods, each with a network of its own'
for pod in pod-a pod-b; do
	ip netns add "$pod"
	ip -n "$pod" link set lo up
done
show ip netns list

step '3. The range in the configuration, and what it excludes'
show jq -c '.plugins[0].ipam | {network_name, ranges}' /etc/cni/net.d/ipoib-rail0.conflist

step '4. A container runtime calls the plugins: pod-a on port ib0, pod-b on port ib1'
attach rail0 pod-a
attach rail1 pod-b
a=$(address pod-a) b=$(address pod-b)
show ip -n pod-a -brief addr show net1
show ip -n pod-b -brief addr show net1
[[ $a == 192.168.5.130 && $b == 192.168.5.135 ]] || broken "expected .130 and .135, the first addresses outside the exclusions; got $a and $b"
fact "$a and $b: .129, .131 to .134 and .136 are excluded and were skipped"
show sh -c "cd $store && find . -type f"

step '5. pod-a reaches pod-b over InfiniBand'
show ip netns exec pod-a ping -c 3 -i 0.3 "$b"
show ip -n pod-a neigh show dev net1 nud reachable
fact 'the neighbour has a 20-byte InfiniBand address'

step '6. RDMA between the pods (ib_write_bw, RC)'
ip netns exec pod-b ib_write_bw -d softib1 -D 1 -F >/tmp/server.log 2>&1 &
server=$!
for ((i = 0; i < 100; i++)); do
	ip netns exec pod-b ss -Hltn 'sport = :18515' | grep -q . && break
	sleep 0.1
done
show ip netns exec pod-a ib_write_bw -d softib0 -D 1 -F "$b"
wait "$server" || broken "the server failed: $(tail -n 3 /tmp/server.log)"

step '7. The runtime takes the pods away again'
show env CNI_IFNAME=net1 cnitool del rail0 /run/netns/pod-a
show env CNI_IFNAME=net1 cnitool del rail1 /run/netns/pod-b
for pod in pod-a pod-b; do
	! ip -n "$pod" link show net1 >/dev/null 2>&1 || broken "$pod still has net1"
done
fact 'no interface is left in the pods'
left=$(ip -json -d link show type ipoib | jq -r '.[] | select(.ifname != "ib0" and .ifname != "ib1") | .ifname')
[[ -z $left ]] || broken "links are left on the host: $left"
fact 'no interface is left on the host'
left=$(find /run/rdmanet -type f)
[[ -z $left ]] || broken "attachments are left: $left"
fact 'no attachment is written down'
left=$(find "$store" -type f \( -path '*/leases/*' -o -path '*/addresses/*' \))
[[ -z $left ]] || broken "addresses are left: $left"
fact 'no address is allocated'
printf '\n'
