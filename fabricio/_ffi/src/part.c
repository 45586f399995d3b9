#include "part.h"

#include "lane.h"
#include "peer.h"
#include "registration.h"
#include "worker.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Answers without progress before a transfer is given up, and queries without
 * an answer; one query each eighth of peer_timeout. */
#define QUERY_LIMIT   3u
#define SILENCE_LIMIT 8u

static int part_needs_departure(const struct fab_part *part)
{
	return (part->flags & FAB_TRANSFER_NOTIFY) ||
	       (!part->empty && (part->flags & FAB_TRANSFER_CONFIRM));
}

static uint64_t part_out(const struct fab_part *part)
{
	return part->posted - part->completed;
}

/* Nothing more of it will be posted, as things are. */
static int part_is_over(const struct fab_part *part)
{
	return part->stopped || part->restarting ||
	       (part->dry && !fab_cursor_before(&part->cursor, &part->end));
}

/* Without memory for it, it cannot be restarted any more. */
static void part_keep_chunk(struct fab_part *part, uint64_t chunk)
{
	uint32_t capacity = part->chunk_capacity;
	uint64_t *chunks;

	if (!part->keeps)
		return;
	if (part->chunk_count == capacity) {
		capacity = capacity ? capacity * 2 : 4;
		chunks = realloc(part->chunks, capacity * sizeof(*chunks));
		if (!chunks) {
			part->keeps = 0;
			return;
		}
		part->chunks = chunks;
		part->chunk_capacity = capacity;
	}
	part->chunks[part->chunk_count++] = chunk;
	part->replayed = part->chunk_count;
}

/* What may not be reported yet, though nothing is out: T5, T9. */
static int part_awaits(const struct fab_part *part)
{
	if (part->hopeless)
		return 0;
	if ((part->flags & FAB_TRANSFER_NOTIFY) && part->peer->path_count > 1)
		return part->departed || part->due;
	return !part->error.code && part->departed &&
	       (part->flags & FAB_TRANSFER_CONFIRM);
}

int fab_part_more(struct fab_part *part)
{
	uint64_t chunk;

	if (part->stopped || part->restarting)
		return 0;
	if (fab_cursor_before(&part->cursor, &part->end))
		return 1;
	if (part->replayed < part->chunk_count) {
		chunk = part->chunks[part->replayed++];
	} else if (!part->dry && fab_supply_take(part->supply, &chunk)) {
		part_keep_chunk(part, chunk);
	} else {
		part->dry = 1;
		return 0;
	}
	fab_supply_seek(part->supply, chunk, &part->cursor, &part->end);
	return 1;
}

static void part_free(struct fab_part *part)
{
	free(part->chunks);
	free(part);
}

static void part_move(struct fab_part *part, struct fab_link *list)
{
	if (fab_link_listed(&part->link))
		fab_list_remove(&part->link);
	fab_list_append(list, &part->link);
}

void fab_part_begin(struct fab_worker *worker, struct fab_part *part)
{
	struct fab_peer *peer = fab_worker_slot(worker, part->peer_slot);
	struct fab_error error;

	worker->outstanding++;
	if (part->registration)
		fab_registration_hold(part->registration);
	part->moved_ns = worker->now_ns;
	part->peer = peer;
	part->keeps = worker->lane_count > 1 || (peer && peer->path_count > 1);
	part->stopped = part->error.code != 0;
	part->restarting = part->moved && !part->stopped;
	if (part->chunk_count && !part->moved)
		fab_worker_count(&worker->statistics.parts_restarted, 1);
	part->due = !!(part->flags & FAB_TRANSFER_NOTIFY);
	if (!peer || (peer->state != FAB_PEER_OPEN &&
		      peer->state != FAB_PEER_ATTACHED)) {
		fab_error_set(&error, -FI_ESHUTDOWN, "fi_writemsg", 0,
			      "the peer is gone");
		fab_list_append(peer ? &peer->settling : &worker->strays,
				&part->link);
		fab_part_orphan(worker, part, &error);
		return;
	}
	fab_list_append(&peer->waiting, &part->link);
	fab_part_admit(worker, peer);
}

/* cma.h, A4 */
static void part_ask_proof(struct fab_worker *worker,
			   const struct fab_part *part)
{
	struct fab_proof proof = {
		.key = part->remote_keys[0],
		.access = fab_part_access(part),
	};

	if (part->peer->cma.process &&
	    !fab_peer_has_proven(part->peer, proof.key, proof.access))
		fab_peer_send(worker, part->peer, FAB_FRAME_PROVE, &proof,
			      sizeof(proof));
}

void fab_part_admit(struct fab_worker *worker, struct fab_peer *peer)
{
	while (peer->state == FAB_PEER_ATTACHED &&
	       !fab_list_empty(&peer->waiting)) {
		struct fab_part *part =
			FAB_ENTRY(peer->waiting.next, struct fab_part, link);
		int ret = 0;

		if (part_needs_departure(part))
			ret = fab_departure_open(&peer->departures,
						 peer->remote_slot, part,
						 &part->immediate);
		else
			part->immediate = 0;
		if (ret == -FI_EAGAIN)
			return;
		if (ret) {
			fab_peer_starve(worker, peer);
			return;
		}
		part->departed = part_needs_departure(part) != 0;
		part->moved_ns = worker->now_ns;
		if (!fab_part_more(part)) {
			part_move(part, &peer->settling);
			fab_part_settle(worker, part);
		} else {
			part_move(part, &peer->posting);
			part_ask_proof(worker, part);
			fab_peer_ready(worker, peer);
		}
	}
}

static void part_announce(struct fab_worker *worker, struct fab_part *part,
			  uint32_t flags)
{
	struct fab_announce announce = {
		.sequence = part->sequence,
		.key = part->remote_keys[0],
		.immediate = part->immediate,
		.status = part->error.code,
		.flags = flags,
		.parts = part->part_count,
		.part = part->index,
	};

	announce.count = part->marked;
	if (!part->empty)
		announce.access = fab_part_access(part);
	if (part->flags & FAB_TRANSFER_NOTIFY)
		announce.flags |= FAB_ANNOUNCE_NOTIFY;
	if (part->moved) {
		announce.flags |= FAB_ANNOUNCE_MOVED;
		announce.from_path = part->from_path;
		announce.from_immediate = part->from_immediate;
	} else if (part->restarting)
		announce.flags |= FAB_ANNOUNCE_RESTART;
	else if (part->uncounted)
		announce.flags |= FAB_ANNOUNCE_UNCOUNTED;
	part->announced = part->told = 1;
	part->due = 0;
	fab_peer_send(worker, part->peer, FAB_FRAME_ANNOUNCE, &announce,
		      sizeof(announce));
}

/* A write is announced as soon as its last operation is posted: the frame may
 * overtake the data (C2). A read, a write that met an error, and one that has
 * operations which nobody counts, only when nothing is out any more. */
static int part_may_announce(const struct fab_part *part)
{
	if (!part->departed || part->announced)
		return 0;
	if (!part->error.code) {
		if (part->flags & FAB_TRANSFER_READ)
			return !(part->flags & FAB_TRANSFER_NOTIFY) ||
			       part_out(part) == 0;
		if (part->posted == part->marked)
			return 1;
	}
	return part_out(part) == 0;
}

static void part_report(struct fab_worker *worker, struct fab_part *part)
{
	part->reported = 1;
	fab_worker_report_done(worker, part, part_out(part) == 0);
}

static void part_let_go(struct fab_worker *worker, struct fab_part *part)
{
	part->quiet = 1;
	if (part->registration)
		fab_registration_drop(worker, part->registration);
	part->registration = NULL;
}

/* Other parts have taken all there was, and nobody needs to hear of this one. */
static int part_is_idle(const struct fab_part *part)
{
	return part->departed && !part->announced && !part->posted &&
	       !part->empty && !part->error.code &&
	       !(part->flags & FAB_TRANSFER_NOTIFY);
}

/* Nothing of it is out or counted any more: from the first chunk. */
static void part_begin_again(struct fab_worker *worker, struct fab_part *part)
{
	struct fab_cursor none = {0};

	part->restarting = part->announced = part->uncounted = part->dry = 0;
	part->told = part->moved = 0;
	part->posted = part->completed = part->marked = part->counted = 0;
	part->queries = part->asked = part->replayed = 0;
	part->lost_bytes = part->lost_pages = 0;
	part->cursor = part->end = none;
	part->due = !!(part->flags & FAB_TRANSFER_NOTIFY);
	atomic_store_explicit(&part->bytes_done, 0, memory_order_relaxed);
	atomic_store_explicit(&part->pages_done, 0, memory_order_relaxed);
	fab_worker_count(&worker->statistics.parts_restarted, 1);
	part_move(part, &part->peer->waiting);
}

static void part_settle_restart(struct fab_worker *worker,
				struct fab_part *part)
{
	if (part_out(part))
		return;
	if (!part->departed) {
		part_begin_again(worker, part);
		fab_part_admit(worker, part->peer);
	} else if (!part->announced)
		part_announce(worker, part, 0);
}

void fab_part_settle(struct fab_worker *worker, struct fab_part *part)
{
	int late = part->reported && !part->quiet;

	if (!part_is_over(part))
		return;
	if (part->restarting) {
		part_settle_restart(worker, part);
		return;
	}
	if (part_is_idle(part)) {
		part->departed = 0;
		fab_departure_undo(&part->peer->departures, part->immediate);
	}
	if (part_may_announce(part))
		part_announce(worker, part, 0);
	if (part_out(part))
		return;
	if (!part->reported) {
		if (part_awaits(part))
			return;
		part_report(worker, part);
	}
	if (!part->quiet) {
		part_let_go(worker, part);
		if (late)
			fab_worker_report(worker, FAB_TRANSFER_QUIET,
					  FAB_NO_PEER, part->token, NULL);
	}
	if (part->departed || part->due || !part->released)
		return;
	fab_list_remove(&part->link);
	worker->outstanding--;
	part_free(part);
}

void fab_part_fail(struct fab_worker *worker, struct fab_part *part,
		   const struct fab_error *error)
{
	if (part->reported)
		return;
	if (!part->error.code)
		part->error = *error;
	/* One that owes an announcement keeps waiting for a slot. */
	if (!part->stopped && part->peer && (part->departed || !part->due))
		part_move(part, &part->peer->settling);
	part->stopped = 1;
	part->restarting = 0;
	fab_part_settle(worker, part);
}

void fab_part_restart(struct fab_worker *worker, struct fab_part *part,
		      const struct fab_error *error)
{
	if (part->stopped || part->reported)
		return;
	if (!part->keeps) {
		fab_part_fail(worker, part, error);
		return;
	}
	part->restarting = 1;
	part_move(part, &part->peer->settling);
}

static void part_undepart(struct fab_part *part)
{
	if (!part->departed)
		return;
	part->departed = 0;
	fab_departure_close(&part->peer->departures, part->immediate);
}

void fab_part_orphan(struct fab_worker *worker, struct fab_part *part,
		     const struct fab_error *error)
{
	part->due = 0;
	part_undepart(part);
	if (part->peer && part->peer->severed && !part->reported &&
	    !part->severed)
		part->severed = part->error.code ? FAB_PART_FAILED_BEFORE :
						   FAB_PART_FAULTLESS;
	if (part->reported)
		fab_part_settle(worker, part);
	else
		fab_part_fail(worker, part, error);
}

void fab_part_abort(struct fab_worker *worker, struct fab_part *part)
{
	struct fab_error error;

	fab_error_set(&error, -FI_ECANCELED, "cancel", 0, NULL);
	fab_part_fail(worker, part, &error);
}

void fab_part_discard(struct fab_worker *worker, struct fab_part *part)
{
	part->released = 1;
	fab_part_settle(worker, part);
}

void fab_part_moved(struct fab_worker *worker, struct fab_part *part,
		    uint32_t operations, uint64_t bytes, uint32_t pages)
{
	part->completed += operations;
	part->moved_ns = worker->now_ns;
	fab_worker_count(&part->bytes_done, bytes);
	fab_worker_count(&part->pages_done, pages);
	if (part_out(part) == 0)
		fab_part_settle(worker, part);
}

void fab_part_succeeded(struct fab_worker *worker, struct fab_part *part,
			uint32_t operations, uint64_t bytes, uint32_t pages)
{
	struct fab_counters *counters = &worker->statistics;

	fab_worker_count(&counters->operations_completed, operations);
	fab_worker_count(&counters->pages, pages);
	fab_worker_count(part->flags & FAB_TRANSFER_READ ?
				 &counters->bytes_read :
				 &counters->bytes_written,
			 bytes);
	fab_part_moved(worker, part, operations, bytes, pages);
}

/* The peer never will have all of it. Tell it once more, by announcing the
 * failure, and wait no longer. */
static void part_give_up(struct fab_worker *worker, struct fab_part *part,
			 int code, const char *text)
{
	struct fab_error error;

	fab_error_set(&error, code, "fi_writemsg", 0, text);
	part->uncounted = part->hopeless = 1;
	part->restarting = part->moved = 0;
	if (!part->error.code)
		part->error = error;
	part_announce(worker, part, 0);
	fab_part_fail(worker, part, &error);
}

/* The peer has forgotten what it counted (C7). Who was stopped meanwhile may
 * owe it the reason, under a new count. */
static void part_forgotten(struct fab_worker *worker, struct fab_part *part)
{
	part_undepart(part);
	if (part->restarting) {
		part_begin_again(worker, part);
		return;
	}
	part->announced = part->moved = 0;
	part->due = !!(part->flags & FAB_TRANSFER_NOTIFY);
	if (part->due)
		part_move(part, &part->peer->waiting);
	else
		fab_part_settle(worker, part);
}

/* All that was written had arrived, though an operation failed here. Of a read
 * that says nothing, but that one which moved was announced when it was whole.
 */
static void part_had_arrived(struct fab_worker *worker, struct fab_part *part)
{
	if ((part->flags & FAB_TRANSFER_READ) && !part->moved) {
		part_begin_again(worker, part);
		return;
	}
	part->restarting = part->moved = 0;
	part->dry = 1;
	fab_worker_count(&part->bytes_done, part->lost_bytes);
	fab_worker_count(&part->pages_done, part->lost_pages);
}

void fab_part_confirmed(struct fab_worker *worker, struct fab_part *part,
			int32_t status, uint64_t counted)
{
	struct fab_peer *peer = part->peer;
	struct fab_error error;
	char text[96];

	if (status == -FI_ECANCELED && (part->restarting || part->stopped)) {
		part_forgotten(worker, part);
		fab_part_admit(worker, peer);
		return;
	}
	if (status == 0) {
		part_undepart(part);
		if (part->restarting || part->moved)
			part_had_arrived(worker, part);
		fab_part_settle(worker, part);
		fab_part_admit(worker, peer);
		return;
	}
	if (status != -FI_EAGAIN) {
		fab_error_set(&error, status, "fi_writemsg", 0,
			      "the peer has no such region any more, or does "
			      "not grant this access");
		fab_part_orphan(worker, part, &error);
		fab_part_admit(worker, peer);
		return;
	}
	if (counted > part->counted)
		part->queries = 0;
	part->counted = counted;
	part->asked = 0;
	part->moved_ns = worker->now_ns;
	if (++part->queries < QUERY_LIMIT)
		return;
	snprintf(text, sizeof(text), "the peer counted %llu of %llu operations",
		 (unsigned long long) counted,
		 (unsigned long long) part->marked);
	part_give_up(worker, part, -FI_EIO, text);
}

void fab_part_forsake(struct fab_worker *worker, struct fab_part *part)
{
	if (!part->reported && part_out(part))
		part_report(worker, part);
	fab_part_settle(worker, part);
}

void fab_part_tick(struct fab_worker *worker, struct fab_part *part)
{
	uint64_t still = worker->now_ns - part->moved_ns;
	struct fab_error error;

	if (part_out(part) || !part_is_over(part)) {
		if (still < worker->options.peer_timeout_ns || part->reported)
			return;
		fab_error_set(&error, -FI_ETIMEDOUT, "fi_cq_read", 0,
			      part_out(part) ?
				      "posted operations do not complete" :
				      "the provider takes no operation");
		part->uncounted = 1;
		for (uint32_t i = 0; i < worker->lane_count; i++)
			fab_lane_set_adrift(&worker->lanes[i], part->peer,
					    part);
		fab_part_fail(worker, part, &error);
		fab_part_forsake(worker, part);
		return;
	}
	if (!part->announced || !part->departed ||
	    still < worker->options.peer_timeout_ns / SILENCE_LIMIT)
		return;
	part->moved_ns = worker->now_ns;
	if (++part->asked > SILENCE_LIMIT)
		part_give_up(worker, part, -FI_ETIMEDOUT,
			     "the peer does not confirm");
	else
		part_announce(worker, part, FAB_ANNOUNCE_QUERY);
}

void fab_part_free_list(struct fab_link *list)
{
	while (!fab_list_empty(list)) {
		struct fab_link *link = list->next;

		fab_list_remove(link);
		part_free(FAB_ENTRY(link, struct fab_part, link));
	}
}
