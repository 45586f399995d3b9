/* Operation slab: one slot for each operation that a lane has posted.
 *
 * O1 a slot is free, or posted exactly once; it is freed by its completion
 *    entry and by nothing else (closing the endpoint counts as one). One that
 *    will have none, since its peer's process has ended, is buried: nobody
 *    waits for it, and it keeps its slot.
 * O2 op_context is the slot's address, so the completion finds it without a
 *    search; `posted` refuses a second completion for the same slot.
 * O3 generation grows with each use, for traces and tests.
 * Only the lane's worker touches a slab. */
#ifndef FAB_OP_H
#define FAB_OP_H

#include <rdma/fabric.h>
#include <stdint.h>

struct fab_peer;
struct fab_part;
struct fab_outgoing;

enum fab_op_kind {
	FAB_OP_RECEIVE = 1,
	FAB_OP_FRAME = 2,
	FAB_OP_RMA = 3,
	FAB_OP_WORD = 4, /* of fab_address_speak; in no slab */
	FAB_OP_BURIED = 5,
};

struct fab_op {
	struct fi_context2 context; /* first: what FI_CONTEXT2 providers use */
	uint32_t kind;
	uint32_t posted;
	uint32_t generation;
	uint32_t pages;        /* RMA: pages that end in this operation */
	uint32_t marked;       /* RMA: 1 if it carries immediate data */
	uint32_t adrift;       /* RMA: 1 if the lane's limits forget it */
	uint64_t bytes;        /* RMA */
	struct fab_op *next;   /* free list */
	struct fab_peer *peer; /* borrowed: peers live as long as the worker */
	struct fab_part *part; /* RMA; borrowed while the op is out */
	struct fab_outgoing *frame; /* FRAME; owned while the op is out */
	unsigned char
		*buffer; /* RECEIVE, or FRAME's bounce; borrowed from lane */
};

struct fab_op_slab {
	struct fab_op *ops;  /* owned */
	struct fab_op *free; /* borrowed from ops */
	uint32_t capacity;
	uint32_t used;
};

int fab_op_slab_construct(struct fab_op_slab *slab, uint32_t capacity);
void fab_op_slab_destruct(struct fab_op_slab *slab);

/* NULL when all are in use. */
struct fab_op *fab_op_alloc(struct fab_op_slab *slab, uint32_t kind);
void fab_op_release(struct fab_op_slab *slab, struct fab_op *op);

#endif
