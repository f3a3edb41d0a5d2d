#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The first two acts. Runs inside the fabric's VM, which tests/demo/run boots for each act:
#
#   vm.sh first|second
#
# First act: two pods get IPoIB interfaces from cni-ipoib and addresses from rdma-ipam, exchange packets over InfiniBand, and
# leave nothing behind. Second act: the cable of a bond's active port is pulled. Then two pods get a whole port each, with its
# RDMA device, which no other pod sees.
#
# The script fails at the first check that fails.
set -euo pipefail

# shellcheck source=tests/demo/show.sh
source "$(dirname "${BASH_SOURCE[0]}")/show.sh"

export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d PATH=/opt/cni/bin:$PATH
store=/var/lib/cni/rdma-ipam

address() { ip -n "$1" -json -4 addr show net1 | jq -r '.[0].addr_info[0].local'; }

# soon WHAT COMMAND...: waits up to two minutes until COMMAND succeeds. WHAT is the sentence that holds then.
soon() {
	local what=$1 last=$((SECONDS + 120))
	shift
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS >= last)); then
			"$@" || broken "not within two minutes: $what"
			return
		fi
		sleep 0.1
	done
}

attach() { show env CNI_IFNAME=net1 cnitool add "$1" "/run/netns/$2"; }
detach() { show env CNI_IFNAME=net1 cnitool del "$1" "/run/netns/$2"; }
has_carrier() { [[ $(cat "/sys/class/net/$1/carrier") == 1 ]]; }
carrier() {
	local port
	for port in "$@"; do soon "$port has carrier" has_carrier "$port"; done
}
pods() {
	for pod in pod-a pod-b; do
		ip netns add "$pod"
		ip -n "$pod" link set lo up
	done
}
server_listens() { [[ -n $(ip netns exec pod-b ss -Hltn 'sport = :18515') ]]; }
# bandwidth DEVICE_A DEVICE_B ADDRESS_OF_B: runs ib_write_bw from pod-a to pod-b.
bandwidth() {
	ip netns exec pod-b ib_write_bw -d "$2" -D 1 -F >/tmp/server.log 2>&1 &
	local server=$!
	soon 'the server of ib_write_bw listens in pod-b' server_listens
	show ip netns exec pod-a ib_write_bw -d "$1" -D 1 -F "$3"
	wait "$server" || broken "the server failed: $(tail -n 3 /tmp/server.log)"
}
# shape: prints the links of the host. It leaves out the first four bytes of an IPoIB address, which hold the queue pair number.
shape() { ip -json addr show | jq -S '[.[] | {ifname, mtu, flags, guid: .address[12:], addresses: [.addr_info[].local]}] | sort_by(.ifname)'; }
# nothing_left: checks the three places where an attachment could have left something.
nothing_left() {
	local left
	left=$(ip -json -d link show type ipoib | jq -r '.[] | select(.ifname | test("^ib[012]$") | not) | .ifname')
	[[ -z $left ]] || broken "links are left on the host: $left"
	left=$(find /run/rdmanet -type f)
	[[ -z $left ]] || broken "attachments are left: $left"
	left=$(find "$store" -type f \( -path '*/leases/*' -o -path '*/addresses/*' \))
	[[ -z $left ]] || broken "addresses are left: $left"
	fact 'no interface is left in the pods or on the host, no attachment written down, no address allocated'
}

ip link set ib0 up
ip link set ib1 up
ip link set ib2 up
carrier ib0 ib1 ib2

first_act() {
	step '1. A node with three InfiniBand ports'
	show rdma link
	show ip -brief link show type ipoib

	step '2. Two pods, each with a network of its own'
	pods
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
	bandwidth softib0 softib1 "$b"

	step '7. The runtime takes the pods away again'
	detach rail0 pod-a
	detach rail1 pod-b
	for pod in pod-a pod-b; do
		! ip -n "$pod" link show net1 >/dev/null 2>&1 || broken "$pod still has net1"
	done
	nothing_left
}

second_act() {
	pods
	step '8. A bond of two ports, and two pods on it'
	ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100
	for port in ib0 ib1; do
		ip link set "$port" down
		ip link set "$port" master bond0
	done
	ip link set bond0 up
	carrier bond0
	show jq -c '.plugins[0] | {type, master, bond}' /etc/cni/net.d/ipoib-bond.conflist
	attach fabric-bond pod-a
	attach fabric-bond pod-b
	show ip -n pod-a -brief link show
	both_ports() { [[ $(ip netns exec pod-a cat /sys/class/net/net1p{0,1}/carrier) == $'1\n1' ]]; }
	soon 'both ports of the bond in pod-a have carrier' both_ports

	step '9. The cable of the active port is pulled while they ping each other'
	ip netns exec pod-a ping -n -i 0.05 -c 80 "$(address pod-b)" >/tmp/ping.log 2>&1 &
	ping=$!
	sleep 1
	show sh -c 'echo 0 > /sys/devices/platform/softib.0/link'
	wait "$ping" || true
	soon 'the pods reach each other over the other port' ip netns exec pod-a ping -n -c 1 -W 1 "$(address pod-b)"
	show ip netns exec pod-a grep 'Currently Active' /proc/net/bonding/net1
	# Requests in a row without an answer: a machine that stops the VM for a while does not count.
	gap=$({ sed -n 's/.*bytes from.*icmp_seq=\([0-9]*\) .*/\1/p' /tmp/ping.log | sort -n && echo 81; } |
		awk '$1 - last - 1 > gap { gap = $1 - last - 1 } { last = $1 } END { print gap * 50 }')
	answers=$(grep -c 'bytes from' /tmp/ping.log)
	fact "$answers answers, the longest time without one: $gap ms"
	echo 1 >/sys/devices/platform/softib.0/link
	detach fabric-bond pod-a
	detach fabric-bond pod-b
	ip link del bond0
	nothing_left

	step '10. A whole port each, with its RDMA device: the node goes to exclusive mode, which it can while it has no pods'
	ip netns del pod-a
	ip netns del pod-b
	soon 'the RDMA subsystem is in exclusive mode' rdma system set netns exclusive
	show rdma system
	ip link set ib0 up
	ip link set ib1 up
	carrier ib0 ib1 ib2
	shape >/tmp/before.json
	pods
	show jq -c '.plugins[0] | {type, mode, master}' /etc/cni/net.d/device-any.conflist
	attach whole-port-any pod-a
	attach whole-port-any pod-b
	for pod in pod-a pod-b; do show ip netns exec "$pod" rdma link; done
	show rdma link
	device() { ip netns exec "$1" rdma -j link | jq -r '.[0].ifname'; }
	a=$(device pod-a) b=$(device pod-b)
	[[ -n $a && -n $b && $a != "$b" && $(rdma -j link | jq length) == 1 ]] || broken "pod-a has $a, pod-b has $b"
	fact "pod-a sees $a alone, pod-b $b, and the host neither"
	bandwidth "$a" "$b" "$(address pod-b)"

	step '11. And everything comes back as it was'
	detach whole-port-any pod-a
	detach whole-port-any pod-b
	carrier ib0 ib1 ib2
	show rdma link
	as_before() { shape | diff /tmp/before.json -; }
	soon 'the host has the same links as before' as_before
	fact 'name, address, MTU and flags of each port are what they were'
	nothing_left
}

case ${1:-} in
first | second) "${1}_act" ;;
*) broken 'say which act: first or second' ;;
esac
printf '\n'
