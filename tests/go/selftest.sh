#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests the promises of tests/go/build with a cache of its own.
#
#   tests/go/selftest.sh
#
# Prints one sentence per promise and exits with 1 when one is broken.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
export RDMANET_CACHE=$work/cache
passed=0
failed=0

check() {
	local sentence=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "ok - $sentence"
		passed=$((passed + 1))
	else
		echo "not ok - $sentence"
		sed 's/^/    /' "$work/out"
		failed=$((failed + 1))
	fi
}

# build_quietly NAME...: the directory goes to stdout, the progress to $work/progress.
build_quietly() {
	"$here/build" "$@" 2>"$work/progress"
}

one_directory_is_printed() {
	[[ $(build_quietly cnitool host-local) == "$RDMANET_CACHE"/go/set-* && $(build_quietly cnitool host-local | wc -l) == 1 ]]
}

exactly_the_names() {
	diff <(ls "$(build_quietly "$@")") <(printf '%s\n' "$@" | sort)
}

# of_the_readme GROUP: the programs that README.md lists for GROUP.
of_the_readme() {
	awk -F'|' -v group="\`$1\`" 'index($2, group) { gsub(/`/, "", $3); print $3 }' "$here/README.md" | xargs -n 1 | sort
}

every_program_of_the_readme() {
	local mod known
	known=$("$here/build" nosuch 2>&1 | sed 's/.*known: //' | xargs -n 1 | sort)
	for mod in "$here"/*/go.mod; do of_the_readme "$(basename "$(dirname "$mod")")"; done | sort | diff - <(echo "$known")
}

a_group_is_its_programs() {
	diff <(ls "$(build_quietly --group cni)") <(of_the_readme cni)
}

nothing_is_linked_dynamically() {
	local program dir
	dir=$(build_quietly --group cni) || return 1
	for program in "$dir"/*; do
		readelf -l "$program" >"$work/headers" || return 1
		if grep -q INTERP "$work/headers"; then
			echo "$program asks for a dynamic loader"
			return 1
		fi
	done
}

a_plugin_answers() {
	CNI_COMMAND=VERSION "$(build_quietly host-local)/host-local" <<<'{"cniVersion":"1.1.0"}' | grep -q '"1.1.0"'
}

a_second_build_does_nothing() {
	local before after
	before=$(find "$RDMANET_CACHE" -type f -printf '%p %i %T@\n' | sort)
	build_quietly --group cni >/dev/null
	after=$(find "$RDMANET_CACHE" -type f -printf '%p %i %T@\n' | sort)
	diff <(echo "$before") <(echo "$after") && [[ ! -s $work/progress ]]
}

an_input_that_changes_makes_a_new_entry() {
	local dir
	cp -r "$here" "$work/copy"
	echo '// changed' >>"$work/copy/cni/go.mod"
	dir=$("$work/copy/build" cnitool 2>"$work/progress")
	[[ -x $dir/cnitool && $dir != "$(build_quietly cnitool)" ]]
}

a_failed_build_leaves_nothing() {
	local before
	rm -rf "$work/copy"
	cp -r "$here" "$work/copy"
	sed -i 's|cni/cnitool$|cni/no-such-tool|' "$work/copy/cni/go.mod"
	before=$(ls "$RDMANET_CACHE/go")
	if "$work/copy/build" no-such-tool 2>"$work/progress"; then return 1; fi
	grep -q 'cannot build no-such-tool' "$work/progress" && diff <(echo "$before") <(ls "$RDMANET_CACHE/go")
}

builds_at_the_same_time_agree() {
	local one other
	RDMANET_CACHE=$work/shared "$here/build" cnitool >"$work/one" 2>"$work/progress" &
	one=$!
	RDMANET_CACHE=$work/shared "$here/build" cnitool >"$work/other" 2>"$work/progress2" &
	other=$!
	wait "$one" && wait "$other" && cmp "$work/one" "$work/other" && [[ -x $(cat "$work/one")/cnitool ]] &&
		[[ -z $(find "$work/shared" -name 'tmp.*') ]]
}

# without_go COMMAND...: runs it where PATH leads to what it needs before it looks for Go, and to nothing else.
without_go() {
	mkdir -p "$work/few"
	ln -sf "$(command -v bash)" "$(command -v dirname)" "$(command -v mkdir)" "$work/few/"
	env PATH="$work/few" "$@"
}

# refused LINE COMMAND...: fails with one line on stderr that contains LINE.
refused() {
	local line=$1 status=0
	shift
	"$@" 2>"$work/refusal" || status=$?
	cat "$work/refusal"
	[[ $status == 1 && $(wc -l <"$work/refusal") == 1 ]] && grep -qF -e "$line" "$work/refusal"
}

check 'one directory is printed' one_directory_is_printed
check 'the directory holds exactly the programs asked for' exactly_the_names cnitool macvlan
check 'the README lists every program that can be built' every_program_of_the_readme
check 'a group is the programs that the README lists for it' a_group_is_its_programs
check 'every program is static' nothing_is_linked_dynamically
check 'a plugin answers VERSION' a_plugin_answers
check 'a second build does nothing' a_second_build_does_nothing
check 'an input that changes makes a new entry' an_input_that_changes_makes_a_new_entry
check 'a failed build names the failed step and leaves nothing in the cache' a_failed_build_leaves_nothing
check 'two builds at the same time agree' builds_at_the_same_time_agree
check 'an unknown program is refused with the names of the known ones' refused "no program is called 'nosuch'; known: " "$here/build" nosuch
check 'an unknown group is refused with the names of the known ones' refused '--group takes one of: checks cni containerd-oldest containerd controllers deploy dranet etcd kube' "$here/build" --group nosuch
check 'a missing Go is reported in one line' refused 'Go is missing' without_go "$here/build" cnitool

echo "$passed passed, $failed failed"
((failed == 0))
