/* Addresses: what a lane has in its AV, and how long.
 *
 * Most go when nobody uses them any more. On shared memory a peer may be in the
 * midst of sending when its address is removed, and then names memory that is
 * mapped no more: the provider crashes when it reads that. A peer that is
 * stopped stays in the midst for as long as that lasts.
 *
 * V1 an address of another process stays in the AV until its endpoint is gone:
 *    its file, or its process. It is looked for twice, with an empty CQ: what
 *    it has sent was read by then.
 * V2 such an address is used again only for the endpoint that it was kept for;
 *    process numbers come again, and names with them.
 * V3 who sends before it is inserted has a place at the provider, too. That is
 *    given back in the same way (places.h). */
#ifndef FAB_ADDRESS_H
#define FAB_ADDRESS_H

#include "list.h"

#include <rdma/fabric.h>
#include <stdint.h>

struct fab_lane;
struct fab_visit;

/* Two endpoints with one process share it. */
struct fab_address {
	struct fab_link link;
	struct fab_visit *visit; /* owned; NULL: not of this process */
	fi_addr_t address;
	uint64_t file; /* of its memory; 0: not known */
	uint32_t references;
	uint32_t length; /* of bytes */
	uint8_t foreign; /* shares memory with us from another process */
	uint8_t missed;  /* it was gone when we looked last */
	unsigned char bytes[];
};

/* Insert it, or use it once more. 0, -FI_ENOMEM, -FI_ECONNREFUSED (it closes),
 * or what the provider means: -FI_EINVAL, -FI_ENOSPC on shared memory.
 * [worker] */
int fab_address_add(struct fab_lane *lane, const void *bytes, uint32_t length,
		    struct fab_address **address);
/* For a visitor of this process; no visit is paid in return. */
int fab_address_guest(struct fab_lane *lane, const void *bytes, uint32_t length,
		      struct fab_address **address);
void fab_address_release(struct fab_lane *lane, struct fab_address *address);

/* 0 if it may be posted to, -FI_EAGAIN: not yet, -FI_ESHUTDOWN: not any more. */
int fab_address_check(const struct fab_address *address);
/* Make the provider tell the address who we are. */
void fab_address_speak(struct fab_lane *lane,
		       const struct fab_address *address);

/* Remove addresses that nobody uses any more: those whose visit is over, or
 * all. */
void fab_addresses_purge(struct fab_lane *lane, int all);
/* Now and then: V1 and V3. When the CQ is empty. [worker] */
void fab_addresses_tidy(struct fab_lane *lane, uint64_t now_ns);

#endif
