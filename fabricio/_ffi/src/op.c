#include "op.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

int fab_op_slab_construct(struct fab_op_slab *slab, uint32_t capacity)
{
	memset(slab, 0, sizeof(*slab));
	slab->ops = calloc(capacity, sizeof(*slab->ops));
	if (!slab->ops)
		return -FI_ENOMEM;
	slab->capacity = capacity;
	for (uint32_t i = capacity; i-- > 0;) {
		slab->ops[i].next = slab->free;
		slab->free = &slab->ops[i];
	}
	return 0;
}

void fab_op_slab_destruct(struct fab_op_slab *slab)
{
	free(slab->ops);
	memset(slab, 0, sizeof(*slab));
}

struct fab_op *fab_op_alloc(struct fab_op_slab *slab, uint32_t kind)
{
	struct fab_op *op = slab->free;

	if (!op)
		return NULL;
	slab->free = op->next;
	slab->used++;
	op->next = NULL;
	op->kind = kind;
	op->posted = 1;
	op->generation++;
	op->pages = 0;
	op->marked = 0;
	op->adrift = 0;
	op->bytes = 0;
	op->peer = NULL;
	op->part = NULL;
	op->frame = NULL;
	op->buffer = NULL;
	return op;
}

void fab_op_release(struct fab_op_slab *slab, struct fab_op *op)
{
	op->posted = 0;
	op->next = slab->free;
	slab->free = op;
	slab->used--;
}
