#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mount-fs KIND MIB [PROGRAM ARGUMENT...]: mount a new file system at /tmp; on a RAM disk of that size, if a program
# makes it. The modules of this kernel are in the order in which they are loaded.

set -e
b=/bin/busybox
kind=$1 kib=$(($2 << 10)) disk=/dev/ram0
shift 2

if [ $# -gt 0 ]; then
	for module in /lib/lab/modules/"$($b uname -r)/$kind"/*; do
		[ -e "$module" ] || continue
		case $module in
		*/??-brd.ko*) $b insmod "$module" rd_nr=1 rd_size="$kib" ;;
		*) $b insmod "$module" ;;
		esac
	done
	[ -b $disk ] || $b mknod $disk b 1 0
	"$@" $disk
	$b mount -t "$kind" $disk /tmp
else
	$b mount -t "$kind" none /tmp
fi
$b chmod 1777 /tmp
# A later mount hides an earlier one.
there=$($b grep ' /tmp ' /proc/mounts | $b tail -n 1 | $b cut -d ' ' -f 3)
[ "$there" = "$kind" ] || { echo "/tmp is $there, not $kind" >&2; exit 1; }
