/* Reading completion queues: what came of operations, and what arrived. */
#include "address.h"
#include "confirm.h"
#include "connections.h"
#include "frame.h"
#include "lane.h"
#include "local.h"
#include "part.h"
#include "peer.h"
#include "worker.h"

#include <errno.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
/* Batches in one pass, so that posting gets its turn. */
#define BATCHES 4
/* Passes until all is read that is in a CQ, however busy others are. */
#define BURIAL_PASSES 64
/* Payload of hellos that wait for the loop. */
#define HELLO_LIMIT (4ull << 20)

static void reap_hand_over(struct fab_worker *worker, struct fab_peer *peer,
			   const void *payload, uint32_t bytes)
{
	_Atomic uint64_t *held =
		peer ? &peer->held_bytes : &worker->hello_bytes;
	uint64_t limit =
		peer ? worker->options.frame_window_bytes : HELLO_LIMIT;
	struct fab_frame *frame;

	if (atomic_load_explicit(held, memory_order_relaxed) > limit) {
		if (peer)
			fab_peer_break(worker, peer, -EPROTO, "fi_recv",
				       "the peer sent more than its window");
		else
			fab_worker_count(&worker->statistics.stale_frames, 1);
		return;
	}
	frame = malloc(sizeof(*frame) + bytes);
	if (!frame) {
		if (peer)
			fab_peer_break(worker, peer, -FI_ENOMEM, "fi_recv",
				       NULL);
		return;
	}
	frame->held = held;
	frame->bytes = bytes;
	memcpy(frame->payload, payload, bytes);
	atomic_fetch_add_explicit(held, FAB_FRAME_CHARGE(frame),
				  memory_order_relaxed);
	fab_worker_report_frame(worker, peer ? peer->route : FAB_NO_PEER,
				frame);
}

static int reap_engine_frame(struct fab_worker *worker, struct fab_peer *peer,
			     uint32_t kind, const void *payload, size_t bytes)
{
	union {
		struct fab_announce announce;
		struct fab_confirm confirm;
		struct fab_proof proof;
		struct fab_beat beat;
		struct fab_paths paths;
		struct fab_place place;
		struct fab_process process;
	} body;

	if (kind == FAB_FRAME_ANNOUNCE && bytes == sizeof(body.announce)) {
		memcpy(&body.announce, payload, sizeof(body.announce));
		fab_confirm_announced(worker, peer, &body.announce);
		return 0;
	}
	if (kind == FAB_FRAME_CONFIRM && bytes == sizeof(body.confirm)) {
		memcpy(&body.confirm, payload, sizeof(body.confirm));
		fab_confirm_confirmed(worker, peer, &body.confirm);
		return 0;
	}
	if (kind == FAB_FRAME_PROVE && bytes == sizeof(body.proof)) {
		memcpy(&body.proof, payload, sizeof(body.proof));
		fab_confirm_prove(worker, peer, &body.proof);
		return 0;
	}
	if (kind == FAB_FRAME_PROVEN && bytes == sizeof(body.proof)) {
		memcpy(&body.proof, payload, sizeof(body.proof));
		fab_peer_prove(peer, &body.proof);
		return 0;
	}
	if (kind == FAB_FRAME_BEAT && bytes == sizeof(body.beat)) {
		memcpy(&body.beat, payload, sizeof(body.beat));
		fab_peer_hear_beat(worker, peer, &body.beat);
		return 0;
	}
	if (kind == FAB_FRAME_PATHS && bytes == sizeof(body.paths)) {
		memcpy(&body.paths, payload, sizeof(body.paths));
		return fab_peer_hear_paths(worker, peer, &body.paths);
	}
	if (kind == FAB_FRAME_PLACE && bytes == sizeof(body.place)) {
		memcpy(&body.place, payload, sizeof(body.place));
		return fab_connections_hear(worker, peer, &body.place);
	}
	if (kind == FAB_FRAME_PROCESS && bytes == sizeof(body.process)) {
		memcpy(&body.process, payload, sizeof(body.process));
		return fab_cma_hear(worker, peer, &body.process);
	}
	/* A stir has done its work by arriving. */
	return kind == FAB_FRAME_STIR && bytes == 0 ? 0 : -EPROTO;
}

static void reap_frame(struct fab_worker *worker, const unsigned char *data,
		       size_t bytes)
{
	struct fab_frame_header header;
	struct fab_peer *peer;

	if (bytes == 0)
		return; /* a word: fab_address_speak */
	fab_worker_count(&worker->statistics.frames_received, 1);
	if (bytes < sizeof(header)) {
		fab_worker_count(&worker->statistics.malformed_frames, 1);
		return;
	}
	memcpy(&header, data, sizeof(header));
	data += sizeof(header);
	bytes -= sizeof(header);
	if (header.magic != FAB_FRAME_MAGIC ||
	    header.version != FAB_FRAME_VERSION) {
		fab_worker_count(&worker->statistics.malformed_frames, 1);
		return;
	}
	if (header.kind == FAB_FRAME_HELLO) {
		reap_hand_over(worker, NULL, data, (uint32_t) bytes);
		return;
	}
	peer = fab_worker_peer(worker, header.peer);
	if (!peer || peer->cookie != header.cookie) {
		fab_worker_count(&worker->statistics.stale_frames, 1);
		return;
	}
	peer->heard_ns = worker->now_ns;
	if (header.kind == FAB_FRAME_MESSAGE) {
		peer->messages_in++;
		reap_hand_over(worker, peer, data, (uint32_t) bytes);
	} else if (reap_engine_frame(worker, peer, header.kind, data, bytes)) {
		fab_worker_count(&worker->statistics.malformed_frames, 1);
		fab_peer_break(worker, peer, -EPROTO, "fi_recv",
			       "unknown or malformed frame");
	}
}

static void reap_repost(struct fab_worker *worker, struct fab_lane *lane,
			struct fab_op *receive)
{
	int ret = fab_lane_post_receive(lane, receive);

	if (ret)
		fab_worker_fail(worker, ret, "fi_recv", NULL);
}

/* The operation is over. */
static void reap_operation(struct fab_worker *worker, struct fab_lane *lane,
			   const struct fab_op *op,
			   const struct fab_error *error)
{
	struct fab_part *part = op->part;
	struct fab_peer *peer = op->peer;
	uint32_t number = (uint32_t) (lane - worker->lanes);
	uint64_t bytes = op->bytes;
	uint32_t pages = op->pages;

	if (!op->adrift) {
		lane->inflight_count--;
		lane->inflight_bytes -= bytes;
	}
	peer->operations_out--;
	if (!error) {
		peer->heard_ns = worker->now_ns;
		fab_part_succeeded(worker, part, 1, bytes, pages);
	} else {
		fab_worker_count(&worker->statistics.operations_failed, 1);
		part->uncounted = 1;
		part->announced = 0; /* the failure is to be announced */
		part->lost_bytes += bytes;
		part->lost_pages += pages;
		if (fab_error_is_peer(error->code)) {
			if (fab_peer_lose_lane(worker, peer, number, error))
				fab_part_restart(worker, part, error);
		} else if (!part->stopped)
			fab_part_fail(worker, part, error);
		fab_part_moved(worker, part, 1, 0, 0);
	}
	fab_peer_settle(worker, peer);
}

static void reap_sent(struct fab_worker *worker, struct fab_lane *lane,
		      const struct fab_op *op, const struct fab_error *error)
{
	struct fab_outgoing *frame = op->frame;
	struct fab_peer *peer = op->peer;

	if (op->buffer)
		lane->bounces[lane->bounce_count++] = op->buffer;
	peer->frames_out--;
	/* By another lane, before all others: whoever gets it twice knows. */
	if (error && fab_error_is_peer(error->code) &&
	    fab_peer_lose_lane(worker, peer, (uint32_t) (lane - worker->lanes),
			       error) &&
	    frame->lane == FAB_ANY_LANE) {
		fab_list_append(peer->frames.next, &frame->link);
		fab_peer_ready(worker, peer);
		return;
	}
	worker->outstanding--;
	peer->messages_out += !error && frame->kind == FAB_FRAME_MESSAGE;
	if (error && frame->lane == FAB_ANY_LANE)
		fab_peer_break_by(worker, peer, error);
	else if (!error && frame->token && peer->state != FAB_PEER_ORPHANED)
		fab_worker_report(worker, FAB_FRAME_SENT, peer->route,
				  frame->token, NULL);
	free(frame);
	fab_peer_settle(worker, peer);
}

/* What the slot was for is over. */
static void reap_ended(struct fab_worker *worker, struct fab_lane *lane,
		       const struct fab_op *op, const struct fab_error *error)
{
	if (op->kind == FAB_OP_RMA)
		reap_operation(worker, lane, op, error);
	else
		reap_sent(worker, lane, op, error);
}

static void reap_completed(struct fab_worker *worker, struct fab_lane *lane,
			   struct fab_op *op, const struct fab_error *error)
{
	struct fab_op ended;

	if (op && op->kind == FAB_OP_WORD)
		return;
	if (!op || !op->posted) {
		fab_worker_count(&worker->statistics.stray_completions, 1);
		return;
	}
	ended = *op;
	fab_op_release(&lane->ops, op);
	if (ended.kind == FAB_OP_BURIED)
		lane->buried--;
	else
		reap_ended(worker, lane, &ended, error);
}

static void reap_arrived(struct fab_worker *worker, struct fab_lane *lane)
{
	lane->heard_ns = worker->now_ns;
	lane->asked_ns = 0;
}

static void reap_entry(struct fab_worker *worker, struct fab_lane *lane,
		       const struct fi_cq_data_entry *entry)
{
	struct fab_op *op = entry->op_context;

	if (entry->flags & FI_REMOTE_CQ_DATA) {
		reap_arrived(worker, lane);
		fab_confirm_count(worker, (uint32_t) entry->data);
		if (lane->consumes_receives && op)
			reap_repost(worker, lane, op);
	} else if (op && op->kind == FAB_OP_RECEIVE) {
		reap_arrived(worker, lane);
		reap_frame(worker, op->buffer, entry->len);
		reap_repost(worker, lane, op);
	} else {
		reap_completed(worker, lane, op, NULL);
	}
}

static void reap_error(struct fab_worker *worker, struct fab_lane *lane)
{
	struct fi_cq_err_entry entry;
	struct fab_error error;
	struct fab_op *op;
	char text[128] = "";
	ssize_t ret;
	int code;

	memset(&entry, 0, sizeof(entry));
	ret = fi_cq_readerr(lane->cq, &entry, 0);
	if (ret == -FI_EAGAIN)
		return;
	if (ret < 0) {
		fab_worker_fail(worker, (int) ret, "fi_cq_readerr", NULL);
		return;
	}
	/* Some providers put a negative code there. */
	code = entry.err < 0 ? entry.err : -entry.err;
	if (code == 0)
		code = -FI_EOTHER;
	fi_cq_strerror(lane->cq, entry.prov_errno, entry.err_data, text,
		       sizeof(text));
	fab_error_set(&error, code, "fi_cq_readerr", entry.prov_errno, text);
	op = entry.op_context;
	if (op && op->kind == FAB_OP_RECEIVE) {
		fab_worker_count(&worker->statistics.malformed_frames, 1);
		reap_repost(worker, lane, op);
	} else {
		reap_completed(worker, lane, op, &error);
	}
}

uint32_t fab_reap_pass(struct fab_worker *worker, struct fab_lane *lane)
{
	struct fi_cq_data_entry entries[BATCH];
	uint32_t total = 0;

	if (lane->local)
		fab_local_welcome(lane->local, lane);
	if (lane->unposted && fab_lane_post_kept(lane))
		fab_worker_fail(worker, -FI_EOTHER, "fi_recv", NULL);
	for (int batch = 0; batch < BATCHES && !worker->failed; batch++) {
		ssize_t n = fab_lane_read(lane, entries, BATCH);

		if (n == -FI_EAGAIN) {
			fab_addresses_tidy(lane, worker->now_ns);
			break;
		}
		if (n == -FI_EAVAIL) {
			reap_error(worker, lane);
			total++;
			continue;
		}
		if (n < 0) {
			fab_worker_fail(worker, (int) n, "fi_cq_read",
					n == -FI_EOVERRUN ?
						"completion queue overrun" :
						NULL);
			break;
		}
		for (ssize_t i = 0; i < n; i++)
			reap_entry(worker, lane, &entries[i]);
		total += (uint32_t) n;
		if (n < BATCH)
			break;
	}
	return total;
}

static void reap_bury(struct fab_worker *worker, struct fab_lane *lane,
		      struct fab_op *op)
{
	struct fab_op ended = *op;
	struct fab_error error;

	fab_error_set(&error, -FI_ESHUTDOWN, "pidfd_open", 0,
		      "the peer's process has ended");
	op->kind = FAB_OP_BURIED;
	op->peer = NULL;
	op->part = NULL;
	op->frame = NULL;
	op->buffer = NULL;
	lane->buried++;
	reap_ended(worker, lane, &ended, &error);
}

void fab_reap_bury(struct fab_worker *worker, struct fab_peer *peer)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		struct fab_lane *lane = &worker->lanes[i];

		for (int pass = 0; pass < BURIAL_PASSES; pass++) {
			if (!fab_reap_pass(worker, lane))
				break;
		}
		for (uint32_t k = 0; k < lane->ops.capacity; k++) {
			struct fab_op *op = &lane->ops.ops[k];

			if (op->posted && op->peer == peer)
				reap_bury(worker, lane, op);
		}
		if (lane->buried > lane->ops.capacity / 4 * 3)
			fab_worker_fail(worker, -FI_ENOSPC, "fi_cq_read",
					"operations with processes that were "
					"killed have taken up the provider's "
					"queue");
	}
}
