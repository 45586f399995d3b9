/* What was measured per provider, in one table (tuning.c). */
#ifndef FAB_TUNING_H
#define FAB_TUNING_H

#include "fabricio.h"

#include <stdint.h>

struct fab_tuning {
	const char *provider;     /* exact name, or "" for all others */
	uint32_t segments;        /* pages of one fi_writemsg(3) */
	uint64_t segment_bytes;   /* only pages up to this size share one */
	uint64_t operation_bytes; /* longest single operation */
	uint64_t inflight_bytes;  /* posted, not completed, per lane */
	uint64_t shared_bytes;    /* the same, where lanes share the work: what
				     one has taken no other can take */
	uint32_t inflight_count;  /* operations; 0: tx_attr->size */
	uint32_t writes_last;     /* enum fab_writes_last */
	uint32_t lists_sockets; /* one epoll set has all of a lane: sockets.h */
	uint32_t peer_inflight; /* operations out for one peer; 0: any */
	uint32_t shares_memory; /* peers are processes of this host: cma.h;
				   endpoints of one process share mappings:
				   local.h */
};

const struct fab_tuning *fab_tuning_find(const char *provider);

#endif
