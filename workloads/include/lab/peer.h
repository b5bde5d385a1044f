/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Processes beside the one that measures. */
#ifndef LAB_PEER_H
#define LAB_PEER_H

/* Start a process that ends with this one. The function must not return. */
void peer_start(void (*run)(const void *data), const void *data);

#endif
