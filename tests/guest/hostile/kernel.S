/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A kernel that means harm, as a vmlinux for PVH: it says that it is Linux, and does one thing without end.
 * -DOFF: waits with interrupts off. -DSPIN: runs with interrupts off.
 */

	.section .note.Xen, "a", @note
	.long	4, 4, 18		/* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz	"Xen"
	.long	start

	.section .rodata
	.asciz	"Linux version 6.12.0-hostile (nobody@nowhere) (gcc) #1 SMP"

	.text
	.code32
	.globl	start
start:
	cli
again:
#ifdef OFF
	hlt
#endif
	jmp	again
