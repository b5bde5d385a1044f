/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A kernel that means harm, as a vmlinux for PVH: it says that it is Linux, waits for a second, so that a test sees its
 * QEMU before it is gone, and overwrites all memory and what is mapped behind it, itself as well.
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
	movl	$400000000, %ecx
0:	loop	0b

again:
	movl	$0xabf3abf3, %eax	/* twice `rep stosl`: what it is overwritten by goes on with it */
	xorl	%edi, %edi
	movl	$1 << 30, %ecx
	cld
	rep stosl
	jmp	again
