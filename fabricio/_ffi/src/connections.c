#include "connections.h"

#include "engine.h"
#include "lane.h"
#include "peer.h"
#include "sockets.h"
#include "worker.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Longest wait before the next look for a connection that is not there yet, in
 * ticks. */
#define PATIENCE 64u

/* What one look has found: of each lane the sockets, sorted; NULL: not known. */
struct look {
	struct fab_socket **sockets;
	uint32_t *counts;
};

struct fab_watch *fab_watch_alloc(uint64_t token, const void *addresses,
				  uint32_t address_bytes, uint32_t count)
{
	struct fab_watch *watch =
		calloc(1, sizeof(*watch) + count * sizeof(watch->hosts[0]));

	if (!watch)
		return NULL;
	watch->token = token;
	for (uint32_t i = 0; i < count; i++) {
		const unsigned char *address =
			(const unsigned char *) addresses +
			(size_t) address_bytes * i;

		if (!fab_place_read(&watch->hosts[watch->host_count], address,
				    address_bytes))
			watch->host_count++;
	}
	return watch;
}

void fab_watch_free(struct fab_watch *watch)
{
	if (fab_link_listed(&watch->link))
		fab_list_remove(&watch->link);
	free(watch->inodes);
	free(watch);
}

static int host_is(const struct fab_place *a, const struct fab_place *b)
{
	return a->family == b->family &&
	       !memcmp(a->host, b->host, sizeof(a->host));
}

/* Where the peer listens for that lane of ours. */
static int peer_place(const struct fab_peer *peer, uint32_t lane,
		      struct fab_place *place)
{
	const struct fab_lane_address *address = peer->addresses[lane];

	return address ?
		       fab_place_read(place, address->bytes, address->length) :
		       -1;
}

/* Whether one of the peer's lanes is on that host. */
static int peer_is_on(const struct fab_worker *worker,
		      const struct fab_peer *peer,
		      const struct fab_place *place)
{
	struct fab_place lane;

	for (uint32_t i = 0; i < worker->lane_count; i++) {
		if (!peer_place(peer, i, &lane) && host_is(&lane, place))
			return 1;
	}
	return 0;
}

int fab_connections_hear(const struct fab_worker *worker, struct fab_peer *peer,
			 const struct fab_place *place)
{
	struct fab_place *more;

	if (place->family != FAB_PLACE_IP4 && place->family != FAB_PLACE_IP6)
		return -EPROTO;
	for (uint32_t i = 0; i < peer->place_count; i++) {
		if (!memcmp(&peer->places[i], place, sizeof(*place)))
			return 0;
	}
	if (!peer_is_on(worker, peer, place))
		return 0; /* that would be another's */
	/* Each lane connects once; what a peer says beyond that is not kept. */
	if (peer->place_count == FAB_MAX_LANES)
		return 0;
	more = realloc(peer->places,
		       (peer->place_count + 1) * sizeof(peer->places[0]));
	if (!more)
		return 0; /* it will be taken for nobody's, and waited for */
	peer->places = more;
	more[peer->place_count++] = *place;
	return 0;
}

void fab_connections_expect(struct fab_worker *worker)
{
	worker->look_ns = 0;
	worker->look_wait_ns = 0;
}

static void look_end(struct fab_worker *worker, struct look *look)
{
	for (uint32_t i = 0; look->sockets && i < worker->lane_count; i++)
		free(look->sockets[i]);
	free(look->sockets);
	free(look->counts);
}

/* 0, or not: memory is out. */
static int look_begin(struct fab_worker *worker, struct look *look)
{
	look->sockets = calloc(worker->lane_count, sizeof(look->sockets[0]));
	look->counts = calloc(worker->lane_count, sizeof(look->counts[0]));
	if (!look->sockets || !look->counts)
		return -1;
	for (uint32_t i = 0; i < worker->lane_count; i++)
		(void) fab_sockets_list(&worker->lanes[i], &look->sockets[i],
					&look->counts[i]);
	return 0;
}

static void peer_tell(struct fab_worker *worker, struct fab_peer *peer,
		      uint32_t lane, const struct fab_place *local)
{
	peer->told |= 1ull << lane;
	fab_peer_send(worker, peer, FAB_FRAME_PLACE, local, sizeof(*local));
}

/* Mark the sockets that lead to a place as the peer's. Returns the first. */
static struct fab_socket *look_mark(struct fab_worker *worker,
				    struct look *look, uint32_t lane,
				    struct fab_peer *peer,
				    const struct fab_place *place)
{
	struct fab_socket *sockets = look->sockets[lane];
	uint32_t count = look->counts[lane];
	struct fab_socket *first = fab_sockets_find(sockets, count, place);

	for (struct fab_socket *each = first;
	     each && each < sockets + count &&
	     !memcmp(&each->remote, place, sizeof(*place));
	     each++) {
		if (peer->silent)
			each->lost = 1;
		else
			each->lives = 1;
		peer->found |= 1ull << lane;
		worker->lanes[lane].sockets_seen = 1;
	}
	return first;
}

static void look_for(struct fab_worker *worker, struct look *look,
		     struct fab_peer *peer)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		struct fab_socket *ours;
		struct fab_place place;

		for (uint32_t j = 0; j < peer->place_count; j++)
			(void) look_mark(worker, look, i, peer,
					 &peer->places[j]);
		if (peer_place(peer, i, &place))
			continue;
		ours = look_mark(worker, look, i, peer, &place);
		if (ours && peer->state == FAB_PEER_ATTACHED &&
		    !(peer->told >> i & 1))
			peer_tell(worker, peer, i, &ours->local);
	}
}

/* Look for the sockets of all peers. 1 if a peer's were not all there. */
static int look_for_all(struct fab_worker *worker, struct look *look)
{
	uint64_t all = UINT64_MAX >> (64 - worker->lane_count);
	int missing = 0;

	for (uint32_t i = 0; i < worker->peer_count; i++) {
		struct fab_peer *peer = worker->peers[i];

		if (peer->state != FAB_PEER_OPEN &&
		    peer->state != FAB_PEER_ATTACHED && !peer->silent)
			continue;
		look_for(worker, look, peer);
		missing |= peer->state == FAB_PEER_ATTACHED &&
			   (peer->found | peer->down) != all;
	}
	return missing;
}

static void look_cut_silent(struct fab_worker *worker, struct look *look)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		for (uint32_t j = 0; j < look->counts[i]; j++) {
			struct fab_socket *socket = &look->sockets[i][j];

			if (socket->lost && !socket->lives)
				(void) shutdown(socket->fd, SHUT_RDWR); /* N1 */
		}
	}
	for (uint32_t i = 0; i < worker->peer_count; i++)
		worker->peers[i]->silent = 0;
}

static int watch_has(const struct fab_watch *watch, uint64_t inode)
{
	for (uint32_t i = 0; i < watch->inode_count; i++) {
		if (watch->inodes[i] == inode)
			return 1;
	}
	return 0;
}

static int watch_means(const struct fab_watch *watch,
		       const struct fab_place *place)
{
	for (uint32_t i = 0; i < watch->host_count; i++) {
		if (host_is(&watch->hosts[i], place))
			return 1;
	}
	return 0;
}

/* Go on with what is left of it. 1 if nothing is. */
static int watch_go_on(struct fab_worker *worker, struct fab_watch *watch,
		       const struct look *look)
{
	int expired = worker->now_ns - watch->began_ns >
		      worker->options.peer_timeout_ns;
	uint32_t most = 0, left = 0;
	uint64_t *inodes;

	for (uint32_t i = 0; i < worker->lane_count; i++) {
		if (!look->sockets[i] || !worker->lanes[i].sockets_seen)
			return 0; /* N3 */
		most += look->counts[i];
	}
	inodes = calloc(most + 1, sizeof(inodes[0]));
	if (!inodes)
		return 0;
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		for (uint32_t j = 0; j < look->counts[i]; j++) {
			const struct fab_socket *socket = &look->sockets[i][j];

			if (socket->lives ||
			    (watch->listed && !watch_has(watch, socket->inode)))
				continue;
			inodes[left++] = socket->inode;
			if (expired && watch_means(watch, &socket->remote))
				(void) shutdown(socket->fd, SHUT_RDWR);
		}
	}
	free(watch->inodes);
	watch->inodes = inodes;
	watch->inode_count = left;
	watch->listed = 1;
	return left == 0;
}

static void look_watch(struct fab_worker *worker, const struct look *look)
{
	struct fab_link *link = worker->watches.next, *next;

	for (; link != &worker->watches; link = next) {
		struct fab_watch *watch =
			FAB_ENTRY(link, struct fab_watch, link);

		next = link->next;
		if (!watch_go_on(worker, watch, look))
			continue;
		fab_worker_report(worker, FAB_CONNECTIONS_ENDED, FAB_NO_PEER,
				  watch->token, NULL);
		fab_watch_free(watch);
	}
}

int fab_connections_look(struct fab_worker *worker)
{
	struct look look = {0};
	int missing = 1;

	if (!look_begin(worker, &look)) {
		missing = look_for_all(worker, &look);
		look_cut_silent(worker, &look);
		look_watch(worker, &look);
	}
	look_end(worker, &look);
	return missing;
}

void fab_connections_watch(struct fab_worker *worker, struct fab_watch *watch)
{
	watch->began_ns = worker->now_ns;
	fab_list_append(&worker->watches, &watch->link);
	if (worker->lane_count && worker->lanes[0].lists_sockets)
		(void) fab_connections_look(worker);
	fab_connections_expect(worker);
}

void fab_connections_tick(struct fab_worker *worker, uint64_t interval_ns)
{
	int missing;

	if (worker->failed || !worker->lane_count ||
	    !worker->lanes[0].lists_sockets || worker->now_ns < worker->look_ns)
		return;
	missing = fab_connections_look(worker);
	/* Whoever does not connect at all is not looked for all the time. */
	if (worker->look_wait_ns < PATIENCE * interval_ns)
		worker->look_wait_ns += worker->look_wait_ns + interval_ns;
	if (!fab_list_empty(&worker->watches))
		worker->look_ns = 0;
	else if (missing)
		worker->look_ns = worker->now_ns + worker->look_wait_ns;
	else
		worker->look_ns = UINT64_MAX;
}

int fab_connections_await(struct fab_engine *engine, uint32_t worker,
			  uint64_t token, const void *addresses,
			  uint32_t address_bytes, uint32_t count)
{
	struct fab_watch *watch =
		fab_watch_alloc(token, addresses, address_bytes, count);

	if (!watch || fab_engine_reserve(engine, 1ull << worker, 1)) {
		free(watch);
		return -FI_ENOMEM;
	}
	fab_engine_command(engine, worker, FAB_COMMAND_WATCH, FAB_NO_PEER,
			   watch);
	return 0;
}
