#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows where the processor time of an ADD goes: cni-ipoib and its IPAM plugin, by what the
# kernel does for them, from samples of their stacks (perf). Then it shows the system calls in
# which the threads of an ADD spend most time, waiting included (strace).
#
# usage: tests/bench/profile.sh MASTER [RUNS]
#
# RUNS is the number of ADDs for each of the two tables (default 60). RDMANET_BIN holds
# cni-ipoib and rdma-ipam, by default /opt/cni/bin. Runs as root. A sample belongs to the first line of `kinds` of which
# a function is in its stack.
set -euo pipefail

master=${1:?usage: profile.sh MASTER [RUNS]} runs=${2:-60}
bin=${RDMANET_BIN:-/opt/cni/bin}
dir=$(mktemp -d)
pod=rdmanet-profile-$$
trap 'ip netns del "$pod" 2>/dev/null || true; rm -rf "$dir"' EXIT
export RDMANET_STATE=$dir/state CNI_PATH=$bin CNI_IFNAME=net1 CNI_NETNS=/run/netns/$pod
conf="{\"cniVersion\": \"1.1.0\", \"name\": \"bench\", \"type\": \"cni-ipoib\", \"master\": \"$master\",
 \"ipam\": {\"type\": \"rdma-ipam\", \"dataDir\": \"$dir/ipam\", \"subnet\": \"10.99.0.0/16\", \"cooldown\": 0}}"

cat >"$dir/kinds" <<-'KINDS'
	execve|bprm_execve : exec
	kernel_clone|ret_from_fork : fork and clone
	netlink_|rtnetlink_ : netlink
	exc_page_fault : page faults
	sys_openat|sys_open|sys_read|ksys_read|ksys_write|vfs_|rename|flock|fcntl|linkat|sys_link|unlink|getdents|mkdir|stat|readlink|task_work_run|close : files
	mmap|munmap|brk|mprotect : memory maps
	do_exit|exit_mmap|do_group_exit : exit
KINDS

# add COMMAND...: makes a pod, runs COMMAND, which attaches it, and removes both.
add() {
	ip netns add "$pod"
	CNI_COMMAND=ADD "$@" "$bin/cni-ipoib" <<<"$conf" >"$dir/answer"
	CNI_COMMAND=DEL "$bin/cni-ipoib" <<<"$conf" >"$dir/answer"
	ip netns del "$pod"
}

for ((run = 0; run < runs; run++)); do
	export CNI_CONTAINERID=c$run
	add perf record -q -e cpu-clock -F 20000 -g -o "$dir/data"
	perf script -i "$dir/data" >>"$dir/samples"
	add strace -f -c -w -A -o "$dir/calls"
done
awk -v runs="$runs" -v RS= '
	BEGIN {
		RSOLD = RS; RS = "\n"
		while ((getline line < ARGV[1]) > 0) { split(line, part, " : "); of[++n] = part[1]; name[n] = part[2] }
		RS = RSOLD; ARGV[1] = ""
	}
	{
		kind = /kernel.kallsyms/ ? "other work of the kernel" : "the plugins themselves"
		for (i = 1; i <= n; i++) if ($0 ~ of[i]) { kind = name[i]; break }
		count[kind]++; all++
	}
	END {
		for (kind in count) printf "%5.1f %% %6.2f ms  %s\n", 100 * count[kind] / all, count[kind] / runs / 20, kind
		printf "100.0 %% %6.2f ms  all\n", all / runs / 20
	}' "$dir/kinds" "$dir/samples" | sort -rn
# The columns of strace: share, seconds, microseconds of a call, calls, errors (may be empty), name.
echo
awk -v runs="$runs" '
	$1 ~ /^[0-9.]+$/ && $NF != "total" { seconds[$NF] += $2; calls[$NF] += $4 }
	END { for (name in calls) printf "%8.2f ms %6.1f calls  %s\n", seconds[name] * 1000 / runs, calls[name] / runs, name }
' "$dir/calls" | sort -rn | head -n 12
