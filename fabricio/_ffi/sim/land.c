/* Landing: what a posted operation does when its time has come. */
#include "ep.h"
#include "status.h"

#include <rdma/fi_errno.h>

enum landing {
	LANDED,    /* or failed: the verdict says */
	NOT_READY, /* try again later */
	LOST,      /* nobody answers */
};

static enum landing land_fail(struct sim_op *op, enum sim_status status)
{
	op->verdict.err = sim_status_errno(status);
	op->verdict.prov_errno = (int) status;
	return LANDED;
}

/* Copy between the pieces and one run of memory. */
static void land_copy(const struct sim_iov *iov, unsigned char *run,
		      uint64_t bytes, int gather)
{
	while (bytes) {
		uint64_t part = iov->length < bytes ? iov->length : bytes;

		if (gather)
			memcpy(run, iov->base, part);
		else
			memcpy(iov->base, run, part);
		run += part;
		bytes -= part;
		iov++;
	}
}

/* FI_MR_LOCAL: every piece lies in a region that may be used like this. */
static int land_local_allowed(const struct sim_ep *ep, const struct sim_op *op)
{
	uint64_t access = op->kind == SIM_READ  ? FI_READ :
			  op->kind == SIM_WRITE ? FI_WRITE :
						  FI_SEND;

	for (uint32_t i = 0; i < op->iov_count; i++) {
		const struct sim_iov *iov = &op->iov[i];

		if (iov->length &&
		    !sim_mr_find(ep->domain, iov->key,
				 (uint64_t) (uintptr_t) iov->base, iov->length,
				 access))
			return 0;
	}
	return 1;
}

/* The target's next receive, with its lock held. NULL: none. */
static struct sim_receive *land_receive(struct sim_ep *target)
{
	return target->receive_count ? &target->receives[target->receive_head &
							 target->receive_mask] :
				       NULL;
}

static void land_receive_done(struct sim_ep *target)
{
	target->receive_head++;
	target->receive_count--;
}

/* P1 holds. */
static enum landing land_immediate(struct sim_ep *target,
				   const struct sim_op *op)
{
	struct sim_event event = {
		.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
		.length = op->bytes,
		.data = op->data,
	};
	const struct sim_receive *receive;
	int ret = -FI_EAGAIN;

	if (!target->domain->config.consume)
		return sim_cq_push(target->rx_cq, &event) ? NOT_READY : LANDED;
	sim_lock_take(&target->receive_lock);
	receive = land_receive(target);
	if (receive) {
		event.context = receive->context;
		ret = sim_cq_push(target->rx_cq, &event);
		if (!ret)
			land_receive_done(target);
	}
	sim_lock_give(&target->receive_lock);
	return ret ? NOT_READY : LANDED;
}

/* P1 holds. */
static enum landing land_rma(const struct sim_ep *ep, struct sim_ep *target,
			     struct sim_op *op)
{
	int read = op->kind == SIM_READ;
	unsigned char *remote = (unsigned char *) (uintptr_t) op->address;

	if (!op->moved) {
		if (op->bytes &&
		    !sim_mr_find(target->domain, op->key, op->address,
				 op->bytes,
				 read ? FI_REMOTE_READ : FI_REMOTE_WRITE))
			return land_fail(op, SIM_BAD_ADDRESS);
		if (ep->domain->config.copy)
			land_copy(op->iov, remote, op->bytes, !read);
		op->moved = 1;
	}
	return op->immediate ? land_immediate(target, op) : LANDED;
}

/* A receive takes the message; what is too long is cut, and fails there. */
static uint64_t land_scatter(const struct sim_op *op,
			     const struct sim_receive *receive)
{
	uint64_t taken = 0, from = 0;
	uint32_t piece = 0;

	for (uint32_t i = 0; i < receive->iov_count; i++) {
		const struct sim_iov *into = &receive->iov[i];
		uint64_t filled = 0;

		while (filled < into->length && piece < op->iov_count) {
			const struct sim_iov *source = &op->iov[piece];
			uint64_t part = source->length - from;

			if (part > into->length - filled)
				part = into->length - filled;
			memcpy(into->base + filled, source->base + from, part);
			filled += part;
			from += part;
			taken += part;
			if (from == source->length) {
				piece++;
				from = 0;
			}
		}
	}
	return taken;
}

/* P1 holds. */
static enum landing land_message(struct sim_ep *target, const struct sim_op *op)
{
	struct sim_event event = {.flags = FI_MSG | FI_RECV, .data = op->data};
	const struct sim_receive *receive;
	int ret = -FI_EAGAIN;

	if (op->immediate)
		event.flags |= FI_REMOTE_CQ_DATA;
	sim_lock_take(&target->receive_lock);
	receive = land_receive(target);
	if (receive) {
		event.context = receive->context;
		event.buffer = receive->iov[0].base;
		event.length = land_scatter(op, receive);
		if (event.length < op->bytes) {
			event.overflow = op->bytes - event.length;
			event.verdict.err = sim_status_errno(SIM_BAD_LENGTH);
			event.verdict.prov_errno = SIM_BAD_LENGTH;
		}
		ret = sim_cq_push(target->rx_cq, &event);
		if (!ret)
			land_receive_done(target);
	}
	sim_lock_give(&target->receive_lock);
	return ret ? NOT_READY : LANDED;
}

static int land_is_silent(struct sim_ep *ep)
{
	return atomic_load_explicit(&ep->silent, memory_order_relaxed) ||
	       (atomic_load_explicit(&ep->domain->nic->attention,
				     memory_order_relaxed) &
		SIM_ATTENTION_SILENT);
}

static enum landing land_on(struct sim_ep *ep, struct sim_path *path,
			    struct sim_op *op)
{
	struct sim_ep *target = path->target;

	if (!target)
		return land_fail(op, path->removed ? SIM_FLUSHED :
						     SIM_BAD_DEST_QPN);
	if (land_is_silent(target))
		return LOST;
	if (sim_nic_is_down(target->domain->nic))
		return land_fail(op, SIM_UNRESP_REMOTE);
	return op->kind == SIM_SEND ? land_message(target, op) :
				      land_rma(ep, target, op);
}

static enum landing land(struct sim_ep *ep, struct sim_op *op)
{
	enum landing landing;

	if (op->verdict.err)
		return LANDED;
	if (sim_nic_is_down(ep->domain->nic))
		return land_fail(op, SIM_UNREACH_REMOTE);
	if (land_is_silent(ep) && !op->path->removed)
		return LOST;
	if (!land_local_allowed(ep, op))
		return land_fail(op, SIM_INVALID_LKEY);
	sim_lock_take(&op->path->lock);
	landing = land_on(ep, op->path, op);
	sim_lock_give(&op->path->lock);
	return landing;
}

/* The completion, if one is due to who posted; then the place is free. */
static size_t land_complete(struct sim_ep *ep, uint32_t at, void *buffer,
			    size_t place)
{
	struct sim_counters *counters = &ep->domain->counters;
	struct sim_op *op = &ep->ops[at];
	struct sim_event event = {
		.context = op->context,
		.flags = op->kind == SIM_SEND  ? FI_MSG | FI_SEND :
			 op->kind == SIM_WRITE ? FI_RMA | FI_WRITE :
						 FI_RMA | FI_READ,
		.verdict = op->verdict,
	};

	sim_count(counters, SIM_COMPLETIONS, 1);
	if (op->verdict.err) {
		sim_count(counters, SIM_ERRORS, 1);
		ep->tx_cq->failure = event;
		ep->tx_cq->failed = 1;
	} else {
		if (op->kind != SIM_SEND)
			sim_count(counters, SIM_BYTES, op->bytes);
		if (op->completes)
			sim_cq_write(ep->tx_cq, buffer, place++, &event);
	}
	sim_path_release(op->path);
	sim_row_push(&ep->free, at);
	return place;
}

/* Land one and put it where it belongs then. */
static size_t land_one(struct sim_ep *ep, uint32_t at, uint64_t now_ns,
		       void *buffer, size_t place)
{
	const struct sim_config *config = &ep->domain->config;
	struct sim_op *op = &ep->ops[at];

	switch (land(ep, op)) {
	case NOT_READY:
		sim_count(&ep->domain->counters, SIM_NOT_READY, 1);
		sim_row_push(&ep->waiting, at);
		return place;
	case LOST:
		sim_row_push(&ep->lost, at);
		return place;
	case LANDED:
		break;
	}
	/* A read is over when its data are here. */
	if (config->paced && op->kind != SIM_READ && config->latency_ns) {
		op->due_ns = now_ns + config->latency_ns;
		sim_row_push(&ep->acks, at);
		return place;
	}
	return land_complete(ep, at, buffer, place);
}

/* Take from pending: the first, or any that is due (Q2). */
static uint32_t land_choose(struct sim_ep *ep)
{
	struct sim_row *row = &ep->pending;

	if (ep->domain->config.random && ep->due_count > 1) {
		uint32_t chosen =
			(uint32_t) (sim_random(&ep->random) % ep->due_count);
		uint32_t *first = &row->places[row->head & row->mask];
		uint32_t *other =
			&row->places[(row->head + chosen) & row->mask];
		uint32_t place = *other;

		*other = *first;
		*first = place;
	}
	ep->due_count--;
	return sim_row_pop(row);
}

static void land_count_due(struct sim_ep *ep, uint64_t now_ns)
{
	const struct sim_row *row = &ep->pending;

	if (!ep->domain->config.paced) {
		ep->due_count = row->count;
		return;
	}
	while (ep->due_count < row->count &&
	       ep->ops[row->places[(row->head + ep->due_count) & row->mask]]
			       .due_ns <= now_ns)
		ep->due_count++;
}

size_t sim_ep_progress(struct sim_ep *ep, void *buffer, size_t place,
		       size_t count)
{
	uint64_t now_ns = ep->domain->config.paced ? sim_now() : 0;
	const struct sim_cq *cq = ep->tx_cq;
	uint32_t again = ep->waiting.count;

	while (ep->acks.count && place < count && !cq->failed &&
	       ep->ops[sim_row_first(&ep->acks)].due_ns <= now_ns)
		place = land_complete(ep, sim_row_pop(&ep->acks), buffer,
				      place);
	while (again-- && place < count && !cq->failed)
		place = land_one(ep, sim_row_pop(&ep->waiting), now_ns, buffer,
				 place);
	land_count_due(ep, now_ns);
	while (ep->due_count && place < count && !cq->failed)
		place = land_one(ep, land_choose(ep), now_ns, buffer, place);
	return place;
}

uint64_t sim_ep_due(const struct sim_ep *ep)
{
	uint64_t due = UINT64_MAX;

	if (ep->pending.count)
		due = ep->due_count || !ep->domain->config.paced ?
			      0 :
			      ep->ops[sim_row_first(&ep->pending)].due_ns;
	if (ep->acks.count && ep->ops[sim_row_first(&ep->acks)].due_ns < due)
		due = ep->ops[sim_row_first(&ep->acks)].due_ns;
	return due;
}

void sim_ep_flush(struct sim_ep *ep, const struct sim_path *path)
{
	for (uint32_t left = ep->lost.count; left; left--) {
		uint32_t at = sim_row_pop(&ep->lost);

		sim_row_push(ep->ops[at].path == path ? &ep->waiting :
							&ep->lost,
			     at);
	}
}
