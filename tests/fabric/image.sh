#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the boot files of the fabric VM and prints the directory with them (`vmlinux`, `initrd`, `release`, `packages`).
# tests/fabric/run calls it:
#     image.sh 5.10|6.1|current [--refresh]
# With `userland` in place of a kernel, it builds only the first layer and prints its root directory.
#
# There are four layers. Each is a cache entry, named after the hash of its sources and renamed into place when it is
# complete:
#     tools   Debian's userland: packages and programs of the file `tools`
#     kernel  Debian's kernel, its modules, and the files for building another module:
#             6.1 with this host's compiler, 5.10 in a chroot of Debian bullseye, current in one of sid
#     module  softib.ko for that kernel
#     image   tools + kernel + module + init, as an initramfs
# A layer has the package versions of the day of its build; --refresh builds all layers again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${RDMANET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdmanet}/fabric
kernel=${1:?usage: image.sh 5.10|6.1|current|userland [--refresh]}
refresh=${2:-}

die() { echo "fabric: $*" >&2; exit 125; }
say() { echo "fabric: $*" >&2; }

# quietly COMMAND...: runs COMMAND and prints its output only if it fails.
quietly() {
	local log
	log=$(mktemp)
	if ! "$@" >"$log" 2>&1; then
		tail -n 30 "$log" >&2
		rm -f "$log"
		die "'$*' failed (its last lines are above)"
	fi
	rm -f "$log"
}

# digest FILE...: the hash of standard input and of files in this directory, names and contents.
digest() {
	{
		cat
		if (($#)); then (cd "$here" && sha256sum -- "$@"); fi
	} | sha256sum | cut -c1-16
}

# --- programs of the host ---------------------------------------------------

# need PROGRAM PACKAGE: adds PACKAGE to the list if PROGRAM is missing.
missing=()
need() { [[ -n $(type -P "$1") ]] || missing+=("$2"); }

install_missing() {
	((${#missing[@]})) || return 0
	[[ $(id -u) == 0 ]] || die "missing packages: ${missing[*]} (as root: apt-get install ${missing[*]})"
	say "installing ${missing[*]}"
	apt_lists
	quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

require_host() {
	type -P apt-get >/dev/null || die "this host has no apt-get; the image is made of Debian packages"
	need cpio cpio
	need depmod kmod
	need readelf binutils
	need xz xz-utils
	if [[ $kernel == 6.1 ]]; then
		need gcc-12 gcc-12
		need make make
		# The kernel headers' objtool is linked with it.
		[[ -e /usr/lib/x86_64-linux-gnu/libelf.so.1 ]] || missing+=(libelf1)
	elif [[ $kernel != userland ]]; then
		need debootstrap debootstrap
		need zstd zstd
	fi
	install_missing
}

# --- Debian packages --------------------------------------------------------

# The package lists may be missing on a fresh machine, or older than the mirror.
apt_lists() {
	[[ -z ${lists_fresh:-} ]] || return 0
	if [[ $(id -u) == 0 ]]; then
		quietly apt-get update
	elif ! apt-cache show linux-image-amd64 >/dev/null 2>&1; then
		die "apt has no package lists (as root: apt-get update)"
	fi
	lists_fresh=yes
}

# fetch DIRECTORY PACKAGE...: downloads the packages without dependencies.
fetch() {
	local dir=$1
	shift
	# apt's own unprivileged user cannot write into a private directory.
	(cd "$dir" && quietly apt-get -o APT::Sandbox::User=root download "$@")
}

# fetch_closure DIRECTORY PACKAGE...: downloads the packages with all dependencies, including installed ones.
fetch_closure() {
	local dir=$1
	shift
	mkdir -p "$dir/partial"
	quietly apt-get -y -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::State::status=/dev/null \
		-o APT::Install-Recommends=false -o "Dir::Cache::archives=$dir" \
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= --download-only install "$@"
}

# unpack ROOT PACKAGE...
unpack() {
	local root=$1 deb
	shift
	for deb in "$@"; do
		# dpkg-deb -x would replace the link /lib with a directory.
		dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
	done
}

# merged_root DIRECTORY: creates an empty root with /bin, /sbin and /lib inside /usr.
merged_root() {
	local name
	mkdir -p "$1"/usr/{bin,sbin,lib,lib64}
	for name in bin sbin lib lib64; do
		ln -s "usr/$name" "$1/$name"
	done
}

# --- layers -----------------------------------------------------------------

# layer NAME KEY COMMAND...: sets `layer` to the directory of the cache entry. If there is none, calls COMMAND with a new
# directory as its last argument to fill it.
layer() {
	local name=$1 key=$2 work
	shift 2
	layer=$cache/$name-$key
	if [[ -d $layer ]]; then
		touch "$layer"
		return
	fi
	work=$(mktemp -d "$cache/.making-$name.XXXXXX")
	chmod 755 "$work"
	unfinished=$work
	say "building the $name layer ($kernel)"
	"$@" "$work"
	unfinished=
	# No other build can get here first: this one holds the lock.
	mv -T "$work" "$layer"
}

# needed_libraries ROOT PROGRAM...: prints the paths of the programs' libraries, below ROOT.
needed_libraries() {
	local root=$1 program
	shift
	for program in "$@"; do
		[[ $(LC_ALL=C readelf -d "$program" 2>/dev/null) == *NEEDED* ]] || continue
		"$root/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
			--list "$program"
	done | sed -n "s|.*=> $root/\([^ ]*\) .*|\1|p" | sort -u
}

# wanted_files ROOT: prints the files of the list `tools`, with globs resolved.
wanted_files() {
	local package pattern file
	while read -r package pattern; do
		for pattern in $pattern; do
			# shellcheck disable=SC2086 # a glob
			for file in "$1"/$pattern; do
				[[ -e $file || -L $file ]] || die "package ${package%:} has no $pattern any more: correct tests/fabric/tools"
				echo "${file#"$1/"}"
			done
		done
	done < <(grep -v '^#' "$here/tools")
}

# busybox applets only where no real program exists: iproute2's ip has priority, as on a node.
link_applets() {
	local applet
	while read -r applet; do
		[[ -e $1/usr/bin/$applet || -e $1/usr/sbin/$applet ]] || ln -s busybox "$1/usr/bin/$applet"
	done < <("$1/usr/bin/busybox" --list)
}

write_etc() {
	mkdir -p "$1"/{root,etc/modprobe.d,proc,sys,dev,run,tmp,var,fabric,script,opt/cni/bin}
	printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'tcpdump:x:100:100::/:/bin/false' \
		'nobody:x:65534:65534:nobody:/:/bin/false' >"$1/etc/passwd"
	printf '%s\n' 'root:x:0:' 'tty:x:5:' 'tcpdump:x:100:' 'nogroup:x:65534:' >"$1/etc/group"
	printf '%s\n' 'passwd: files' 'group: files' 'hosts: files' >"$1/etc/nsswitch.conf"
	printf '%s\n' '127.0.0.1 localhost fabric' '::1 localhost' >"$1/etc/hosts"
	echo fabric >"$1/etc/hostname"
	# The kernel loads these modules at the first request for a link of their kind. Without the options, each module
	# would create a link by itself.
	printf '%s\n' 'options bonding max_bonds=0' 'options dummy numdummies=0' 'options ifb numifbs=0' \
		>"$1/etc/modprobe.d/fabric.conf"
}

build_tools() {
	local out=$1 tree=$1/.tree debs=$1/.debs file
	local -a packages files
	mapfile -t packages < <(sed -n 's/^\([^#:]*\):.*/\1/p' "$here/tools")
	apt_lists
	mkdir -p "$debs"
	fetch_closure "$debs" "${packages[@]}"
	merged_root "$tree"
	unpack "$tree" "$debs"/*.deb
	merged_root "$out/root"
	files=$(wanted_files "$tree")
	mapfile -t files <<<"$files"
	mapfile -t -O "${#files[@]}" files < <(needed_libraries "$tree" "${files[@]/#/$tree/}")
	files+=(usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 lib64/ld-linux-x86-64.so.2)
	for file in "${files[@]}"; do
		mkdir -p "$out/root/$(dirname "$file")"
		# A link of the package (ping4, modprobe) remains a link; a library's does not need to.
		if [[ $file == */lib/* || $file == lib* ]]; then
			cp -L "$tree/$file" "$out/root/$file"
		else
			cp -a "$tree/$file" "$out/root/$file"
		fi
	done
	ln -sf bash "$out/root/usr/bin/sh"
	link_applets "$out/root"
	write_etc "$out/root"
	(cd "$debs" && ls -- *.deb) >"$out/packages"
	rm -rf "$tree" "$debs"
}

# Reads the output of `apt-cache depends`; prints the first dependency that matches.
first_dependency() { sed -n "s/^ *Depends: \($1\)\$/\1/p" | sed -n 1p; }

# Headers refer to each other by absolute path, so they stay in the cache.
relocate_headers() {
	find "$1/usr/src" -maxdepth 2 -name Makefile -exec sed -i "s|/usr/src/|$1/usr/src/|g" {} +
}

build_kernel_host() {
	local out=$1 image release
	apt_lists
	image=$(apt-cache depends linux-image-amd64 | first_dependency 'linux-image-.*')
	release=${image#linux-image-}
	[[ $release == 6.1.* ]] || die "apt offers kernel '$release', not Debian 12's 6.1: the host must be Debian 12"
	mkdir -p "$out/debs" "$out/tree"
	fetch "$out/debs" "$image" "linux-headers-$release" "linux-headers-${release%-amd64}-common" linux-kbuild-6.1
	merged_root "$out/tree"
	unpack "$out/tree" "$out"/debs/*.deb
	finish_kernel "$out" "$release"
}

# in_chroot ROOT COMMAND...: runs COMMAND in a chroot with /proc, which objtool reads. The mounts are in their own
# namespace, and end with it in any case.
in_chroot() {
	local root=$1
	shift
	# shellcheck disable=SC2016 # the inner shell expands it
	unshare --mount --fork sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
}

# Prints the Debian mirror that apt uses on this machine.
mirror() {
	# shellcheck disable=SC2016 # apt expands it
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | sed -n 1p
}

# build_kernel_chroot SUITE DIRECTORY: SUITE is the name of the Debian release with the kernel.
build_kernel_chroot() {
	local suite=$1 out=$2 release root=$2/chroot packages
	[[ $(id -u) == 0 ]] || die "--kernel $kernel is built in a chroot, which takes root"
	apt_lists
	quietly unshare --mount --fork debootstrap --variant=minbase "$suite" "$root" "$(mirror)"
	# The packages are used as apt delivers them: this root never boots.
	quietly in_chroot "$root" apt-get install -y --no-install-recommends linux-headers-amd64 make
	release=$(in_chroot "$root" apt-cache depends linux-headers-amd64 | first_dependency 'linux-headers-.*')
	release=${release#linux-headers-}
	# In sid, the kernel, its modules and their lists are separate packages, on which the image's package depends.
	mapfile -t packages < <(in_chroot "$root" apt-cache depends "linux-image-$release" |
		sed -n 's/^ *Depends: \(linux-\(base\|binary\|modules\)-.*\)/\1/p')
	packages+=("linux-image-$release")
	# shellcheck disable=SC2016
	quietly in_chroot "$root" sh -c 'cd /var/cache/apt/archives && rm -f ./*.deb && apt-get -o APT::Sandbox::User=root download "$@"' sh "${packages[@]}"
	mkdir -p "$out/debs"
	mv "$root"/var/cache/apt/archives/*.deb "$out/debs/"
	in_chroot "$root" apt-get clean
	rm -rf "${root:?}"/var/lib/apt/lists/*
	merged_root "$out/tree"
	unpack "$out/tree" "$out"/debs/*.deb
	finish_kernel "$out" "$release"
}

# suite_of KERNEL: prints the Debian release with this kernel.
suite_of() { if [[ $1 == 5.10 ]]; then echo bullseye; else echo sid; fi; }

# extract_vmlinux BZIMAGE VMLINUX: extracts the kernel without its decompressor, which takes an emulated machine four
# seconds. QEMU starts the bare kernel at its PVH entry point.
extract_vmlinux() {
	local unpack magic offset
	while read -r unpack magic; do
		while read -r offset; do
			tail -c "+$((offset + 1))" "$1" | "$unpack" -dcq >"$2" 2>/dev/null || true
			[[ $(head -c 4 "$2" | tr -d '\177') != ELF ]] || return 0
		done < <(LC_ALL=C grep -obUaP "$magic" "$1" | LC_ALL=C cut -d : -f 1)
	done <<-'END'
		xz \xfd7zXZ\x00
		zstd \x28\xb5\x2f\xfd
	END
	die "cannot find the kernel inside $1"
}

finish_kernel() {
	local out=$1 release=$2 bzimage
	echo "$release" >"$out/release"
	(cd "$out/debs" && ls -- *.deb) >"$out/packages"
	# Debian moved it in 2026.
	bzimage=$out/tree/boot/vmlinuz-$release
	[[ -e $bzimage ]] || bzimage=$out/tree/lib/modules/$release/vmlinuz
	extract_vmlinux "$bzimage" "$out/vmlinux"
	find "$out/tree/lib/modules/$release/" -name '*.ko.xz' -exec xz -d {} +
	# Most kernel modules drive hardware that the VM does not have.
	(cd "$out/tree/lib/modules/$release/kernel" &&
		rm -rf sound drivers/{ata,bluetooth,gpu,hid,iio,input,leds,md,media,mmc,mtd,nvme,platform,scsi,staging,thunderbolt,usb,video} \
			drivers/net/{ethernet,wireless,usb} drivers/infiniband/{hw,ulp/srpt} net/{bluetooth,mac80211,sctp,wireless})
	depmod -b "$out/tree" "$release"
	rm -rf "$out/debs" "$out/tree/boot" "$out/tree/usr/share"
}

# chroot_make KERNEL_LAYER RELEASE OUT: builds OUT/src with the compiler of the chroot.
chroot_make() {
	local root=$1/chroot release=$2 out=$3 build
	build=$(mktemp -d "$root/tmp/softib.XXXXXX")
	cp "$out"/src/* "$build/"
	quietly in_chroot "$root" make -C "/usr/src/linux-headers-$release" "M=${build#"$root"}" modules
	cp "$build/softib.ko" "$out/src/"
	rm -rf "$build"
}

make_module() {
	local kernel_dir=$1 out=$2 release tree=$1/tree
	release=$(<"$kernel_dir/release")
	mkdir -p "$out/src"
	cp "${sources[@]/#/$here/}" "$out/src/"
	# The kernel's cache entry is valid only at its final path.
	if [[ $kernel == 6.1 ]]; then
		[[ -e $kernel_dir/relocated ]] || { relocate_headers "$tree"; : >"$kernel_dir/relocated"; }
		quietly make -C "$tree/usr/src/linux-headers-$release" "M=$out/src" modules
	else
		chroot_make "$kernel_dir" "$release" "$out"
	fi
	[[ -e $out/src/softib.ko ]] || die "the module's build made no softib.ko"
	strip --strip-debug -o "$out/softib.ko" "$out/src/softib.ko"
	rm -rf "$out/src"
}

# module_files TREE RELEASE: prints the listed modules with their dependencies.
module_files() {
	local use name files
	while read -r use name; do
		if files=$(modprobe -C /dev/null -S "$2" -d "$1" --show-depends "$name" 2>/dev/null); then
			sed -n 's/^insmod \([^ ]*\).*/\1/p' <<<"$files"
		elif [[ $use != some ]]; then
			die "kernel $2 has no module $name: correct tests/fabric/modules"
		fi
	done < <(grep -v '^#' "$here/modules") | sort -u
}

copy_modules() {
	local tree=$1 release=$2 root=$3 file
	while read -r file; do
		file=${file#"$tree/"}
		file=${file#usr/}
		mkdir -p "$root/$(dirname "$file")"
		# Without the signature as well, because its check is slow under emulation.
		strip --strip-debug -o "$root/$file" "$tree/$file"
	done < <(module_files "$tree" "$release")
	cp "$tree/lib/modules/$release/"modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$release/"
}

build_image() {
	local tools=$1 kernel_dir=$2 module=$3 out=$4 release
	release=$(<"$kernel_dir/release")
	cp -a "$tools/root" "$out/root"
	mkdir -p "$out/root/lib/modules/$release/extra"
	copy_modules "$kernel_dir/tree" "$release" "$out/root"
	cp "$module/softib.ko" "$out/root/lib/modules/$release/extra/"
	depmod -b "$out/root" "$release"
	cp "$here/init" "$out/root/init"
	chmod 755 "$out/root/init"
	cp "$here/modules" "$out/root/etc/fabric-modules"
	(cd "$out/root" && find . -print0 | LC_ALL=C sort -z |
		cpio --quiet --null -o -H newc -R 0:0) >"$out/initrd"
	cp "$kernel_dir/vmlinux" "$out/vmlinux"
	echo "$release" >"$out/release"
	cat "$kernel_dir/packages" "$tools/packages" >"$out/packages"
	rm -rf "$out/root"
}

# --- names of the layers ----------------------------------------------------

# A layer depends on its input files, on the functions that build it, and on the layers below.
packages_code=(fetch fetch_closure unpack merged_root)
tools_code=(needed_libraries wanted_files link_applets write_etc build_tools)
kernel_code=(build_kernel_host build_kernel_chroot suite_of extract_vmlinux finish_kernel)
module_code=(relocate_headers make_module chroot_make in_chroot)
image_code=(module_files copy_modules build_image)
sources=("$here"/softib/{Kbuild,*.[ch]})
sources=("${sources[@]#"$here/"}")
tools_key=$(declare -f "${packages_code[@]}" "${tools_code[@]}" | digest tools)
kernel_key=$({ echo "$kernel"; declare -f "${packages_code[@]}" "${kernel_code[@]}"; } | digest)
module_key=$({ echo "$kernel_key"; declare -f "${module_code[@]}"; } | digest "${sources[@]}")
image_key=$({ echo "$tools_key $module_key"; declare -f "${image_code[@]}"; } | digest init modules)
image=$cache/image-$image_key
[[ $kernel != userland ]] || image=$cache/tools-$tools_key/root
if [[ -z $refresh && -d $image ]]; then
	touch "${image%/root}"
	echo "$image"
	exit 0
fi

mkdir -p "$cache"
unfinished=
trap '[[ -z $unfinished ]] || rm -rf "$unfinished"' EXIT
exec {lock}>"$cache/lock"
flock -n "$lock" || { say "waiting for another build of the image"; flock "$lock"; }
if [[ -n $refresh ]]; then
	rm -rf "$cache/tools-$tools_key" "$cache/kernel-$kernel_key" "$cache/module-$module_key" "$image"
fi
if [[ ! -d $image ]]; then
	require_host
	# Removes the remains of killed builds, and layers that no build has used for a week.
	rm -rf "$cache"/.making-*
	find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
	layer tools "$tools_key" build_tools
	tools=$layer
fi
if [[ ! -d $image ]]; then
	if [[ $kernel == 6.1 ]]; then
		layer kernel "$kernel_key" build_kernel_host
	else
		layer kernel "$kernel_key" build_kernel_chroot "$(suite_of "$kernel")"
	fi
	kernel_dir=$layer
	layer module "$module_key" make_module "$kernel_dir"
	layer image "$image_key" build_image "$tools" "$kernel_dir" "$layer"
fi
echo "$image"
