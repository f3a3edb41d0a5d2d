#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the guarantees of tests/fabric/run on the host:
#     tests/fabric/selftest-host.sh [WORDS...]
# Prints a sentence per case and a summary; exits with 1 if a case fails. With WORDS it runs only the cases whose
# sentences contain one of them.
# shellcheck disable=SC2016 # expanded in the VM
set -uo pipefail

run=$(cd "$(dirname "$0")" && pwd)/run
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The VM has no plugins of this repository unless a case adds some: the result must not depend on the build.
export RDMANET_BIN=$dir/bin TMPDIR=$dir/tmp
# One emulated processor costs less than two, and no case depends on concurrency.
export RDMANET_FABRIC_ARGS='--smp 1'
mkdir "$RDMANET_BIN" "$TMPDIR"
passed=0 failed=0

words=("$@")
wanted() {
	local word
	((${#words[@]})) || return 0
	for word in "${words[@]}"; do [[ $1 != *"$word"* ]] || return 0; done
	return 1
}

# holds SENTENCE COMMAND...: the case passes if the command succeeds.
holds() {
	local sentence=$1 log
	shift
	wanted "$sentence" || return 0
	if log=$("$@" 2>&1); then
		echo "ok - $sentence"
		passed=$((passed + 1))
	else
		echo "not ok - $sentence"
		tail -n 15 <<<"$log" | sed 's/^/    /'
		failed=$((failed + 1))
	fi
}

# script NAME: writes standard input to a script and prints its path.
script() {
	{ echo '#!/bin/bash'; cat; } >"$dir/$1"
	chmod +x "$dir/$1"
	echo "$dir/$1"
}

# is VALUE EXPECTED: compares two texts.
is() { [[ $1 == "$2" ]] || { echo "got: '$1'"; echo "expected: '$2'"; return 1; }; }

# gives STATUS COMMAND...: COMMAND must exit with STATUS. Its output goes to $dir/out and $dir/err.
gives() {
	local expected=$1 status=0
	shift
	"$@" >"$dir/out" 2>"$dir/err" || status=$?
	((status == expected)) || { echo "status $status, not $expected"; cat "$dir/out" "$dir/err"; return 1; }
}

says() { grep -qE "$2" "$dir/$1" || { echo "no '$2' in $1:"; cat "$dir/$1"; return 1; }; }

# listener FILE CODE: runs Perl's CODE in the background, where $listener is a TCP listener of this machine, and writes its port to FILE.
# It ends by itself after ten minutes. It does not inherit the output of the case, so a case that fails does not wait
# for it.
listener() {
	local pid
	rm -f "$1"
	perl -MIO::Socket::INET -e '
		$| = 1;
		alarm 600;
		my $listener = IO::Socket::INET->new(Listen => 2, LocalAddr => "127.0.0.1") or die $!;
		print $listener->sockport, "\n";
		'"$2" >"$1" 2>"$1.err" &
	pid=$!
	until [[ -s $1 ]]; do kill -0 "$pid" || { cat "$1.err"; return 1; }; sleep 0.1; done
}

# A listener that replies to each of two connections with the line it received, and one whose port is not forwarded.
forward() {
	local s port other
	listener "$dir/port" 'for (1 .. 2) { my $peer = $listener->accept; my $line = <$peer>; print $peer "heard $line"; close $peer }' || return
	port=$(<"$dir/port")
	listener "$dir/other" '$listener->accept' || return
	other=$(<"$dir/other")
	s=$(script forward <<-'EOF'
		for word in one two; do exec 3<>/dev/tcp/10.0.2.100/$1; echo $word >&3; cat <&3; done
		timeout 3 bash -c ': <"/dev/tcp/10.0.2.2/$0"' "$2" 2>/dev/null && echo out
		ip -brief addr show host0 | awk '{ print $3 }'
	EOF
	)
	gives 0 "$run" --nics 1 --forward "$port" "$s" "$port" "$other" || return
	is "$(<"$dir/out")" $'heard one\nheard two\n10.0.2.15/24'
}

# Port 23 of the VM, and another address of the VM, in both directions.
publish() {
	local s port pid said=''
	s=$(script publish <<-'EOF'
		nc -ll -p 23 -e /script/answer </dev/null &
		: </dev/tcp/10.0.2.97/443 && echo through
		until [[ -e /tmp/asked ]]; do sleep 0.1; done
	EOF
	)
	script answer <<<'read -r word && [[ -n $word ]] && echo "heard $word" && touch /tmp/asked' >/dev/null
	listener "$dir/published" '$listener->accept' || return
	# The kernel chooses a free port, so that two runs do not choose the same one.
	port=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport') || return
	"$run" --forward "$(<"$dir/published")@10.0.2.97:443" --publish "$port:10.0.2.15:23" "$s" >"$dir/out" 2>"$dir/err" &
	pid=$!
	while [[ $said != heard* ]] && kill -0 "$pid"; do
		said=$({ exec 3<>"/dev/tcp/127.0.0.1/$port" && echo hello >&3 && cat <&3; } 2>/dev/null) || true
		sleep 0.2
	done
	wait "$pid" && is "$said" 'heard hello' && is "$(<"$dir/out")" through
}

disks() {
	local s
	s=$(script disks <<-'EOF'
		grep -c memory /sys/fs/cgroup/cgroup.controllers
		[[ ! -e /proc/net/if_inet6 ]] && echo no IPv6
		for disk in vda vdb; do
			mkdir -p "/tmp/$disk"
			mount -t ext4 "/dev/$disk" "/tmp/$disk" && cat "/tmp/$disk/word" 2>/dev/null
			echo "$disk" >"/tmp/$disk/word"
			umount "/tmp/$disk"
		done
	EOF
	)
	truncate -s 16M "$dir/disk" "$dir/scratch"
	mke2fs -q -t ext4 "$dir/disk" && mke2fs -q -t ext4 "$dir/scratch" || return
	gives 0 "$run" --accounting --no-ipv6 --disk "$dir/disk" --scratch-disk "$dir/scratch" "$s" && is "$(<"$dir/out")" $'1\nno IPv6' || return
	gives 1 "$run" --disk "$dir/disk" --scratch-disk "$dir/scratch" "$(script again <<<'grep -q memory /sys/fs/cgroup/cgroup.controllers')" || return
	gives 0 "$run" --accounting --disk "$dir/disk" --scratch-disk "$dir/scratch" "$s" && is "$(<"$dir/out")" $'1\nvda'
}

arguments() {
	local s odd
	s=$(script args <<<'printf "<%s>" "$#" "$@"')
	odd=$'two\nlines'
	gives 0 "$run" "$s" 'a b' '' '"q" $x `y`' "it's" "$odd" --hcas '*' || return
	is "$(<"$dir/out")" "<7><a b><><\"q\" \$x \`y\`><it's><$odd><--hcas><*>"
}

directory() {
	mkdir -p "$dir/a directory, of mine/sub"
	echo neighbour >"$dir/a directory, of mine/sub/data"
	local s
	s=$(script 'a directory, of mine/look' <<<'cat sub/data && ! touch new 2>/dev/null && touch /tmp/t /run/t /var/t && hostname && ls /run/netns')
	(cd / && gives 0 "$run" "$s") && is "$(<"$dir/out")" $'neighbour\nfabric'
}

program() {
	cc -static -x c -o "$dir/program" - <<-'EOF' || return
		#include <stdio.h>
		int main(int count, char **words) { return count != 3 || printf("%s %s\n", words[1], words[2]) != 8; }
	EOF
	gives 0 "$run" "$dir/program" one two && is "$(<"$dir/out")" 'one two'
}

both_streams() {
	local s
	s=$(script streams <<<'echo one; echo two >&2; ip link set ib0 up; echo three; modprobe dummy; echo four >&2')
	gives 0 "$run" "$s" && is "$(<"$dir/out")" $'one\ntwo\nthree\nfour'
}

# The script cannot end before the reader has its first line: the script waits for a listener's reply, and the listener
# waits for the reader.
streamed() {
	local s first rest
	perl -MIO::Socket::INET -e '
		$| = 1;
		alarm 300;
		my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $!;
		print $listener->sockport, "\n";
		my $peer = $listener->accept;
		select(undef, undef, undef, 0.1) until -e $ARGV[0];
		print $peer "late\n";
	' "$dir/read" >"$dir/streamed" &
	until [[ -s $dir/streamed ]]; do sleep 0.1; done
	s=$(script slow <<<'echo early; exec 3<>/dev/tcp/10.0.2.100/$1; cat <&3')
	{ IFS= read -r first; touch "$dir/read"; rest=$(cat); } < <("$run" --forward "$(<"$dir/streamed")" "$s" "$(<"$dir/streamed")" 2>/dev/null)
	is "$first $rest" 'early late'
}

much_output() {
	local s
	s=$(script much <<<'seq 1 1500000')
	gives 0 "$run" "$s" && is "$(sha256sum <"$dir/out")" "$(seq 1 1500000 | sha256sum)"
}

reader_that_leaves() {
	local s statuses
	s=$(script chatty <<<'seq 1 200000')
	timeout 120 "$run" "$s" 2>/dev/null | sed -n '1{p;q}' >"$dir/out"
	statuses=${PIPESTATUS[*]}
	is "$statuses" '0 0' && is "$(<"$dir/out")" 1
}

# On a busy machine the boot alone may exceed the limit, so the next attempt has a longer one.
hang() {
	local s limit
	s=$(script hang <<<'echo before; sleep 1000')
	for limit in 20 80 320; do
		gives 125 "$run" --timeout "$limit" "$s" && says err "ended after $limit s" || return
		! grep -q 'had not started' "$dir/err" || continue
		says out '^before$' && says err 'had started and had not finished' && says err 'panic.*NMI: Not continuing' && says err 'RIP: '
		return
	done
	echo 'the script did not start within 320 s'
	return 1
}

# The TSC of a VM may run faster than the host's clock.
clock() {
	local s kernel
	s=$(script clock <<<'cat /sys/devices/system/clocksource/clocksource0/current_clocksource')
	for kernel in 5.10 6.1 current; do
		gives 0 "$run" --kernel "$kernel" "$s" && says out '^hpet$' || return
	done
}

# No VM starts its script within a second.
boot_hang() {
	local s
	s=$(script boot_hang <<<'echo started')
	gives 125 "$run" --boot-timeout 1 "$s" && says err 'ended after 1 s \(--boot-timeout\); .* had not started'
}

panic() {
	local s
	s=$(script panic <<<'sleep 1; echo c >/proc/sysrq-trigger; sleep 60')
	gives 125 "$run" "$s" && says err "fabric: the VM's kernel failed: Kernel panic" && says err 'sysrq_handle_crash|Call Trace|sysrq triggered crash' &&
		[[ -s $(sed -n 's/.*(all of it: \(.*\)):/\1/p' "$dir/err") ]]
}

dead_vm() {
	local s
	s=$(script dead <<<'echo alive; poweroff -f; sleep 60')
	gives 125 "$run" "$s" && says err "ended without the script's status"
}

plugins() {
	local s
	mkdir -p "$dir/one" "$dir/two"
	echo ours >"$RDMANET_BIN/cni-ipoib"
	echo 1 >"$dir/one/peer"
	printf '#!/bin/sh\necho "peer $0"\n' >"$dir/two/peer"
	echo other >"$dir/two/other"
	chmod +x "$dir/two/peer"
	s=$(script plugins <<<'cd /opt/cni/bin && ls && cat cni-ipoib && ./peer && touch own')
	gives 0 "$run" --bin "$dir/one" --bin "$dir/two" "$s" || return
	rm "$RDMANET_BIN/cni-ipoib"
	is "$(<"$dir/out")" $'cni-ipoib\nother\npeer\nours\npeer ./peer' && says err 'without rdma-ipam: not built' && is "$(wc -l <"$dir/err")" 1
}

options() {
	local s
	s=$(script options <<<'rdma link | grep -c ACTIVE; cat /sys/class/infiniband/softib{0,1}/ports/1/pkeys/1 /sys/devices/platform/softib.2/link; rdma system show; echo "$NAME"; cat /shared/file; cat /sys/class/infiniband/softib0/ports/1/rate')
	mkdir -p "$dir/shared"
	echo content >"$dir/shared/file"
	gives 0 env RDMANET_FABRIC_ARGS='--netns-mode exclusive --hcas 4' "$run" --hcas 3 --pkeys 0xffff,0x8001/0xffff,0x8002 --down 2 \
		--env 'NAME=a b' --share "$dir/shared:/shared" --softib rate=40 "$s" || return
	is "$(grep -v copy-on-fork "$dir/out"; grep -o 'netns exclusive' "$dir/out")" $'2\n0x8001\n0x8002\n0\na b\ncontent\n40 Gb/sec (4X QDR)\nnetns exclusive'
}

# one_line STATUS PATTERN COMMAND...: COMMAND must fail with only that line.
one_line() {
	local pattern=$2
	gives "$1" "${@:3}" && says err "$pattern" && is "$(wc -l <"$dir/err")" 1 && is "$(<"$dir/out")" ''
}

bad_use() {
	local s
	s=$(script fine <<<'true')
	: >"$dir/plain"
	one_line 125 "$dir/none: no such file" "$run" "$dir/none" &&
		one_line 125 'not executable' "$run" "$dir/plain" &&
		one_line 125 "hcas '17' is not a number from 1 to 16" "$run" --hcas 17 "$s" &&
		one_line 125 "netns-mode 'private' is none of: shared exclusive" "$run" --netns-mode private "$s" &&
		one_line 125 'option --frobnicate is unknown' "$run" --frobnicate 1 "$s" &&
		one_line 125 "accelerated '0;1' is not a list like 0,2" "$run" --accelerated '0;1' "$s" &&
		one_line 125 "disk '$dir/none' is not a file" "$run" --disk "$dir/none" "$s" &&
		one_line 125 "publish '23' is not PORT:10.0.2.N:PORT" "$run" --publish 23 "$s" &&
		one_line 125 "forward '1@1.2.3.4:5' is not PORT or PORT@10.0.2.N:PORT" "$run" --forward 1@1.2.3.4:5 "$s" &&
		one_line 125 "bin '$dir/none' is not a directory" "$run" --bin "$dir/none" "$s"
}

bad_parameter() {
	local s
	s=$(script fine <<<'true')
	gives 125 "$run" --softib rate=13 "$s" && says err 'had not started' && says err 'rate=13 Gb/s is not a rate'
}

# If a namespace has another link at the index of an accelerated HCA's parent, mlx5 uses it as the parent and corrupts
# memory.
wrong_parent() {
	local s
	s=$(script parent <<-'EOF'
		ip netns add pod
		ip -n pod link add other index "$(cat /sys/class/net/ib0/ifindex)" type dummy
		ip link add link ib0 name net1 netns pod type ipoib
		echo "status $?"
	EOF
	)
	gives 125 "$run" --accelerated 0 "$s" && says out '^status 2$' && says out 'Invalid argument' &&
		says err "fabric: the VM's kernel failed: BUG: softib0: net1 takes other, index" || return
	gives 0 "$run" --accelerated 1 "$s" && says out '^status 0$'
}

ended_by_signal() {
	local s pid qemu status=0
	s=$(script wait <<<'echo up; sleep 1000')
	# The output of an earlier case must not count as this VM's.
	: >"$dir/out"
	"$run" "$s" >"$dir/out" 2>/dev/null &
	pid=$!
	until grep -q up "$dir/out" || ! kill -0 "$pid"; do sleep 0.2; done
	qemu=$(pgrep -P "$(pgrep -P "$pid" timeout)" qemu)
	kill "$pid"
	wait "$pid" || status=$?
	[[ -n $qemu ]] || { echo 'no QEMU was running'; return 1; }
	is "$status" 143 && ! kill -0 "$qemu" 2>/dev/null && is "$(find "$TMPDIR" -name 'fabric.*')" ''
}

side_by_side() {
	local s n pids=() status statuses=()
	s=$(script both <<<'ip link set ib0 up; sleep 2; echo "vm $1"; exit "$2"')
	for n in 1 7 255; do
		"$run" "$s" "$n" "$n" >"$dir/vm$n" 2>/dev/null &
		pids+=($!)
	done
	for n in "${pids[@]}"; do
		status=0
		wait "$n" || status=$?
		statuses+=("$status")
	done
	is "${statuses[*]}" '1 7 255' && is "$(cat "$dir"/vm{1,7,255})" $'vm 1\nvm 7\nvm 255'
}

cached() {
	local first changed copy=$dir/copy/tests/fabric
	first=$("$run" --build-only) || return
	gives 0 "$run" --build-only && is "$(<"$dir/out")" "$first" && is "$(<"$dir/err")" '' || return
	mkdir -p "$copy"
	cp -r "$(dirname "$run")"/. "$copy"
	is "$("$copy/run" --build-only)" "$first" || return
	echo '# changed' >>"$copy/init"
	changed=$("$copy/run" --build-only) && [[ -n $changed && $changed != "$first" ]]
}

holds "a port of this machine is reached through --forward, again and again, and nothing else is" forward
holds "a port of the VM is reached through --publish, and a forwarded one has the address that was asked for" publish
holds "a disk keeps what was written, a scratch disk does not, and memory is accounted on request" disks
holds "arguments arrive as they are: spaces, quotes, nothing, line ends, options" arguments
holds "a script outside the repository sees its directory, read-only, and writes elsewhere" directory
holds "a static program runs as well as a script" program
holds "output and errors come out in order, without the kernel's messages" both_streams
holds "output is streamed while the script runs" streamed
holds "ten megabytes of output arrive whole" much_output
holds "a reader that leaves early does no harm" reader_that_leaves
holds "a hang is an error at the time limit, with the output so far" hang
holds "the clock of a VM follows the host's monotonic clock on each kernel" clock
holds "a boot that does not reach the script is an error at its own limit" boot_hang
holds "a kernel panic is an error with the console's last lines" panic
holds "a VM that dies is an error" dead_vm
holds "/opt/cni/bin has our plugins and those of --bin, the last wins, and is writable" plugins
holds "options reach the fabric, RDMANET_FABRIC_ARGS first" options
holds "an invalid option is reported in one line" bad_use
holds "a parameter that the module refuses is reported with the module's message" bad_parameter
holds "a child that takes a wrong link for its accelerated parent fails the run" wrong_parent
holds "TERM ends the VM and leaves nothing behind" ended_by_signal
holds "three VMs run side by side, and each script's exit status is its command's" side_by_side
holds "the image is built once, and anew when an input changes" cached
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
