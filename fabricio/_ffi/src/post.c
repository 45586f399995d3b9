/* Posting: frames before pages, one quantum of a transfer in turn. */
#include "address.h"
#include "frame.h"
#include "lane.h"
#include "part.h"
#include "peer.h"
#include "provider.h"
#include "registration.h"
#include "worker.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one transfer posted in turn; some providers copy them at once. */
#define QUANTUM_BYTES (1ull << 20)

/* 0 if the lane may post to the peer, -FI_EAGAIN not yet, -FI_ESHUTDOWN never
 * again. */
static int post_check(const struct fab_peer *peer, uint32_t number)
{
	if (peer->down >> number & 1)
		return -FI_ESHUTDOWN;
	return fab_address_check(peer->addresses[number]);
}

/* The lane that frames take: the first that has not failed. */
static uint32_t post_frame_lane(const struct fab_peer *peer)
{
	return (uint32_t) __builtin_ctzll(~peer->down);
}

static int post_frame(struct fab_worker *worker, uint32_t number,
		      struct fab_peer *peer, struct fab_outgoing *frame)
{
	struct fab_lane *lane = &worker->lanes[number];
	int hello = frame->kind == FAB_FRAME_HELLO;
	void *data = &frame->header;
	struct fab_op *op;
	ssize_t ret;

	if (lane->frames_mr && !lane->bounce_count)
		return -FI_EAGAIN;
	op = fab_op_alloc(&lane->ops, FAB_OP_FRAME);
	if (!op)
		return -FI_EAGAIN;
	frame->header.peer = hello ? FAB_NO_PEER : peer->remote_slot;
	frame->header.cookie = hello ? 0 : peer->remote_cookie;
	if (lane->frames_mr) {
		op->buffer = lane->bounces[--lane->bounce_count];
		data = memcpy(op->buffer, data, frame->bytes);
	}
	op->peer = peer;
	op->frame = frame;
	ret = fi_send(lane->ep, data, frame->bytes, lane->frames_desc,
		      peer->addresses[number]->address, &op->context);
	if (ret) {
		if (op->buffer)
			lane->bounces[lane->bounce_count++] = op->buffer;
		fab_op_release(&lane->ops, op);
		return (int) ret;
	}
	fab_list_remove(&frame->link);
	peer->frames_out++;
	fab_worker_count(&worker->statistics.frames_sent, 1);
	return 0;
}

/* Fill one operation from the cursor on: up to lane->segments runs. */
static uint32_t post_gather(const struct fab_lane *lane,
			    const struct fab_part *part, uint32_t number,
			    int merge, struct fab_cursor *cursor,
			    struct iovec *iov, void **desc,
			    struct fi_rma_iov *rma_iov, struct fab_op *op)
{
	const struct fab_registration *local = part->registration;
	const struct fab_pages *pages = &part->supply->pages;
	uint32_t n = 0;

	while (n < lane->segments && fab_cursor_before(cursor, &part->end)) {
		uint64_t room = lane->operation_bytes - op->bytes;
		struct fab_segment segment;

		/* Only small pages share an operation, and none is cut to
		 * fill one up. */
		if (n && (pages->page_bytes > lane->segment_bytes ||
			  pages->page_bytes > room))
			break;
		fab_pages_next(pages, cursor, &part->end, room, merge,
			       &segment);
		iov[n].iov_base =
			(void *) (uintptr_t) (local->address + segment.local);
		iov[n].iov_len = segment.bytes;
		desc[n] = local->lanes[number].desc;
		rma_iov[n].addr = part->remote_base + segment.remote;
		rma_iov[n].len = segment.bytes;
		rma_iov[n].key = part->remote_keys[number];
		op->bytes += segment.bytes;
		op->pages += segment.pages_ended;
		n++;
		if (op->bytes == lane->operation_bytes || cursor->offset)
			break;
	}
	return n;
}

static int post_operation(struct fab_worker *worker, struct fab_lane *lane,
			  uint32_t number, struct fab_peer *peer,
			  struct fab_part *part)
{
	int read = part->flags & FAB_TRANSFER_READ;
	uint64_t flags = FI_COMPLETION;
	struct fab_cursor cursor = part->cursor;
	struct iovec iov[FAB_MAX_SEGMENTS];
	void *desc[FAB_MAX_SEGMENTS];
	struct fi_rma_iov rma_iov[FAB_MAX_SEGMENTS];
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.rma_iov = rma_iov,
		.addr = peer->addresses[number]->address,
	};
	struct fab_op *op;
	ssize_t ret;

	op = fab_op_alloc(&lane->ops, FAB_OP_RMA);
	if (!op)
		return -FI_EAGAIN;
	msg.iov_count = msg.rma_iov_count =
		post_gather(lane, part, number, (int) worker->options.merge,
			    &cursor, iov, desc, rma_iov, op);
	msg.context = &op->context;
	msg.data = part->immediate;
	/* So that the peer counts it. */
	op->marked = part->departed && !read;
	if (op->marked)
		flags |= FI_REMOTE_CQ_DATA;
	else if (lane->attaches)
		flags |= FI_DELIVERY_COMPLETE;
	ret = read ? fi_readmsg(lane->ep, &msg, flags) :
		     fi_writemsg(lane->ep, &msg, flags);
	if (ret) {
		fab_op_release(&lane->ops, op);
		return (int) ret;
	}
	op->peer = peer;
	op->part = part;
	part->cursor = cursor;
	part->posted++;
	part->marked += op->marked;
	part->moved_ns = worker->now_ns;
	peer->operations_out++;
	lane->inflight_count++;
	lane->inflight_bytes += op->bytes;
	fab_worker_count(&worker->statistics.operations_posted, 1);
	return 0;
}

/* Without a wait fd the peer naps when its CQ stays empty. What it does not see
 * there, it must be told of: a provider may need it to poll all the same, and
 * the announcement is not to find it asleep. */
static void post_stir(struct fab_worker *worker, const struct fab_lane *lane,
		      struct fab_peer *peer, const struct fab_part *part,
		      int attached)
{
	if (lane->cq_fd >= 0 ||
	    (!attached && part->departed && !(part->flags & FAB_TRANSFER_READ)))
		return;
	if (worker->now_ns - peer->stirred_ns < worker->options.spin_ns / 2)
		return;
	peer->stirred_ns = worker->now_ns;
	fab_peer_send(worker, peer, FAB_FRAME_STIR, NULL, 0);
}

/* Bytes of a turn: several lanes share what there is. */
static uint64_t post_share(const struct fab_worker *worker,
			   const struct fab_part *part)
{
	const struct fab_cursor *end = &part->end;
	uint64_t share =
		(end->page - part->cursor.page) * part->supply->unit_bytes;

	if (worker->lane_count == 1 || !end->page)
		return QUANTUM_BYTES;
	share /= worker->lane_count;
	return share < QUANTUM_BYTES ? share + 1 : QUANTUM_BYTES;
}

/* A turn of one transfer on one lane. 0, -FI_EAGAIN, or an error. */
static int post_pages(struct fab_worker *worker, struct fab_lane *lane,
		      uint32_t number, struct fab_peer *peer,
		      struct fab_part *part, uint32_t *posted)
{
	uint32_t quantum = worker->options.quantum;
	uint64_t enough = lane->inflight_bytes + post_share(worker, part);
	int ret = 0;

	while (!ret && quantum-- && fab_part_more(part)) {
		if (lane->inflight_bytes >= enough)
			break;
		if (lane->peer_inflight &&
		    peer->operations_out >= lane->peer_inflight)
			return -FI_EAGAIN;
		if (lane->inflight_count >= lane->limit_count ||
		    (lane->inflight_count &&
		     lane->inflight_bytes >= lane->limit_bytes)) {
			/* Others have filled the lane: that is their fault. */
			if (!peer->operations_out)
				part->moved_ns = worker->now_ns;
			return -FI_EAGAIN;
		}
		ret = post_operation(worker, lane, number, peer, part);
		if (!ret)
			(*posted)++;
	}
	return ret;
}

/* Whether its pages are copied without the provider: cma.h. */
static int post_attaches(struct fab_peer *peer, const struct fab_part *part)
{
	return peer->cma.process &&
	       fab_peer_has_proven(peer, part->remote_keys[0],
				   fab_part_access(part));
}

/* A turn of one transfer by one copy, whose segments are its operations. As
 * post_pages. */
static int post_copy(struct fab_worker *worker, struct fab_peer *peer,
		     struct fab_part *part, uint32_t *posted)
{
	const struct fab_pages *pages = &part->supply->pages;
	int read = part->flags & FAB_TRANSFER_READ;
	struct iovec near[FAB_CMA_SEGMENTS], far[FAB_CMA_SEGMENTS];
	struct fab_cursor cursor;
	uint64_t longest = worker->lanes[0].operation_bytes, bytes = 0;
	uint32_t n = 0, ended = 0;
	int ret;

	if (!fab_part_more(part))
		return 0;
	cursor = part->cursor;
	while (n < FAB_CMA_SEGMENTS && bytes < QUANTUM_BYTES &&
	       fab_cursor_before(&cursor, &part->end)) {
		uint64_t room = QUANTUM_BYTES - bytes;
		struct fab_segment segment;

		fab_pages_next(pages, &cursor, &part->end,
			       room < longest ? room : longest,
			       (int) worker->options.merge, &segment);
		near[n].iov_base =
			(void *) (uintptr_t) (part->registration->address +
					      segment.local);
		far[n].iov_base = (void *) (uintptr_t) (part->remote_base +
							segment.remote);
		near[n].iov_len = far[n].iov_len = segment.bytes;
		bytes += segment.bytes;
		ended += segment.pages_ended;
		n++;
	}
	ret = fab_cma_copy(&peer->cma, read, near, far, n, bytes);
	if (ret)
		return ret;
	part->cursor = cursor;
	part->posted += n;
	fab_worker_count(&worker->statistics.operations_posted, n);
	fab_part_succeeded(worker, part, n, bytes, ended);
	(*posted)++;
	return 0;
}

static void post_failed(struct fab_worker *worker, uint32_t number,
			struct fab_peer *peer, struct fab_part *part, int code,
			const char *call)
{
	struct fab_error error;

	fab_worker_count(&worker->statistics.operations_failed, 1);
	fab_error_set(&error, code, call, 0, NULL);
	if (fab_error_is_peer(code))
		(void) fab_peer_lose_lane(worker, peer, number, &error);
	else if (!part)
		fab_peer_break_by(worker, peer, &error);
	else
		fab_part_fail(worker, part, &error);
}

static const char *post_call(const struct fab_part *part, int attached)
{
	if (part->flags & FAB_TRANSFER_READ)
		return attached ? "process_vm_readv" : "fi_readmsg";
	return attached ? "process_vm_writev" : "fi_writemsg";
}

/* A frame that names a lane warms that up, and is not worth more than that. */
static int post_warm_up(struct fab_worker *worker, struct fab_peer *peer,
			struct fab_outgoing *frame)
{
	int ret = post_check(peer, frame->lane);

	if (!ret)
		ret = post_frame(worker, frame->lane, peer, frame);
	if (!ret)
		return 0;
	fab_list_remove(&frame->link);
	worker->outstanding--;
	free(frame);
	return ret;
}

int fab_post_frames(struct fab_worker *worker, struct fab_peer *peer,
		    uint32_t *posted)
{
	uint32_t number = post_frame_lane(peer);
	int ret = post_check(peer, number);

	if (peer->starved) {
		ret = -FI_ENOMEM;
		fab_peer_break(worker, peer, ret, "fi_send", NULL);
	} else if (ret == -FI_ESHUTDOWN)
		fab_peer_break(worker, peer, ret, "fi_send",
			       "the peer's Fabric was closed");
	while (!ret && !fab_list_empty(&peer->frames)) {
		struct fab_outgoing *frame =
			FAB_ENTRY(peer->frames.next, struct fab_outgoing, link);

		if (peer->state == FAB_PEER_OPEN &&
		    frame->kind != FAB_FRAME_HELLO)
			return 0;
		if (frame->lane != FAB_ANY_LANE) {
			*posted += !post_warm_up(worker, peer, frame);
			continue;
		}
		ret = post_frame(worker, number, peer, frame);
		if (ret && ret != -FI_EAGAIN)
			post_failed(worker, number, peer, NULL, ret, "fi_send");
		*posted += !ret;
	}
	return ret;
}

/* One peer's turn. Returns 1 if it wants another. */
static int post_peer(struct fab_worker *worker, struct fab_peer *peer,
		     uint32_t *posted)
{
	int ret = fab_post_frames(worker, peer, posted);

	if (ret == -FI_EAGAIN)
		fab_worker_count(&worker->statistics.again, 1);
	if (ret)
		return ret == -FI_EAGAIN;
	for (uint32_t turn = 0; turn < worker->lane_count; turn++) {
		uint32_t i = (peer->turn + turn) % worker->lane_count;
		struct fab_part *part;
		uint32_t before;
		int attached;

		if (peer->state != FAB_PEER_ATTACHED ||
		    fab_list_empty(&peer->posting))
			return 0;
		part = FAB_ENTRY(peer->posting.next, struct fab_part, link);
		if (post_check(peer, i))
			continue;
		attached = post_attaches(peer, part);
		post_stir(worker, &worker->lanes[i], peer, part, attached);
		if (peer->state != FAB_PEER_ATTACHED)
			return 0;
		before = *posted;
		ret = attached ? post_copy(worker, peer, part, posted) :
				 post_pages(worker, &worker->lanes[i], i, peer,
					    part, posted);
		if (ret == -FI_EAGAIN)
			fab_worker_count(&worker->statistics.again, 1);
		if (ret && ret != -FI_EAGAIN) {
			post_failed(worker, i, peer, part, ret,
				    post_call(part, attached));
			continue;
		}
		/* No turn was had: the lane is full. */
		if (ret && *posted == before)
			continue;
		fab_list_remove(&part->link);
		if (fab_part_more(part)) {
			fab_list_append(&peer->posting, &part->link);
			continue;
		}
		fab_list_append(&peer->settling, &part->link);
		fab_part_settle(worker, part);
		fab_part_admit(worker, peer);
	}
	peer->turn = (peer->turn + 1) % worker->lane_count;
	return peer->state == FAB_PEER_ATTACHED &&
	       (!fab_list_empty(&peer->posting) ||
		!fab_list_empty(&peer->frames));
}

uint32_t fab_post_pass(struct fab_worker *worker)
{
	struct fab_link turn, fed;
	uint32_t posted = 0;

	/* A peer that breaks meanwhile leaves whichever list it is in. Who got
	 * nothing, since others had filled the lane, goes first next time. */
	fab_list_construct(&fed);
	fab_list_take(&turn, &worker->ready);
	while (!fab_list_empty(&turn)) {
		struct fab_peer *peer =
			FAB_ENTRY(turn.next, struct fab_peer, ready);

		uint32_t before = posted;

		fab_list_remove(&peer->ready);
		if (!post_peer(worker, peer, &posted))
			continue;
		if (fab_link_listed(&peer->ready))
			fab_list_remove(&peer->ready);
		fab_list_append(posted == before ? &worker->ready : &fed,
				&peer->ready);
	}
	while (!fab_list_empty(&fed)) {
		struct fab_link *link = fed.next;

		fab_list_remove(link);
		fab_list_append(&worker->ready, link);
	}
	return posted;
}
