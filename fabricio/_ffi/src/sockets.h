/* Sockets: those that a provider has connected for a lane.
 *
 * libfabric does not name them. Its tcp provider keeps the sockets of an
 * endpoint in one epoll set, with the one that it listens on at the lane's
 * address, and /proc tells what is in a set.
 *
 * Sources: proc_pid_fdinfo(5), epoll(7); libfabric, prov/tcp. */
#ifndef FAB_SOCKETS_H
#define FAB_SOCKETS_H

#include "frame.h"

#include <stdint.h>

struct fab_lane;

struct fab_socket {
	struct fab_place remote; /* first: they are sorted by it */
	struct fab_place local;
	uint64_t inode;        /* its own for as long as it is open */
	int fd;                /* borrowed from the provider */
	uint32_t lives;        /* leads to a peer that lives */
	struct fab_place peer; /* where that listens */
	uint64_t opened_ns;    /* when that was added; the last of several */
	uint32_t lost;         /* leads to one that has fallen silent */
};

struct fab_socket_numbers {
	struct fab_socket_number {
		uint64_t inode;
		int fd;
	} *items; /* owned */
	uint32_t count;
};

/* The place in a socket address. 0 or -FI_EINVAL. [any] */
int fab_place_read(struct fab_place *place, const void *address,
		   uint32_t bytes);

/* List them, sorted, into an array that the caller frees. 0, -FI_ENOENT if the
 * lane's set cannot be found, or -FI_ENOMEM. [worker] */
int fab_sockets_list(struct fab_lane *lane, struct fab_socket **sockets,
		     uint32_t *count);

/* Remember all sockets of the lane's set, whoever they lead to; and, once the
 * provider has closed the lane, close those that it has left open: libfabric
 * 2.5 forgets connections that were not taken yet. [worker] */
void fab_sockets_remember(struct fab_lane *lane,
			  struct fab_socket_numbers *numbers);
void fab_sockets_close_forgotten(struct fab_socket_numbers *numbers);

/* The first one that leads to that place, or NULL; others follow it. */
struct fab_socket *fab_sockets_find(struct fab_socket *sockets, uint32_t count,
				    const struct fab_place *remote);

#endif
