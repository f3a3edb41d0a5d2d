# SPDX-License-Identifier: Apache-2.0
#
# What the acts of the demo print, for scripts that source it. DEMO_COLOUR=1 colours the output.

bold='' dim='' green='' plain=''
if [[ ${DEMO_COLOUR:-} == 1 ]]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'
fi

step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
# show COMMAND...: prints the command as a person would type it, and its output.
show() {
	printf '%s  $ %s%s\n' "$dim" "$*" "$plain"
	"$@" 2>&1 | { sed 's/^/    /' && printf '\n'; } | sed '/^$/d'
}
fact() { printf '  %s✔%s %s\n' "$green" "$plain" "$*"; }
broken() {
	printf '  ✘ %s\n' "$*"
	exit 1
}
