/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The parts of a program in the machine's own words. Each architecture has
 *
 *	LAB_MARK(code)			a mark (see mark.h)
 *	arch_call6(number, a, ..., f)	a system call: the kernel's own result
 *	arch_clone3(args, size, run)	clone3() with a stack of the child's own, where run() runs
 *	ARCH_ELF_MACHINE, ARCH_EXIT	a program's e_machine, and its code for exit(0)
 */
#ifndef LAB_ARCH_H
#define LAB_ARCH_H

#if defined(__x86_64__)
#include "arch/x86_64.h"
#elif defined(__aarch64__)
#include "arch/arm64.h"
#elif defined(__riscv)
#include "arch/riscv64.h"
#endif

#endif
