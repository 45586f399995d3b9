#include "transfer.h"

#include "peer.h"
#include "region.h"
#include "worker.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Answers without progress before a transfer is given up, and queries without
 * an answer; one query each eighth of peer_timeout. */
#define QUERY_LIMIT   3u
#define SILENCE_LIMIT 8u

static int transfer_needs_departure(const struct fab_transfer *transfer)
{
	return (transfer->flags & FAB_TRANSFER_NOTIFY) ||
	       (transfer->pages.count &&
		(transfer->flags & FAB_TRANSFER_CONFIRM));
}

static uint64_t transfer_out(const struct fab_transfer *transfer)
{
	return transfer->posted - transfer->completed;
}

/* Nothing more of it will be posted. */
static int transfer_is_over(const struct fab_transfer *transfer)
{
	return transfer->stopped ||
	       transfer->cursor.page >= transfer->pages.count;
}

static void transfer_move(struct fab_transfer *transfer, struct fab_link *list)
{
	if (fab_link_listed(&transfer->link))
		fab_list_remove(&transfer->link);
	fab_list_append(list, &transfer->link);
}

void fab_transfer_begin(struct fab_worker *worker,
			struct fab_transfer *transfer)
{
	struct fab_peer *peer = fab_worker_slot(worker, transfer->peer_slot);
	struct fab_error error;

	worker->outstanding++;
	fab_region_hold(transfer->region);
	transfer->moved_ns = worker->now_ns;
	transfer->peer = peer;
	transfer->due = !!(transfer->flags & FAB_TRANSFER_NOTIFY);
	if (!peer || (peer->state != FAB_PEER_OPEN &&
		      peer->state != FAB_PEER_ATTACHED)) {
		fab_error_set(&error, -FI_ESHUTDOWN, "fi_writemsg", 0,
			      "the peer is gone");
		fab_list_append(peer ? &peer->settling : &worker->strays,
				&transfer->link);
		fab_transfer_orphan(worker, transfer, &error);
		return;
	}
	fab_list_append(&peer->waiting, &transfer->link);
	fab_transfer_admit(worker, peer);
}

/* Where plain writes are to be had for a proven key, have it proven. */
static void transfer_ask_proof(struct fab_worker *worker,
			       const struct fab_transfer *transfer)
{
	struct fab_proof proof = {
		.key = transfer->remote_key,
		.access = FAB_ACCESS_REMOTE_WRITE,
	};

	if (worker->lanes[0].plain_bytes && transfer->departed &&
	    !(transfer->flags & FAB_TRANSFER_READ) &&
	    !fab_peer_has_proven(transfer->peer, transfer->remote_key))
		fab_peer_send(worker, transfer->peer, FAB_FRAME_PROVE, &proof,
			      sizeof(proof));
}

void fab_transfer_admit(struct fab_worker *worker, struct fab_peer *peer)
{
	while (peer->state == FAB_PEER_ATTACHED &&
	       !fab_list_empty(&peer->waiting)) {
		struct fab_transfer *transfer = FAB_ENTRY(
			peer->waiting.next, struct fab_transfer, link);
		int ret = 0;

		if (transfer_needs_departure(transfer))
			ret = fab_departure_open(&peer->departures,
						 peer->remote_slot, transfer,
						 &transfer->immediate);
		else
			transfer->immediate = 0;
		if (ret == -FI_EAGAIN)
			return;
		if (ret) {
			fab_peer_starve(worker, peer);
			return;
		}
		transfer->departed = transfer_needs_departure(transfer) != 0;
		transfer->moved_ns = worker->now_ns;
		if (transfer->pages.count == 0 || transfer->stopped) {
			transfer_move(transfer, &peer->settling);
			fab_transfer_settle(worker, transfer);
		} else {
			transfer_move(transfer, &peer->posting);
			transfer_ask_proof(worker, transfer);
			fab_peer_ready(worker, peer);
		}
	}
}

static void transfer_announce(struct fab_worker *worker,
			      struct fab_transfer *transfer, uint32_t flags)
{
	struct fab_announce announce = {
		.sequence = transfer->sequence,
		.key = transfer->remote_key,
		.immediate = transfer->immediate,
		.status = transfer->error.code,
		.flags = flags,
	};

	announce.count = transfer->marked;
	if (transfer->pages.count)
		announce.access = transfer->flags & FAB_TRANSFER_READ ?
					  FAB_ACCESS_REMOTE_READ :
					  FAB_ACCESS_REMOTE_WRITE;
	if (transfer->flags & FAB_TRANSFER_NOTIFY)
		announce.flags |= FAB_ANNOUNCE_NOTIFY;
	if (transfer->uncounted)
		announce.flags |= FAB_ANNOUNCE_UNCOUNTED;
	transfer->announced = 1;
	transfer->due = 0;
	fab_peer_send(worker, transfer->peer, FAB_FRAME_ANNOUNCE, &announce,
		      sizeof(announce));
}

/* A write is announced as soon as its last operation is posted: the frame may
 * overtake the data (C2). A read, a write that met an error, and one that has
 * operations which nobody counts, only when nothing is out any more. */
static int transfer_may_announce(const struct fab_transfer *transfer)
{
	if (!transfer->departed || transfer->announced)
		return 0;
	if (!transfer->error.code) {
		if (transfer->flags & FAB_TRANSFER_READ)
			return !(transfer->flags & FAB_TRANSFER_NOTIFY) ||
			       transfer_out(transfer) == 0;
		if (transfer->posted == transfer->marked)
			return 1;
	}
	return transfer_out(transfer) == 0;
}

static void transfer_report(struct fab_worker *worker,
			    struct fab_transfer *transfer)
{
	transfer->reported = 1;
	fab_worker_report_done(worker, transfer, transfer_out(transfer) == 0);
}

static void transfer_let_go(struct fab_worker *worker,
			    struct fab_transfer *transfer)
{
	transfer->quiet = 1;
	fab_region_drop(worker, transfer->region);
	transfer->region = NULL;
}

void fab_transfer_settle(struct fab_worker *worker,
			 struct fab_transfer *transfer)
{
	int late = transfer->reported && !transfer->quiet;

	if (!transfer_is_over(transfer))
		return;
	if (transfer_may_announce(transfer))
		transfer_announce(worker, transfer, 0);
	if (transfer_out(transfer))
		return;
	if (!transfer->reported) {
		if (!transfer->error.code && transfer->departed &&
		    (transfer->flags & FAB_TRANSFER_CONFIRM))
			return;
		transfer_report(worker, transfer);
	}
	if (!transfer->quiet) {
		transfer_let_go(worker, transfer);
		if (late)
			fab_worker_report(worker, FAB_TRANSFER_QUIET,
					  FAB_NO_PEER, transfer->token, NULL);
	}
	if (transfer->departed || transfer->due || !transfer->released)
		return;
	fab_list_remove(&transfer->link);
	worker->outstanding--;
	free(transfer);
}

void fab_transfer_fail(struct fab_worker *worker, struct fab_transfer *transfer,
		       const struct fab_error *error)
{
	if (transfer->reported)
		return;
	if (!transfer->error.code)
		transfer->error = *error;
	/* One that owes an announcement keeps waiting for a slot. */
	if (!transfer->stopped && transfer->peer &&
	    (transfer->departed || !transfer->due))
		transfer_move(transfer, &transfer->peer->settling);
	transfer->stopped = 1;
	fab_transfer_settle(worker, transfer);
}

static void transfer_undepart(struct fab_transfer *transfer)
{
	if (!transfer->departed)
		return;
	transfer->departed = 0;
	fab_departure_close(&transfer->peer->departures, transfer->immediate);
}

void fab_transfer_orphan(struct fab_worker *worker,
			 struct fab_transfer *transfer,
			 const struct fab_error *error)
{
	transfer->due = 0;
	transfer_undepart(transfer);
	if (transfer->reported)
		fab_transfer_settle(worker, transfer);
	else
		fab_transfer_fail(worker, transfer, error);
}

void fab_transfer_abort(struct fab_worker *worker,
			struct fab_transfer *transfer)
{
	struct fab_error error;

	fab_error_set(&error, -FI_ECANCELED, "cancel", 0, NULL);
	fab_transfer_fail(worker, transfer, &error);
}

void fab_transfer_discard(struct fab_worker *worker,
			  struct fab_transfer *transfer)
{
	transfer->released = 1;
	fab_transfer_settle(worker, transfer);
}

void fab_transfer_moved(struct fab_worker *worker,
			struct fab_transfer *transfer, uint64_t bytes,
			uint32_t pages)
{
	transfer->completed++;
	transfer->moved_ns = worker->now_ns;
	fab_worker_count(&transfer->bytes_done, bytes);
	fab_worker_count(&transfer->pages_done, pages);
	if (transfer_out(transfer) == 0)
		fab_transfer_settle(worker, transfer);
}

/* The peer never will have all of it. Tell it once more, by announcing the
 * failure, and wait no longer. */
static void transfer_give_up(struct fab_worker *worker,
			     struct fab_transfer *transfer, int code,
			     const char *text)
{
	struct fab_error error;

	fab_error_set(&error, code, "fi_writemsg", 0, text);
	transfer->uncounted = 1;
	if (!transfer->error.code)
		transfer->error = error;
	transfer_announce(worker, transfer, 0);
	fab_transfer_fail(worker, transfer, &error);
}

void fab_transfer_confirmed(struct fab_worker *worker,
			    struct fab_transfer *transfer, int32_t status,
			    uint64_t counted)
{
	struct fab_peer *peer = transfer->peer;
	struct fab_error error;
	char text[96];

	if (status == 0) {
		transfer_undepart(transfer);
		fab_transfer_settle(worker, transfer);
		fab_transfer_admit(worker, peer);
		return;
	}
	if (status != -FI_EAGAIN) {
		fab_error_set(&error, status, "fi_writemsg", 0,
			      "the peer has no such region any more, or does "
			      "not grant this access");
		fab_transfer_orphan(worker, transfer, &error);
		fab_transfer_admit(worker, peer);
		return;
	}
	if (counted > transfer->counted)
		transfer->queries = 0;
	transfer->counted = counted;
	transfer->asked = 0;
	transfer->moved_ns = worker->now_ns;
	if (++transfer->queries < QUERY_LIMIT)
		return;
	snprintf(text, sizeof(text), "the peer counted %llu of %llu operations",
		 (unsigned long long) counted,
		 (unsigned long long) transfer->marked);
	transfer_give_up(worker, transfer, -FI_EIO, text);
}

void fab_transfer_forsake(struct fab_worker *worker,
			  struct fab_transfer *transfer)
{
	if (!transfer->reported && transfer_out(transfer))
		transfer_report(worker, transfer);
	fab_transfer_settle(worker, transfer);
}

void fab_transfer_tick(struct fab_worker *worker, struct fab_transfer *transfer)
{
	uint64_t still = worker->now_ns - transfer->moved_ns;
	struct fab_error error;

	if (transfer_out(transfer) || !transfer_is_over(transfer)) {
		if (still < worker->options.peer_timeout_ns ||
		    transfer->reported)
			return;
		fab_error_set(&error, -FI_ETIMEDOUT, "fi_cq_read", 0,
			      transfer_out(transfer) ?
				      "posted operations do not complete" :
				      "the provider takes no operation");
		transfer->uncounted = 1;
		fab_transfer_fail(worker, transfer, &error);
		fab_transfer_forsake(worker, transfer);
		return;
	}
	if (!transfer->announced || !transfer->departed ||
	    still < worker->options.peer_timeout_ns / SILENCE_LIMIT)
		return;
	transfer->moved_ns = worker->now_ns;
	if (++transfer->asked > SILENCE_LIMIT)
		transfer_give_up(worker, transfer, -FI_ETIMEDOUT,
				 "the peer does not confirm");
	else
		transfer_announce(worker, transfer, FAB_ANNOUNCE_QUERY);
}

void fab_transfer_free_list(struct fab_link *list)
{
	while (!fab_list_empty(list)) {
		struct fab_link *link = list->next;

		fab_list_remove(link);
		free(FAB_ENTRY(link, struct fab_transfer, link));
	}
}
