/* Endpoint: operations on their way, and receives. */
#ifndef SIM_EP_H
#define SIM_EP_H

#include "av.h"
#include "cq.h"

#include <rdma/fi_endpoint.h>

#define SIM_IOV_LIMIT 2

struct sim_iov {
	unsigned char *base; /* borrowed from who posted, until it completes */
	uint64_t length;
	uint64_t key; /* local descriptor */
};

/* A posted operation. */
struct sim_op {
	_Alignas(SIM_CACHE_LINE) void *context;
	struct sim_path *path; /* shared: counts us in user_count */
	uint8_t kind;          /* enum sim_kind */
	uint8_t completes;     /* who posted wants a completion */
	uint8_t immediate;     /* `data` goes to the target's CQ */
	uint8_t moved;         /* the data are there, the immediate is not */
	uint8_t iov_count;
	struct sim_verdict verdict;
	uint64_t bytes;
	struct sim_iov iov[SIM_IOV_LIMIT];
	uint64_t address; /* at the target */
	uint64_t key;
	uint64_t data;
	uint64_t due_ns; /* when it lands, then when it completes */
};

/* A posted receive. */
struct sim_receive {
	void *context;
	uint8_t iov_count;
	struct sim_iov iov[SIM_IOV_LIMIT];
};

/* Places of operations, in a row. */
struct sim_row {
	uint32_t *places; /* owned */
	uint32_t mask;    /* capacity - 1 */
	uint32_t head;
	uint32_t count;
};

/* Q1 each of the `size` operations is in exactly one place: free, pending (on
 *    its way), waiting (its target had no receive, or a full CQ), acks (landed,
 *    its completion is on its way) or lost (nobody will ever answer).
 * Q2 in pending and in acks, due_ns never falls from one to the next; order
 *    "random" changes places only among those that are due.
 * Q3 all of these are the domain's thread's. Receives are taken by whoever
 *    sends here, so `receive_lock` guards their row; P1 keeps the endpoint. */
struct sim_ep {
	struct fid_ep fid;
	struct sim_domain *domain; /* shared; counts us */
	struct sim_av *av;         /* shared, as are the CQs; each counts us */
	struct sim_cq *tx_cq;
	struct sim_cq *rx_cq;
	struct fab_link link;    /* in the wire's endpoints; its mutex */
	struct fab_link av_link; /* in the AV's endpoints */
	struct fab_link tx_link; /* in tx_cq's transmitters */
	struct fab_link paths;   /* of others to us; the wire's mutex */
	struct sim_address address;
	uint8_t enabled;
	uint8_t tx_selective; /* completions only where FI_COMPLETION is */
	uint64_t tx_flags;    /* of calls that take none */
	struct sim_op *ops;   /* owned, one more than `size`: see post.c */
	uint32_t size;
	struct sim_row free, pending, waiting, acks, lost;
	uint32_t due_count; /* at the head of pending, seen to be due */
	uint64_t random;
	_Atomic uint32_t silent; /* scripted; writer: control functions */
	_Alignas(SIM_CACHE_LINE) struct sim_lock receive_lock; /* Q3 */
	struct sim_receive *receives;                          /* owned */
	uint32_t receive_mask;
	uint32_t receive_size;
	uint32_t receive_head;
	uint32_t receive_count;
};

int sim_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **ep, void *context);

extern struct fi_ops_msg sim_msg_ops;
extern struct fi_ops_rma sim_rma_ops;

/* Land what is due; write completions from `place` on, at most until `count`.
 * Returns the new place. Stops at a failure, which it leaves to the CQ.
 * [domain] */
size_t sim_ep_progress(struct sim_ep *ep, void *buffer, size_t place,
		       size_t count);
/* When the next operation can be due; 0: is; UINT64_MAX: never. [domain] */
uint64_t sim_ep_due(const struct sim_ep *ep);
/* What is lost on this path comes back, to fail. [domain] */
void sim_ep_flush(struct sim_ep *ep, const struct sim_path *path);

static inline void sim_row_push(struct sim_row *row, uint32_t place)
{
	row->places[(row->head + row->count++) & row->mask] = place;
}

/* Last in, first out: for free places, so that few are used, and stay cached. */
static inline uint32_t sim_row_last(const struct sim_row *row)
{
	return row->places[(row->head + row->count - 1) & row->mask];
}

static inline uint32_t sim_row_first(const struct sim_row *row)
{
	return row->places[row->head & row->mask];
}

static inline uint32_t sim_row_pop(struct sim_row *row)
{
	uint32_t place = sim_row_first(row);

	row->head++;
	row->count--;
	return place;
}

#endif
