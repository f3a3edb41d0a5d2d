#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the guarantees of the fabric with the tools of an administrator. Runs in the VM:
#     tests/fabric/run [--kernel current] tests/fabric/selftest.sh [CASES...]
# Without names it runs all cases: device ipoib connected_mode link pkey verbs sa_delay mtu bond roce namespace
# accelerated unload.
# `accelerated=LIST` among the names: the later cases run with HCAs of that list accelerated (0,2 or all).
# Prints a sentence per case and a summary; exits with 1 if a case fails.
# Lines with "# ..." record differences between kernels.
# shellcheck disable=SC2016,SC1010 # commands for `all` and `eval`, expanded there; `do` is an argument of ping
set -uo pipefail

passed=0 failed=0

# holds SENTENCE COMMAND...: the case passes if the command succeeds.
holds() {
	local sentence=$1 log
	shift
	if log=$("$@" 2>&1); then
		echo "ok - $sentence"
		passed=$((passed + 1))
	else
		echo "not ok - $sentence"
		echo "    $*"
		tail -n 60 <<<"$log" | sed 's/^/    /'
		failed=$((failed + 1))
	fi
}

no() { ! "$@"; }

# soon COMMAND...: waits up to two minutes until COMMAND succeeds.
soon() {
	local last
	last=$((SECONDS + 120))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < last)) || { "$@"; return; }
		sleep 0.2
	done
}

all() { local command; for command in "$@"; do eval "$command" || { echo "failed: $command"; return 1; }; done; }

hca() { echo "/sys/devices/platform/softib.$1"; }
groups() { cat /sys/kernel/debug/softib/groups; }
in_pod() { ip netns exec "$@"; }
pings() { in_pod "$1" ping -q -c 1 -W 1 "$2"; }
carrier() { [[ $(ip -n "$1" -j link show "$2" | jq -r '.[0].operstate') == UP ]]; }
port_state() { [[ $(rdma -j link show "$1/1" | jq -r '.[0].state') == "$2" ]]; }
# The physical state, LID and subnet manager's LID of a port.
port_lids() { rdma -j link show "$1/1" | jq -r '.[0] | "\(.physical_state) \(.lid) \(.sm_lid)"'; }

# fabric PARAMETER...: loads the module again, which replaces all netdevs.
fabric() {
	modprobe -r softib && modprobe softib "accelerated=$accelerated" "$@"
	local dev
	for dev in /sys/class/net/ib*; do
		ip link set "${dev##*/}" up
	done
}

driver() { ethtool -i "$1" | sed -n 's/^driver: //p'; }
is_accelerated() { [[ $(driver "$1") == mlx5_core* ]]; }

# no_lid NETDEV: the LID that a port reports before it has one.
no_lid() { if is_accelerated "$1"; then echo 65535; else echo 0; fi; }

# child NAMESPACE PARENT NAME [LINK ATTRIBUTE...]: creates an IPoIB child in the way that the parent's driver supports.
# An accelerated child is created beside its parent and moved.
child() {
	local namespace=$1 parent=$2 name=$3
	shift 3
	if is_accelerated "$parent"; then
		ip link add link "$parent" name tmp0 type ipoib "$@" && ip link set tmp0 netns "$namespace" name "$name"
	else
		ip link add link "$parent" name "$name" netns "$namespace" type ipoib "$@"
	fi
}

# pod NAME PARENT ADDRESS [LINK ATTRIBUTE...]: creates a namespace with an IPoIB child.
pod() {
	local name=$1 parent=$2 address=$3
	shift 3
	ip netns add "$name"
	ip -n "$name" link set lo up
	in_pod "$name" sysctl -q -w net.ipv6.conf.default.addr_gen_mode=1
	child "$name" "$parent" net1 "$@" || return
	ip -n "$name" addr add "$address" dev net1
	ip -n "$name" link set net1 up
}

# drop_pods NAME...: deletes the children first; otherwise the kernel moves them to this namespace.
drop_pods() {
	local name
	for name in "$@"; do
		ip -n "$name" link del net1 2>/dev/null
		ip netns del "$name"
	done
}

# listens PORT [in_pod NAMESPACE]: a server waits for its client on this TCP port.
listens() {
	local port=$1
	shift
	[[ -n $("$@" ss -Hltn "sport = :$port") ]]
}

# perf_listens [in_pod NAMESPACE]: the same of a server of perftest.
perf_listens() { listens 18515 "$@"; }

# perf PROGRAM OPTION...: runs a server on softib0 and a client on softib1; both must succeed.
perf() {
	local program=$1 server
	shift
	"$program" -d softib0 -F "${server_options[@]}" "$@" >/tmp/server 2>&1 &
	server=$!
	: >/tmp/client
	if ! soon perf_listens || ! "$program" -d softib1 -F "${client_options[@]}" "$@" localhost >/tmp/client 2>&1; then
		kill "$server" 2>/dev/null
		wait "$server"
		tail -n 5 /tmp/server /tmp/client
		return 1
	fi
	wait "$server"
}
server_options=() client_options=()

device_cases() {
	fabric devices=3 rate=100 down=2
	holds "every HCA is one InfiniBand port with a LID, below a subnet manager" \
		all '[[ $(rdma -j link | jq -c "[.[] | [.ifname, .lid, .sm_lid]]") == "[[\"softib0\",2,1],[\"softib1\",3,1],[\"softib2\",4,1]]" ]]'
	holds "a port whose cable is in is ACTIVE, one whose cable is out is DOWN" \
		all 'port_state softib0 ACTIVE' 'port_state softib2 DOWN'
	holds "sysfs and ibstat report the requested rate" \
		all '[[ $(< /sys/class/infiniband/softib0/ports/1/rate) == "100 Gb/sec (4X EDR)" ]]' 'ibstat softib0 | grep -q "Rate: 100"'
	holds "ibv_devinfo reads transport, GUID and active MTU" \
		all 'ibv_devinfo -d softib1 | grep -q "InfiniBand (0)"' 'ibv_devinfo -d softib1 | grep -q "node_guid:.*5254:00ff:fe00:0002"' \
		'ibv_devinfo -d softib1 | grep -q "active_mtu:.*4096"'
	holds "IPoIB netdevs ib0, ib1, ib2 carry the GUIDs of their ports" \
		all '[[ $(< /sys/class/net/ib2/address) == *:52:54:00:ff:fe:00:00:03 ]]'
	holds "the kernel refuses a macvlan on an InfiniBand parent" \
		no ip link add link ib0 name mv0 type macvlan
	holds "the kernel refuses an ipvlan on an InfiniBand parent" \
		no ip link add link ib0 name iv0 type ipvlan
	holds "the module refuses 17 HCAs, an unknown rate and a broken P_Key list" \
		all 'modprobe -r softib' 'no modprobe softib devices=17' 'no modprobe softib rate=13' 'no modprobe softib pkeys=0xffff,x' \
		'no modprobe softib accelerated=1' 'no modprobe softib accelerated=x' 'no modprobe softib rx_queues=257'
	holds "sixteen HCAs come up, each with its netdev" \
		all 'fabric devices=16' '[[ $(rdma link | grep -c "state ACTIVE") == 16 ]]' '[[ -e /sys/class/net/ib15 ]]'
}

ipoib_cases() {
	fabric devices=3
	pod a ib0 10.0.0.1/24
	pod b ib0 10.0.0.2/24
	pod c ib1 10.0.0.3/24
	holds "two pods on one HCA reach each other over IPoIB" soon pings a 10.0.0.2
	holds "two pods on two HCAs reach each other over IPoIB" soon pings a 10.0.0.3
	holds "the children report the port's MTU after the join" \
		all '[[ $(ip -n a -j link show net1 | jq ".[0].mtu") == 4092 ]]'
	holds "a packet larger than the MTU arrives in fragments" soon in_pod a ping -q -c 1 -W 2 -s 9000 10.0.0.3
	ip -n a addr add fd00::1/64 dev net1 nodad
	ip -n c addr add fd00::3/64 dev net1 nodad
	# No other host joins this group, so its only member is its owner.
	ip -n c addr add fd00::33/64 dev net1 nodad
	holds "neighbour discovery finds a pod on another HCA" soon pings a fd00::3
	holds "the broadcast group lists the ports that joined it" \
		all 'groups | grep "^ff12:401b:ffff:.*:ffff:ffff mlid 0xc001" | grep -q "softib0:full softib1:full"'
	holds "a group exists from the first join on, and is forgotten with the last leave" \
		all 'soon eval "groups | grep -q 601b:ffff:.*:0001:ff00:0033.*softib1:full"' 'ip -n c link set net1 down' \
		'soon no eval "groups | grep -q 601b:ffff:.*:0001:ff00:0033"' 'ip -n c link set net1 up'
	holds "the port's counters count the traffic" \
		all '(( $(< /sys/class/infiniband/softib1/ports/1/counters/port_rcv_packets) > 3 ))'
	holds "perfquery finds a port of another HCA by its GUID and reads its counters" \
		all 'perfquery -C softib0 -G 0x525400fffe000002 | grep -q "PortXmitPkts:[.]*[1-9]"'
	holds "smpquery reads what a port is, by LID and by directed route" \
		all 'smpquery -C softib0 nodedesc 3 | grep -q "[.]softib1"' 'smpquery -C softib0 -D nodeinfo 0 | grep -q 0x525400fffe000001' \
		'smpquery -C softib0 portinfo 3 1 | grep -q "LinkState.*Active"'
	holds "the SA refuses unknown requests as unsupported" \
		all '{ saquery -C softib0 -s 2>&1 || true; } | grep -q "Method/Attribute combination is not supported"'
	ip netns del b
	holds "the child of a dead pod returns to the host under the pod's name" \
		all 'soon eval "ip -j link show net1 | jq -e \".[0].link == \\\"ib0\\\"\""' 'ip link del net1'
	drop_pods a c
}

# Whether a queue pair of type RC exists.
connected_queue_pairs() { rdma resource show qp | grep 'type RC'; }

connected_mode_cases() {
	pod a ib0 10.0.0.1/24 mode connected
	pod b ib1 10.0.0.2/24 mode connected
	ip -n a link set net1 mtu 65520
	ip -n b link set net1 mtu 65520
	holds "children in connected mode reach each other" soon pings a 10.0.0.2
	holds "connected mode carries 60000 octets in one packet" \
		soon in_pod a ping -q -c 1 -W 1 -M do -s 60000 10.0.0.2
	# ipoib destroys a link's completion queues without waiting for the work that ends its connections; it then
	# warns and leaks them. Setting the link down first starts that work. Each connection is a queue pair.
	holds "connected mode has queue pairs of type RC, which end after the links go down" \
		all connected_queue_pairs 'ip -n a link set net1 down' 'ip -n b link set net1 down' 'soon no connected_queue_pairs'
	drop_pods a b
}

link_cases() {
	pod a ib0 10.0.0.1/24
	pod b ib1 10.0.0.2/24
	soon pings a 10.0.0.2
	echo 0 >"$(hca 1)/link"
	holds "pulling the cable takes the port down and the carrier from its children" \
		all 'soon port_state softib1 DOWN' 'soon no carrier b net1'
	holds "a port without cable passes nothing" no pings a 10.0.0.2
	holds "the subnet manager forgets the memberships of a port without cable" \
		no eval 'groups | grep -q softib1'
	echo 1 >"$(hca 1)/link"
	holds "putting the cable back brings port, carrier, memberships and traffic back" \
		all 'soon port_state softib1 ACTIVE' 'soon carrier b net1' 'soon eval "groups | grep -q softib1:full"' 'soon pings a 10.0.0.2'
	echo init >"$(hca 1)/link"
	holds "a port with a cable that no subnet manager has configured is INIT, and its children have no carrier" \
		all 'soon port_state softib1 INIT' 'soon no carrier b net1' '[[ $(< $(hca 1)/link) == init ]]' \
		'ibstat softib1 | grep -q "State: Initializing"' 'smpquery -C softib1 -D portinfo 0 1 | grep -q "LinkState.*Initialize"'
	holds "such a port has no LID and no subnet manager" \
		all '[[ $(port_lids softib1) == "LINK_UP $(no_lid ib1) 0" ]]'
	# On a healthy port saquery fails too, because the subnet administrator refuses its query.
	holds "such a port carries nothing, has no memberships, and has no subnet administrator" \
		all 'no pings a 10.0.0.2' 'no eval "groups | grep -q softib1"' 'fails_with "No SM/SA found" saquery -C softib1 -t 1000 -s'
	echo 1 >"$(hca 1)/link"
	holds "a subnet manager that starts brings port, LID, carrier, memberships and traffic" \
		all 'soon port_state softib1 ACTIVE' '[[ $(port_lids softib1) == "LINK_UP 3 1" ]]' 'soon carrier b net1' \
		'soon eval "groups | grep -q softib1:full"' 'soon pings a 10.0.0.2'
	holds "another word for a cable is refused" no eval "echo inert >$(hca 1)/link"
	echo 77 >"$(hca 1)/lid"
	holds "a port takes a new LID, and traffic follows it" \
		all 'soon eval "[[ \$(rdma -j link show softib1/1 | jq .[0].lid) == 77 ]]"' 'ip -n a neigh flush all' 'soon pings a 10.0.0.2'
	holds "the LID of another port is refused" no eval "echo 2 >$(hca 1)/lid"
	drop_pods a b
}

pkey_cases() {
	# Partition 1: full members 0 and 1. Partition 2: full member 0, limited members 1 and 2.
	fabric devices=3 pkeys=0xffff,0x8001,0x8002/0xffff,0x8001,0x0002/0xffff,0x0002
	holds "each HCA has its own P_Key table" \
		all '[[ $(< /sys/class/infiniband/softib0/ports/1/pkeys/1) == 0x8001 ]]' '[[ $(< /sys/class/infiniband/softib2/ports/1/pkeys/1) == 0x0002 ]]'
	pod a ib0 10.0.0.1/24
	pod one0 ib0 10.0.0.2/24 pkey 0x8001
	pod one1 ib1 10.0.0.3/24 pkey 0x8001
	holds "two pods in partition 0x8001 reach each other" soon pings one0 10.0.0.3
	holds "pods in partitions 0x8001 and 0xffff do not reach each other in either direction" \
		all 'no pings one0 10.0.0.1' 'no pings a 10.0.0.2'
	pod two0 ib0 10.0.2.1/24 pkey 0x8002
	pod two1 ib1 10.0.2.2/24 pkey 0x8002
	pod two2 ib2 10.0.2.3/24 pkey 0x8002
	holds "a full and a limited member of one partition reach each other" \
		all 'soon pings two0 10.0.2.2' 'soon pings two2 10.0.2.1'
	holds "two limited members of one partition do not reach each other" no pings two1 10.0.2.3
	pod none ib2 10.0.1.9/24 pkey 0x8001
	sleep 1
	holds "a child whose P_Key the port lacks gets no carrier and no membership" \
		all 'no carrier none net1' 'no eval "groups | grep 401b:8001 | grep -q softib2"'
	echo 0xffff,0x0002,0x8001 >"$(hca 2)/pkeys"
	ip -n one1 addr add 10.0.1.3/24 dev net1
	holds "a child gets carrier and membership when its P_Key appears in the table" \
		all 'soon carrier none net1' 'soon pings none 10.0.1.3'
	holds "the group of a partition is listed with that partition's P_Key" \
		eval 'groups | grep -q "^ff12:401b:8001:.*pkey 0x8001.*softib0:full"'
	drop_pods a one0 one1 two0 two1 two2 none
	server_options=(--pkey_index 0) client_options=(--pkey_index 1)
	holds "an RC queue pair gets no data from another partition" \
		all 'no perf ib_write_bw -n 5' 'grep -qi "status 12\|retry" /tmp/client'
	holds "a UD queue pair gets no data from another partition" no_datagram_of_another_partition
	server_options=(--pkey_index 1)
	holds "UD queue pairs of one partition exchange datagrams" perf ib_send_bw -c UD -n 50
	holds "RC queue pairs of one partition exchange data" perf ib_write_bw -n 50
	server_options=() client_options=()
}

pkey_violations() { smpquery -C softib0 -D portinfo 0 1 | sed -n 's/^PkeyViolations:[.]*//p'; }

# The port of the server must have rejected each datagram of the client, and the server must still wait for the first one.
no_datagram_of_another_partition() {
	local before server client status=0
	before=$(pkey_violations)
	ib_send_bw -d softib0 -F -c UD -n 5 --pkey_index 0 >/tmp/server 2>&1 &
	server=$!
	soon perf_listens || { cat /tmp/server; kill "$server"; return 1; }
	ib_send_bw -d softib1 -F -c UD -n 5 --pkey_index 1 localhost >/tmp/client 2>&1 &
	client=$!
	soon eval '(( $(pkey_violations) >= before + 5 ))' && kill -0 "$server" || status=1
	kill "$server"
	# The client ends with its server.
	wait "$server" "$client"
	echo "$before violations before, $(pkey_violations) after"
	cat /tmp/server /tmp/client
	return "$status"
}

verbs_cases() {
	fabric devices=2
	holds "RDMA writes over RC cross HCAs" perf ib_write_bw -n 200
	holds "RDMA reads over RC cross HCAs" perf ib_read_bw -n 100
	holds "atomics over RC cross HCAs" perf ib_atomic_bw -n 100
	holds "sends over RC cross HCAs" perf ib_send_bw -n 100
	holds "sends over UC cross HCAs" perf ib_send_bw -c UC -n 100
	holds "datagrams over UD cross HCAs" perf ib_send_bw -c UD -n 100 -s 2048
	holds "an RC request to a port without cable fails when its retries are used up" cable_pulled_under_rc
	pod a ib0 10.0.0.1/24
	pod b ib1 10.0.0.2/24
	soon pings a 10.0.0.2
	holds "the RDMA connection manager connects two pods by their IPoIB addresses" rping_between_pods
	holds "the RDMA connection manager exchanges datagrams between two pods" udaddy_between_pods
	holds "multicast over the RDMA connection manager reaches a pod on another HCA" mckey_between_pods
	drop_pods a b
}

# The octets that a port has sent, in units of four.
sent() { cat "/sys/class/infiniband/$1/ports/1/counters/port_xmit_data"; }

# The cable is pulled while the client writes, which it does for two minutes.
cable_pulled_under_rc() {
	local before server client status
	ib_write_bw -d softib0 -F -D 120 >/tmp/server 2>&1 &
	server=$!
	soon perf_listens || { cat /tmp/server; kill "$server"; return 1; }
	before=$(sent softib1)
	ib_write_bw -d softib1 -F -D 120 localhost >/tmp/client 2>&1 &
	client=$!
	# More than one write of 65536 octets.
	soon eval '(( $(sent softib1) > before + 100000 ))' || { cat /tmp/client; kill "$server" "$client"; return 1; }
	echo 0 >"$(hca 0)/link"
	wait "$client"
	status=$?
	echo 1 >"$(hca 0)/link"
	kill "$server" 2>/dev/null
	wait "$server"
	tail -n 4 /tmp/client
	((status != 0)) && grep -qi 'status 12\|retry' /tmp/client
}

rping_between_pods() {
	in_pod a timeout 300 rping -s -a 10.0.0.1 -C 3 >/tmp/server 2>&1 &
	local server=$!
	# The client is rejected until the server listens.
	soon eval 'in_pod b timeout 120 rping -c -a 10.0.0.1 -C 3 -v >/tmp/client 2>&1'
	cat /tmp/client
	wait "$server" && grep -q 'ping data: rdma-ping-2' /tmp/client
}

# mckey exits before it has sent all of its messages; on a busy machine perhaps before the first one. So the sender
# starts after the receiver has joined, and starts again until the receiver has its message.
mckey_between_pods() {
	in_pod a timeout 300 mckey -m 239.1.1.1 -b 10.0.0.1 -C 1 >/tmp/server 2>&1 &
	local server=$!
	soon eval 'groups | grep "^ff12:4001:ffff" | grep -q softib0:full' || { cat /tmp/server; kill "$server"; return 1; }
	while kill -0 "$server" 2>/dev/null; do
		in_pod b timeout 120 mckey -m 239.1.1.1 -b 10.0.0.2 -s -C 500 >/tmp/client 2>&1
		sleep 0.5
	done
	cat /tmp/client
	wait "$server" && grep -q 'data transfers complete' /tmp/server
}

udaddy_between_pods() {
	in_pod a timeout 300 udaddy -b 10.0.0.1 -C 4 >/tmp/server 2>&1 &
	local server=$!
	# The client is rejected until the server listens.
	soon eval 'in_pod b timeout 120 udaddy -s 10.0.0.1 -C 4 >/tmp/client 2>&1' || { cat /tmp/client; return 1; }
	wait "$server"
}

sa_delay_cases() {
	fabric devices=2 sa_delay=700
	holds "a query to the subnet administrator takes the time of sa_delay" \
		all 'start=${EPOCHREALTIME/./}' '{ saquery -C softib0 -t 20000 -s 2>&1 || true; } | tee /tmp/client | grep "Method/Attribute combination is not supported" || { cat /tmp/client; false; }' \
		'(( ${EPOCHREALTIME/./} - start >= 700000 ))'
	fabric devices=2 pkeys=0xffff,0x8001
	ip netns add a
	child a ib0 net1 pkey 0x8001
	sa_delay 8000
	ip -n a link set net1 up
	# The kernel waits three seconds for a response, and then sends the query again.
	holds "a join whose answer comes too late makes the port a member and gives the child no carrier" \
		all 'soon eval "groups | grep 401b:8001 | grep -q softib0:full"' 'sleep 1' 'no carrier a net1'
	sa_delay 0
	holds "the child has carrier once the subnet administrator answers in time" soon carrier a net1
	drop_pods a
	holds "a query that waits is answered at once when sa_delay becomes shorter" shortened_delay
}

shortened_delay() {
	local client
	# The client gives up after five minutes, long before the first delay has passed.
	sa_delay 3600000
	saquery -C softib0 -t 300000 -s >/tmp/client 2>&1 &
	client=$!
	# saquery polls for the response (system call 7) after it has sent the query.
	soon grep -q '^7 ' "/proc/$client/syscall" || { cat /tmp/client; kill "$client"; sa_delay 0; return 1; }
	sa_delay 0
	wait "$client"
	cat /tmp/client
	grep -q "Method/Attribute combination is not supported" /tmp/client
}

sa_delay() { echo "$1" >/sys/module/softib/parameters/sa_delay; }

mtu_cases() {
	fabric devices=2 group_mtu=2048
	ip netns add a
	child a ib0 net1
	holds "a child starts with the port's MTU" all '[[ $(ip -n a -j link show net1 | jq ".[0].mtu") == 4092 ]]'
	ip -n a link set net1 up
	holds "a child takes the group's MTU after it has joined" \
		soon eval '[[ $(ip -n a -j link show net1 | jq ".[0].mtu") == 2044 ]]'
	drop_pods a
	fabric devices=1 mtu=2048
	holds "ibv_devinfo reports an active MTU of 2048" all 'ibv_devinfo -d softib0 | grep -q "active_mtu:.*2048"'
}

bond_cases() {
	fabric devices=3
	pod peer ib2 10.0.0.9/24
	ip netns add a
	child a ib0 s0
	child a ib1 s1
	ip -n a link add bond0 type bond mode active-backup fail_over_mac active miimon 100
	ip -n a link set s0 master bond0
	ip -n a link set s1 master bond0
	ip -n a addr add 10.0.0.1/24 dev bond0
	ip -n a link set bond0 up
	holds "two children bonded in a pod reach a pod on a third HCA" soon pings a 10.0.0.9
	echo 0 >"$(hca 0)/link"
	holds "bonded children still reach the pod when the active cable is pulled" \
		all 'soon eval "[[ \$(in_pod a cat /sys/class/net/bond0/bonding/active_slave) == s1 ]]"' 'soon pings a 10.0.0.9'
	echo 1 >"$(hca 0)/link"
	ip -n a link del bond0
	ip -n a link del s0
	ip -n a link del s1
	drop_pods peer a
}

roce_cases() {
	ip link add v0 type veth peer name v1
	ip addr add 10.9.0.1/24 dev v0
	ip link set v0 up
	ip link set v1 up
	holds "rdma_rxe makes a RoCE device on a veth" \
		all 'rdma link add rxe0 type rxe netdev v0' 'soon port_state rxe0 ACTIVE' '[[ $(< /sys/class/infiniband/rxe0/ports/1/link_layer) == Ethernet ]]'
	ip link del v0
	local kind
	for kind in dummy macvtap ipvlan vrf; do modprobe "$kind"; done
	ip link add d0 type dummy
	holds "macvlan, ipvlan, VLAN, bridge and vrf work on Ethernet in the VM" \
		all 'ip link add link d0 name mv0 type macvlan mode bridge' 'ip link add link d0 name vl0 type vlan id 5' \
		'ip link add br0 type bridge' 'ip link add vrf0 type vrf table 10' 'ip link del mv0' 'ip link add link d0 name iv0 type ipvlan'
	ip link del d0
	ip link del br0
	ip link del vrf0
}

netdev_of_softib1() {
	ip "$@" -j link | jq -r '.[] | select((.address // "") | endswith(":52:54:00:ff:fe:00:00:02")) | .ifname' | sed -n 1p
}

namespace_cases() {
	fabric devices=3
	holds "the RDMA subsystem goes into exclusive mode" rdma system set netns exclusive
	ip netns add a
	ip netns add b
	ip -n a link set lo up
	ip link add v0 netns a type veth peer name v1 netns b
	ip -n a addr add 10.8.0.1/24 dev v0
	ip -n b addr add 10.8.0.2/24 dev v1
	ip -n a link set v0 up
	ip -n b link set v1 up
	holds "an HCA moves into a namespace" all 'rdma dev set softib1 netns a' 'rdma dev set softib2 netns b'
	holds "an HCA in a namespace is visible only there" all 'no rdma dev show softib1' 'in_pod a rdma dev show softib1' 'no in_pod b rdma dev show softib1'
	holds "the netdev of a moved HCA reappears" soon eval '[[ -n $(netdev_of_softib1)$(netdev_of_softib1 -n a) ]]'
	if [[ -n $(netdev_of_softib1 -n a) ]]; then
		echo "# kernel $(uname -r): the IPoIB netdev follows the HCA into the namespace, as $(netdev_of_softib1 -n a)"
	else
		echo "# kernel $(uname -r): the IPoIB netdev reappears in the host's namespace, as $(netdev_of_softib1)"
	fi
	holds "a device in use can be moved, and its user gets a fatal event" move_while_open
	holds "RDMA writes go from namespace to namespace" write_between_namespaces
	ip netns del a
	holds "an HCA comes back to the host when its namespace dies, netdev and all" \
		all 'soon rdma dev show softib1' 'soon eval "[[ -n \$(netdev_of_softib1) ]]"'
	ip netns del b
	soon rdma dev show softib2
	rdma system set netns shared
}

write_between_namespaces() {
	in_pod a ib_write_bw -d softib1 -F -n 100 >/tmp/server 2>&1 &
	local server=$!
	soon perf_listens in_pod a || { cat /tmp/server; kill "$server"; return 1; }
	in_pod b ib_write_bw -d softib2 -F -n 100 10.8.0.1 >/tmp/client 2>&1 || { cat /tmp/client; kill "$server"; return 1; }
	wait "$server"
}

# Keeps softib0 open in a program while the device moves to a namespace and back.
move_while_open() {
	ip netns add m
	# An earlier output would hide that the program has not opened the device yet.
	: >/tmp/watch
	ibv_asyncwatch -d softib0 >/tmp/watch 2>&1 &
	local watcher=$! status
	soon grep -q 'async event FD' /tmp/watch || { cat /tmp/watch; kill "$watcher"; return 1; }
	rdma dev set softib0 netns m || return
	ip netns del m
	soon rdma dev show softib0 || return
	soon grep -q IBV_EVENT_DEVICE_FATAL /tmp/watch
	status=$?
	kill "$watcher" 2>/dev/null
	wait "$watcher"
	cat /tmp/watch
	return "$status"
}

# fails_with REASON COMMAND...: COMMAND must fail with REASON in its output.
fails_with() {
	local reason=$1 log
	shift
	if log=$("$@" 2>&1); then
		echo "succeeded: $*"
		return 1
	fi
	grep -q "$reason" <<<"$log" || { echo "$log"; return 1; }
}

# The differences between mlx5 and ib_ipoib's own data path; and traffic between both kinds of HCA.
accelerated_cases() {
	local accelerated=0,1 index
	fabric devices=3 pkeys=0xffff,0x8001 rx_queues=2
	holds "a link without children can use fewer channels" all 'ethtool -L ib0 combined 1' 'ethtool -L ib1 combined 1'
	holds "an accelerated HCA's link has the driver name that mlx5's has, a plain one's has its own" \
		all '[[ $(driver ib0) == "mlx5_core[ib_ipoib]" ]]' '[[ $(driver ib2) == ib_ipoib ]]'
	ip netns add a
	holds "an accelerated child cannot be created in a namespace without its parent" \
		fails_with 'Invalid argument' ip link add link ib0 name net1 netns a type ipoib
	holds "a failed creation of an accelerated child leaves nothing in either namespace" \
		all 'no ip -n a link show net1' 'no ip link show net1' 'dmesg | grep -q "its namespace has no link with index"'
	ip netns del a
	holds "an accelerated link has no connected mode" \
		all 'fails_with "Invalid argument" ip link add link ib0 name cm0 type ipoib mode connected' 'no ip link show cm0'
	pod a ib0 10.0.0.1/24
	pod b ib0 10.0.0.2/24
	pod c ib1 10.0.0.3/24
	pod d ib2 10.0.0.4/24
	holds "moved children of one accelerated HCA reach each other" soon pings a 10.0.0.2
	holds "moved children of two accelerated HCAs reach each other" soon pings a 10.0.0.3
	holds "an accelerated and a plain HCA reach each other, in both directions" all 'soon pings a 10.0.0.4' 'soon pings d 10.0.0.3'
	holds "a broadcast reaches the pods of both kinds" soon broadcast_from_a
	holds "TCP carries a megabyte from an accelerated pod to a plain one" megabyte a d 10.0.0.4
	holds "TCP carries a megabyte from a plain pod to an accelerated one" megabyte d a 10.0.0.1
	pod e ib0 10.0.1.1/24 pkey 0x8001
	pod f ib1 10.0.1.2/24 pkey 0x8001
	holds "accelerated children of a partition reach each other" soon pings e 10.0.1.2
	ip -n f addr add 10.0.0.6/24 dev net1
	holds "accelerated children of a partition reach no pod outside of it" no pings a 10.0.0.6
	holds "a link's channels cannot be changed while it has children" \
		all 'fails_with "Invalid argument" ethtool -L ib0 combined 2' 'dmesg | grep -q "keeps its number of channels"'
	ip link set ib1 down
	holds "a child receives nothing while its parent is down" all 'ip -n c link set net1 up' 'no pings a 10.0.0.3'
	ip link set ib1 up
	holds "a child receives again when its parent is up" soon pings a 10.0.0.3
	index=$(ip -n b -j link show net1 | jq '.[0].ifindex')
	ip netns del b
	holds "the child of a dead namespace comes back to the host, down, under the pod's name" \
		all 'soon ip link show net1' '[[ $(ip -j link show net1 | jq -r ".[0].flags | index(\"UP\")") == null ]]'
	holds "the child of a dead namespace keeps its index and its parent" \
		all "[[ \$(ip -j link show net1 | jq '.[0].ifindex') == $index ]]" '[[ $(ip -j link show net1 | jq -r ".[0].link") == ib0 ]]'
	holds "a returned child moves into another pod and works there" \
		all 'ip netns add b' 'ip link set net1 netns b' 'ip -n b addr add 10.0.0.2/24 dev net1' 'ip -n b link set net1 up' 'soon pings a 10.0.0.2'
	drop_pods a b c d e f
	holds "a link's channels can be changed when the children are gone" ethtool -L ib0 combined 2
	holds "deleted children leave no membership in the groups" soon no eval 'groups | grep -q "401b:8001.*softib"'
	fabric devices=2 rx_queues=64
	holds "a netlink child with fewer RX queues than its parent is refused" \
		all 'fails_with "Invalid argument" ip link add link ib0 name c0 type ipoib' 'dmesg | grep -q "fewer than the 64 of its parent"'
	holds "a child created by sysfs has as many RX queues as its parent needs" all 'echo 0x8001 >/sys/class/net/ib0/create_child' 'ip link show ib0.8001' 'echo 0x8001 >/sys/class/net/ib0/delete_child'
}

broadcast_from_a() {
	local pod answered=0
	for pod in a b c d; do in_pod "$pod" sysctl -q -w net.ipv4.icmp_echo_ignore_broadcasts=0; done
	in_pod a ping -b -c 3 -i 0.5 -W 2 10.0.0.255 >/tmp/broadcast 2>&1
	cat /tmp/broadcast
	for pod in 2 3 4; do ! grep -q "from 10.0.0.$pod:" /tmp/broadcast || answered=$((answered + 1)); done
	((answered == 3))
}

# megabyte FROM TO ADDRESS
megabyte() {
	local want got
	head -c 1048576 /dev/urandom >/tmp/sent
	want=$(sha256sum </tmp/sent)
	# The server must not reach the end of its input before it has the data.
	[[ -p /tmp/no_input ]] || mkfifo /tmp/no_input
	in_pod "$2" timeout 240 busybox nc -l -p 7000 <>/tmp/no_input >/tmp/got &
	local server=$!
	soon listens 7000 in_pod "$2" || return
	in_pod "$1" timeout 240 bash -c "cat /tmp/sent >/dev/tcp/$3/7000" || return
	wait "$server"
	got=$(sha256sum </tmp/got)
	[[ $got == "$want" ]] || { echo "$(stat -c %s /tmp/got) octets"; return 1; }
}

unload_cases() {
	holds "the module unloads and loads again, five times, with children and traffic" reload_under_load
	holds "an unloaded module leaves nothing behind" \
		all 'modprobe -r softib' 'no test -e /sys/class/infiniband/softib0' 'no test -e /sys/class/net/ib0' 'no test -e /sys/kernel/debug/softib'
	holds "the kernel logged no error about the module" no complaints
}

# Prints the kernel's complaints that name the module, with the lines before them.
complaints() { dmesg | grep -B 40 -E 'WARNING.*softib|\[softib\]|BUG:|memory leak|use-after-free' | tail -n 60; }

reload_under_load() {
	local round
	for round in {1..5}; do
		echo "round $round"
		fabric devices=2 || return
		pod a ib0 10.0.0.1/24 || return
		pod b ib1 10.0.0.2/24 || return
		soon pings a 10.0.0.2 || return
		in_pod a ping -q -f -w 1 10.0.0.2 >/dev/null &
		sleep 0.3
		modprobe -r softib || return
		wait
		ip netns del a
		ip netns del b
	done
	fabric devices=1
}

echo "# kernel $(uname -r)"
accelerated=''
(($#)) || set -- device ipoib connected_mode link pkey verbs sa_delay mtu bond roce namespace accelerated unload \
	accelerated=all ipoib link pkey mtu bond namespace unload
for cases in "$@"; do
	if [[ $cases == accelerated=* ]]; then
		accelerated=${cases#*=}
		echo "# accelerated HCAs: $accelerated"
	else
		"${cases}_cases"
	fi
done
echo "$passed passed, $failed failed"
((failed == 0))
