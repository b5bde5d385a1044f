/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A kernel that means harm, as a vmlinux for PVH: it says that it is Linux, waits for a second, so that a test sees its
 * QEMU before it is gone, and does one thing without end.
 * -DOFF: waits with interrupts off. -DSPIN: runs with interrupts off. -DPORTS: writes to and reads from random I/O
 * ports. -DMMIO: the same of addresses where microvm and q35 have devices, or nothing. -DFILL: overwrites all memory,
 * itself as well.
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
#if defined(PORTS) || defined(MMIO)
	/* Whatever is raised starts it again: a fault would end the guest. */
	movl	$gdt, gdtr + 2
	lgdt	gdtr
	ljmp	$8, $1f
1:	movl	$idt, %edi
	movl	$256, %ecx
2:	movl	$again, %eax
	movw	%ax, (%edi)
	shrl	$16, %eax
	movw	%ax, 6(%edi)
	movw	$8, 2(%edi)
	movw	$0x8e00, 4(%edi)
	addl	$8, %edi
	loop	2b
	lidt	idtr
	movl	$20260101, %ebx
#endif

again:
	cli
#if defined(OFF)
	hlt
#elif defined(PORTS) || defined(MMIO)
	movl	$stack_top, %esp
	call	random
	movl	%ebx, %esi
	andl	$15, %esi		/* a range, if it is MMIO */
	movl	%ebx, %ebp
	shrl	$4, %ebp
	andl	$7, %ebp		/* a width, and whether to read or to write */
	call	random
# ifdef MMIO
	movl	%ebx, %edi
	movl	%ebx, %eax
	shrl	$12, %eax
	xorl	%eax, %edi
	andl	ranges + 4(,%esi,8), %edi
	addl	ranges(,%esi,8), %edi
	call	random
	movl	%ebx, %eax
	jmp	*accesses(,%ebp,4)
one:	movb	%al, (%edi)
	jmp	again
two:	andl	$~1, %edi
	movw	%ax, (%edi)
	jmp	again
four:	andl	$~3, %edi
	movl	%eax, (%edi)
	jmp	again
read_one: movb	(%edi), %al
	jmp	again
read_four: andl	$~3, %edi
	movl	(%edi), %eax
	jmp	again
# else
	movl	%ebx, %edx
	shrl	$13, %edx
	movzwl	%dx, %edx
	movl	%edx, %eax
	andl	$~7, %eax
	cmpl	$0x600, %eax		/* q35's power, and three ports that start the CPU anew */
	je	again
	cmpl	$0xcf8, %eax
	je	again
	cmpl	$0x60, %eax
	je	again
	cmpl	$0x90, %eax
	je	again
	call	random
	movl	%ebx, %eax
	jmp	*accesses(,%ebp,4)
one:	outb	%al, %dx
	jmp	again
two:	outw	%ax, %dx
	jmp	again
four:	outl	%eax, %dx
	jmp	again
read_one: inb	%dx, %al
	jmp	again
read_four: inl	%dx, %eax
	jmp	again
# endif
#elif defined(FILL)
	movl	$0xabf3abf3, %eax	/* twice `rep stosl`: what it is overwritten by goes on with it */
	xorl	%edi, %edi
	movl	$1 << 30, %ecx
	cld
	rep stosl
#endif
	jmp	again

#if defined(PORTS) || defined(MMIO)
random:					/* numbers of a fixed seed, in %ebx */
	imull	$1664525, %ebx, %ebx
	addl	$1013904223, %ebx
	roll	$7, %ebx
	ret

	.section .rodata
	.balign	8
accesses:
	.long	one, two, four, four, one, four, read_one, read_four
ranges:	/* the first address, and the mask of the others */
	.long	0xa0000, 0x1ffff	/* VGA */
	.long	0xc0000, 0x3ffff	/* ROMs */
	.long	0x80000000, 0x7fffffff	/* all above memory, with the PCI hole */
	.long	0xb0000000, 0xfffff	/* q35: PCI configuration, first bus */
	.long	0xb0000000, 0xffff
	.long	0xc0000000, 0xfffff	/* q35: where devices are put first */
	.long	0xe0000000, 0xfffff	/* microvm: PCI configuration */
	.long	0xfd000000, 0xffffff
	.long	0xfe900000, 0xffff	/* microvm: USB; its power is behind that, and would end the guest */
	.long	0xfeb00000, 0x3fff	/* microvm: virtio */
	.long	0xfec00000, 0xfff	/* IOAPIC */
	.long	0xfec10000, 0xfff
	.long	0xfed00000, 0xfffff	/* HPET, TPM */
	.long	0xfee00000, 0x2ff	/* LAPIC, but for what starts the CPU anew */
	.long	0xfee00320, 0xdf
	.long	0xffc00000, 0x3fffff	/* flash */

	.data
	.balign	8
gdt:	.quad	0, 0x00cf9b000000ffff, 0x00cf93000000ffff
gdtr:	.word	23
	.long	0
idtr:	.word	256 * 8 - 1
	.long	idt
idt:	.fill	256, 8
	.fill	64, 4
stack_top:
#endif
