#include "peer.h"

#include "address.h"
#include "connections.h"
#include "lane.h"
#include "part.h"
#include "route.h"
#include "worker.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_LIMIT      65536u
#define SLOT_QUARANTINE 256u

static struct fab_peer *peer_reuse(struct fab_worker *worker)
{
	struct fab_peer *peer;

	if (worker->free_peer_count <= SLOT_QUARANTINE &&
	    worker->peer_count < SLOT_LIMIT)
		return NULL;
	if (fab_list_empty(&worker->free_peers))
		return NULL;
	peer = FAB_ENTRY(worker->free_peers.next, struct fab_peer, free);
	fab_list_remove(&peer->free);
	worker->free_peer_count--;
	return peer;
}

static struct fab_peer *peer_grow(struct fab_worker *worker)
{
	uint32_t capacity = worker->peer_capacity;
	struct fab_peer **peers, *peer;

	if (worker->peer_count == SLOT_LIMIT)
		return NULL;
	if (worker->peer_count == capacity) {
		capacity = capacity ? capacity * 2 : 16;
		peers = realloc(worker->peers, capacity * sizeof(peers[0]));
		if (!peers)
			return NULL;
		worker->peers = peers;
		worker->peer_capacity = capacity;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->addresses =
		calloc(worker->lane_count, sizeof(peer->addresses[0]));
	if (!peer->addresses) {
		free(peer);
		return NULL;
	}
	fab_list_construct(&peer->frames);
	fab_list_construct(&peer->posting);
	fab_list_construct(&peer->waiting);
	fab_list_construct(&peer->settling);
	peer->slot = worker->peer_count;
	worker->peers[worker->peer_count++] = peer;
	return peer;
}

static void peer_release(struct fab_worker *worker, struct fab_peer *peer)
{
	fab_departures_destruct(&peer->departures);
	fab_arrivals_destruct(&peer->arrivals);
	fab_cma_forget(&peer->cma);
	memset(peer->proven, 0, sizeof(peer->proven));
	free(peer->sockets);
	peer->sockets = NULL;
	peer->socket_count = 0;
	peer->state = FAB_PEER_FREE;
	fab_list_append(&worker->free_peers, &peer->free);
	worker->free_peer_count++;
}

void fab_peer_forget(struct fab_worker *worker, struct fab_peer *peer)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		if (peer->addresses[i])
			fab_address_release(&worker->lanes[i],
					    peer->addresses[i]);
		peer->addresses[i] = NULL;
	}
}

/* Text addresses differ in length but must end; binary ones have one length.
 * They come from the peer: the provider would trust them. */
static int peer_address_fits(const struct fab_lane *lane,
			     const struct fab_peer_spec *spec)
{
	const unsigned char *last = spec->addresses + spec->address_bytes - 1;

	if (lane->info->addr_format != FI_ADDR_STR)
		return spec->address_bytes == lane->address_bytes;
	for (uint32_t i = 0; i < spec->lane_count; i++) {
		if (last[(size_t) spec->address_bytes * i])
			return 0;
	}
	return 1;
}

static int peer_insert(struct fab_worker *worker, struct fab_peer *peer,
		       const struct fab_peer_spec *spec,
		       struct fab_error *error)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		struct fab_lane *lane = &worker->lanes[i];
		const unsigned char *address;
		uint32_t bytes;
		int ret;

		if (!peer_address_fits(lane, spec))
			return fab_error_set(error, -FI_EINVAL, "fi_av_insert",
					     0, "address of another format");
		/* Unequal counts wrap. */
		address = spec->addresses +
			  (size_t) spec->address_bytes * (i % spec->lane_count);
		bytes = spec->address_bytes;
		if (lane->info->addr_format == FI_ADDR_STR)
			bytes = (uint32_t) strlen((const char *) address) + 1;
		ret = fab_address_add(lane, address, bytes,
				      &peer->addresses[i]);
		if (ret)
			return fab_error_set(error, ret, "fi_av_insert", 0,
					     NULL);
	}
	return 0;
}

void fab_peer_open(struct fab_worker *worker, struct fab_peer_spec *spec)
{
	struct fab_error error = {0};
	struct fab_peer *peer = NULL;

	if (worker->failed)
		fab_error_set(&error, -FI_EOPBADSTATE, "fi_av_insert", 0,
			      "the engine has failed");
	else {
		peer = peer_reuse(worker);
		if (!peer)
			peer = peer_grow(worker);
		if (!peer)
			fab_error_set(&error, -FI_ENOMEM, "fi_av_insert", 0,
				      "no slot for another endpoint");
	}
	if (peer && peer_insert(worker, peer, spec, &error)) {
		fab_peer_forget(worker, peer);
		peer_release(worker, peer);
		peer = NULL;
	}
	if (peer) {
		peer->state = FAB_PEER_OPEN;
		peer->route = spec->route;
		peer->path = spec->path;
		peer->path_count = spec->path_count;
		peer->severed = 0;
		peer->paths_down = 0;
		peer->cookie = spec->cookie;
		peer->remote_cookie = 0;
		peer->remote_slot = FAB_NO_PEER;
		peer->opened_ns = peer->heard_ns = worker->now_ns;
		peer->waiting_ns = 0;
		peer->deadline_ns = 0;
		peer->starved = 0;
		peer->down = 0;
		peer->silent = 0;
		peer->found = peer->told = 0;
		peer->heartbeat_ns = 0;
		peer->messages_out = peer->messages_in = 0;
		peer->missing_ns = 0;
	}
	fab_worker_report_added(worker, spec, peer ? peer->slot : FAB_NO_PEER,
				&error);
	free(spec);
}

/* A word on each lane but the one that messages take, so that the provider has
 * connected before pages come. */
static void peer_warm_up(struct fab_worker *worker, struct fab_peer *peer)
{
	for (uint32_t i = 0; worker->options.warmup && i < worker->lane_count;
	     i++) {
		struct fab_outgoing *frame =
			fab_outgoing_alloc(FAB_FRAME_STIR, 0, NULL, 0, NULL, 0);

		if (!frame)
			return; /* it will do without */
		frame->lane = i;
		fab_peer_queue(worker, peer, frame);
	}
}

void fab_peer_link(struct fab_worker *worker, struct fab_peer *peer,
		   uint32_t remote_slot, uint64_t remote_cookie,
		   uint64_t heartbeat_ns)
{
	if (peer->state != FAB_PEER_OPEN)
		return;
	peer->state = FAB_PEER_ATTACHED;
	peer->remote_slot = remote_slot;
	peer->remote_cookie = remote_cookie;
	peer->heartbeat_ns = heartbeat_ns;
	peer->heard_ns = peer->beat_ns = worker->now_ns;
	worker->watched += heartbeat_ns != 0;
	fab_connections_expect(worker);
	fab_cma_tell(worker, peer);
	peer_warm_up(worker, peer);
	fab_part_admit(worker, peer);
	fab_peer_ready(worker, peer);
}

static struct fab_proof *peer_place(struct fab_peer *peer, uint64_t key)
{
	return &peer->proven[key * 0x9e3779b97f4a7c15ull >> 60];
}

int fab_peer_has_proven(struct fab_peer *peer, uint64_t key, uint32_t access)
{
	const struct fab_proof *proof = peer_place(peer, key);

	return proof->key == key && (proof->access & access) == access;
}

void fab_peer_prove(struct fab_peer *peer, const struct fab_proof *proof)
{
	struct fab_proof *known = peer_place(peer, proof->key);

	if (known->key == proof->key)
		known->access |= proof->access;
	else
		*known = *proof;
}

void fab_peer_ready(struct fab_worker *worker, struct fab_peer *peer)
{
	if (!fab_link_listed(&peer->ready))
		fab_list_append(&worker->ready, &peer->ready);
}

void fab_peer_queue(struct fab_worker *worker, struct fab_peer *peer,
		    struct fab_outgoing *frame)
{
	if (peer->state != FAB_PEER_OPEN && peer->state != FAB_PEER_ATTACHED) {
		free(frame);
		return;
	}
	worker->outstanding++;
	fab_list_append(&peer->frames, &frame->link);
	fab_peer_ready(worker, peer);
}

void fab_peer_starve(struct fab_worker *worker, struct fab_peer *peer)
{
	if (peer->state != FAB_PEER_OPEN && peer->state != FAB_PEER_ATTACHED)
		return;
	peer->starved = 1;
	fab_peer_ready(worker, peer);
}

void fab_peer_send(struct fab_worker *worker, struct fab_peer *peer,
		   uint32_t kind, const void *payload, uint32_t bytes)
{
	struct fab_outgoing *frame;

	frame = fab_outgoing_alloc(kind, 0, payload, bytes, NULL, 0);
	if (frame)
		fab_peer_queue(worker, peer, frame);
	else
		fab_peer_starve(worker, peer);
}

static void peer_drop_frames(struct fab_worker *worker, struct fab_peer *peer)
{
	while (!fab_list_empty(&peer->frames)) {
		struct fab_link *link = peer->frames.next;

		fab_list_remove(link);
		worker->outstanding--;
		free(FAB_ENTRY(link, struct fab_outgoing, link));
	}
}

static void peer_orphan_list(struct fab_worker *worker, struct fab_link *list,
			     const struct fab_error *error)
{
	struct fab_link *link = list->next, *next;

	/* Orphaning may free the transfer or move it to the settling list's
	 * end, once; it touches no other. */
	for (; link != list; link = next) {
		next = link->next;
		fab_part_orphan(worker, FAB_ENTRY(link, struct fab_part, link),
				error);
	}
}

/* Nothing leaves for this peer any more; what is out is waited for. */
static void peer_stop(struct fab_worker *worker, struct fab_peer *peer,
		      const struct fab_error *error)
{
	worker->watched -= peer->heartbeat_ns != 0;
	peer->heartbeat_ns = 0;
	peer_drop_frames(worker, peer);
	peer_orphan_list(worker, &peer->posting, error);
	peer_orphan_list(worker, &peer->waiting, error);
	peer_orphan_list(worker, &peer->settling, error);
	if (fab_link_listed(&peer->ready))
		fab_list_remove(&peer->ready);
	/* Who was silent before is not waited for as long again. */
	peer->deadline_ns = peer->heard_ns + worker->options.peer_timeout_ns;
	if (peer->deadline_ns < worker->now_ns + FAB_GRACE_NS)
		peer->deadline_ns = worker->now_ns + FAB_GRACE_NS;
	if (peer->deadline_ns >
	    worker->now_ns + worker->options.peer_timeout_ns)
		peer->deadline_ns =
			worker->now_ns + worker->options.peer_timeout_ns;
}

static void peer_end(struct fab_worker *worker, struct fab_peer *peer,
		     const struct fab_error *error)
{
	peer->state = FAB_PEER_BROKEN;
	if (error->code == -FI_ETIMEDOUT && worker->lanes[0].lists_sockets) {
		peer->silent = 1;
		fab_connections_expect(worker);
	}
	fab_worker_report_broken(worker, peer, error);
	peer_stop(worker, peer, error);
	/* What is still out after a failure seldom comes back: tell soon. */
	if (peer->deadline_ns > worker->now_ns + FAB_GRACE_NS)
		peer->deadline_ns = worker->now_ns + FAB_GRACE_NS;
}

void fab_peer_break_by(struct fab_worker *worker, struct fab_peer *peer,
		       const struct fab_error *error)
{
	if (peer->state == FAB_PEER_OPEN || peer->state == FAB_PEER_ATTACHED)
		peer_end(worker, peer, error);
}

void fab_peer_sever(struct fab_worker *worker, struct fab_peer *peer,
		    const struct fab_error *error)
{
	if (peer->state != FAB_PEER_OPEN && peer->state != FAB_PEER_ATTACHED)
		return;
	peer->severed =
		peer->path_count > 1 && peer->state == FAB_PEER_ATTACHED;
	peer_end(worker, peer, error);
}

void fab_peer_break(struct fab_worker *worker, struct fab_peer *peer, int code,
		    const char *call, const char *text)
{
	struct fab_error error;

	fab_error_set(&error, code, call, 0, text);
	fab_peer_break_by(worker, peer, &error);
}

int fab_peer_lose_lane(struct fab_worker *worker, struct fab_peer *peer,
		       uint32_t lane, const struct fab_error *error)
{
	uint64_t all = UINT64_MAX >> (64 - worker->lane_count);
	uint64_t down = peer->down | 1ull << lane;

	if (peer->state != FAB_PEER_ATTACHED ||
	    (down == all && peer->path_count == 1)) {
		fab_peer_break_by(worker, peer, error);
		return 0;
	}
	if (down == peer->down)
		return 1;
	peer->down = down;
	fab_worker_count(&worker->statistics.lanes_failed, 1);
	if (down == all) {
		fab_peer_sever(worker, peer, error);
		return 0;
	}
	fab_worker_report(worker, FAB_LANE_FAILED, peer->route, lane, error);
	fab_peer_ready(worker, peer);
	return 1;
}

static int peer_out(const struct fab_peer *peer)
{
	return peer->frames_out || peer->operations_out;
}

static void peer_forsake(struct fab_worker *worker, struct fab_peer *peer)
{
	struct fab_link *link = peer->settling.next, *next;

	peer->deadline_ns = 0;
	for (uint32_t i = 0; i < worker->lane_count; i++)
		fab_lane_set_adrift(&worker->lanes[i], peer, NULL);
	for (; link != &peer->settling; link = next) {
		next = link->next;
		fab_part_forsake(worker,
				 FAB_ENTRY(link, struct fab_part, link));
	}
}

static void peer_removed(struct fab_worker *worker, struct fab_peer *peer)
{
	if (peer->silent)
		fab_connections_look(worker);
	fab_worker_report(worker, FAB_PEER_REMOVED, peer->route, 0, NULL);
	fab_peer_forget(worker, peer);
	peer->state = FAB_PEER_ORPHANED;
}

void fab_peer_close(struct fab_worker *worker, struct fab_peer *peer)
{
	struct fab_error error;

	if (peer->state == FAB_PEER_FREE || peer->state == FAB_PEER_REMOVING ||
	    peer->state == FAB_PEER_ORPHANED)
		return;
	fab_error_set(&error, -FI_ECANCELED, "fi_av_remove", 0,
		      "the endpoint was closed");
	if (peer->state != FAB_PEER_BROKEN)
		peer_stop(worker, peer, &error);
	if (peer->deadline_ns) {
		peer->state = FAB_PEER_REMOVING;
		worker->removing++;
	} else {
		/* A broken peer, whose operations were waited for already. */
		peer_removed(worker, peer);
	}
	fab_peer_settle(worker, peer);
}

void fab_peer_settle(struct fab_worker *worker, struct fab_peer *peer)
{
	if (peer->state == FAB_PEER_REMOVING && !peer_out(peer)) {
		worker->removing--;
		peer_removed(worker, peer);
	}
	/* Transfers that were not released yet keep the slot. */
	if (peer->state == FAB_PEER_ORPHANED && !peer_out(peer) &&
	    fab_list_empty(&peer->settling))
		peer_release(worker, peer);
}

/* Whether something depends on the peer. Transfers that only the loop still
 * has to release do not. */
static int peer_waits(const struct fab_peer *peer)
{
	const struct fab_link *link;

	if (peer_out(peer) || !fab_list_empty(&peer->frames) ||
	    !fab_list_empty(&peer->posting))
		return 1;
	for (link = peer->settling.next; link != &peer->settling;
	     link = link->next) {
		const struct fab_part *part =
			FAB_ENTRY(link, const struct fab_part, link);

		if (!part->reported || part->departed)
			return 1;
	}
	return 0;
}

static void peer_tick_list(struct fab_worker *worker, struct fab_link *list)
{
	struct fab_link *link = list->next, *next;

	for (; link != list; link = next) {
		next = link->next;
		fab_part_tick(worker, FAB_ENTRY(link, struct fab_part, link));
	}
}

static void peer_beat(struct fab_worker *worker, struct fab_peer *peer)
{
	struct fab_beat beat = {.messages = peer->messages_out};

	if (worker->now_ns - peer->beat_ns < peer->heartbeat_ns ||
	    !fab_list_empty(&peer->frames))
		return;
	peer->beat_ns = worker->now_ns;
	fab_peer_send(worker, peer, FAB_FRAME_BEAT, &beat, sizeof(beat));
}

void fab_peer_hear_beat(struct fab_worker *worker, struct fab_peer *peer,
			const struct fab_beat *beat)
{
	if (peer->messages_in >= beat->messages) {
		peer->missing_ns = 0;
		return;
	}
	if (!peer->missing_ns)
		peer->missing_ns = worker->now_ns;
	if (worker->now_ns - peer->missing_ns >
	    worker->options.peer_timeout_ns / 2)
		fab_peer_break(worker, peer, -FI_EIO, "fi_recv",
			       "a message of the peer's got lost");
}

int fab_peer_hear_paths(struct fab_worker *worker, struct fab_peer *peer,
			const struct fab_paths *paths)
{
	if (!paths->down ||
	    paths->down & ~(UINT64_MAX >> (64 - peer->path_count)))
		return -EPROTO;
	/* So that a peer cannot make the loop's queue grow. */
	if (!(paths->down & ~peer->paths_down))
		return 0;
	peer->paths_down |= paths->down;
	fab_worker_report(worker, FAB_PATHS_DOWN, peer->route, paths->down,
			  NULL);
	return 0;
}

void fab_peer_excuse(struct fab_worker *worker, uint64_t late_ns)
{
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		uint64_t *heard_ns = &worker->peers[i]->heard_ns;

		*heard_ns += late_ns;
		if (*heard_ns > worker->now_ns)
			*heard_ns = worker->now_ns;
	}
}

void fab_peer_tick(struct fab_worker *worker, struct fab_peer *peer)
{
	uint64_t since = peer->heard_ns > peer->waiting_ns ? peer->heard_ns :
							     peer->waiting_ns;

	if (peer->deadline_ns && worker->now_ns > peer->deadline_ns) {
		peer_forsake(worker, peer);
		if (peer->state == FAB_PEER_REMOVING) {
			worker->removing--;
			peer_removed(worker, peer);
		}
	}
	fab_peer_settle(worker, peer);
	if (peer->state != FAB_PEER_OPEN && peer->state != FAB_PEER_ATTACHED) {
		if (peer_out(peer) && fab_cma_ended(&peer->cma))
			fab_reap_bury(worker, peer);
		return;
	}
	if (peer->heartbeat_ns) {
		peer_beat(worker, peer);
		since = peer->heard_ns;
	} else if (!peer_waits(peer)) {
		peer->waiting_ns = 0;
		return;
	}
	if (!peer->heartbeat_ns && !peer->waiting_ns)
		peer->waiting_ns = since = worker->now_ns;
	if (worker->now_ns - since > worker->options.peer_timeout_ns) {
		fab_peer_break(worker, peer, -FI_ETIMEDOUT, "fi_cq_read",
			       "no sign of life within peer_timeout_s");
		return;
	}
	peer_tick_list(worker, &peer->posting);
	peer_tick_list(worker, &peer->settling);
}

void fab_peer_quiesce(struct fab_worker *worker, struct fab_peer *peer)
{
	struct fab_link *link = peer->settling.next, *next;

	peer->frames_out = 0;
	peer->operations_out = 0;
	for (; link != &peer->settling; link = next) {
		struct fab_part *part = FAB_ENTRY(link, struct fab_part, link);

		next = link->next;
		part->completed = part->posted;
		fab_part_settle(worker, part);
	}
}

void fab_peer_destruct(struct fab_peer *peer)
{
	fab_part_free_list(&peer->settling);
	fab_departures_destruct(&peer->departures);
	fab_arrivals_destruct(&peer->arrivals);
	fab_cma_forget(&peer->cma);
	free(peer->sockets);
	free(peer->addresses);
	free(peer);
}
