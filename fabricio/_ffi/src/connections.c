#include "connections.h"

#include "address.h"
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

struct fab_watch *fab_watch_alloc(uint64_t token, uint64_t lost_ns,
				  const void *addresses, uint32_t address_bytes,
				  uint32_t count)
{
	struct fab_watch *watch =
		calloc(1, sizeof(*watch) + count * sizeof(watch->peers[0]));

	if (!watch)
		return NULL;
	watch->token = token;
	watch->lost_ns = lost_ns;
	for (uint32_t i = 0; i < count; i++) {
		const unsigned char *address =
			(const unsigned char *) addresses +
			(size_t) address_bytes * i;

		if (!fab_place_read(&watch->peers[watch->peer_count], address,
				    address_bytes))
			watch->peer_count++;
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
	const struct fab_address *address = peer->addresses[lane];

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

static int peer_has_socket(const struct fab_peer *peer,
			   const struct fab_place *remote, uint32_t lane)
{
	for (uint32_t i = 0; i < peer->socket_count; i++) {
		if (peer->sockets[i].lane == lane &&
		    !memcmp(&peer->sockets[i].remote, remote, sizeof(*remote)))
			return 1;
	}
	return 0;
}

/* Each lane of either side connects once: what is beyond that is not kept. Nor
 * is it without memory; then it is taken for nobody's, and waited for. */
static void peer_add_socket(struct fab_peer *peer,
			    const struct fab_place *remote, uint32_t lane)
{
	struct fab_peer_socket *more;

	if (peer_has_socket(peer, remote, lane) ||
	    peer->socket_count == 2 * FAB_MAX_LANES)
		return;
	more = realloc(peer->sockets,
		       (peer->socket_count + 1) * sizeof(peer->sockets[0]));
	if (!more)
		return;
	peer->sockets = more;
	more += peer->socket_count++;
	more->remote = *remote;
	more->inode = 0;
	more->lane = lane;
}

int fab_connections_hear(struct fab_worker *worker, struct fab_peer *peer,
			 const struct fab_place *place)
{
	if (place->family != FAB_PLACE_IP4 && place->family != FAB_PLACE_IP6)
		return -EPROTO;
	if (peer_is_on(worker, peer, place)) {
		peer_add_socket(peer, place, FAB_ANY_LANE);
		fab_connections_expect(worker);
	}
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
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		(void) fab_sockets_list(&worker->lanes[i], &look->sockets[i],
					&look->counts[i]);
		worker->lanes[i].sockets_seen |= look->counts[i] != 0;
	}
	return 0;
}

static void peer_tell(struct fab_worker *worker, struct fab_peer *peer,
		      uint32_t lane, const struct fab_place *local)
{
	peer->told |= 1ull << lane;
	fab_peer_send(worker, peer, FAB_FRAME_PLACE, local, sizeof(*local));
}

/* The socket of a lane that is the peer's, or NULL. While it lives, the first
 * that is seen where it connects from is; and whichever we have connected to
 * where it listens. */
static struct fab_socket *look_find(struct look *look, uint32_t lane,
				    const struct fab_peer *peer,
				    struct fab_peer_socket *known)
{
	struct fab_socket *first = fab_sockets_find(
		look->sockets[lane], look->counts[lane], &known->remote);
	const struct fab_socket *end = look->sockets[lane] + look->counts[lane];

	for (struct fab_socket *each = first;
	     each && each < end &&
	     !memcmp(&each->remote, &known->remote, sizeof(each->remote));
	     each++) {
		if (each->inode == known->inode)
			return each;
	}
	if (!first || peer->silent ||
	    (known->inode && known->lane == FAB_ANY_LANE))
		return NULL;
	known->inode = first->inode;
	return first;
}

static void look_mark(const struct fab_peer *peer, uint32_t lane,
		      struct fab_socket *socket)
{
	if (peer->silent) {
		socket->lost = 1;
		return;
	}
	socket->lives = 1;
	if (socket->opened_ns < peer->opened_ns) {
		socket->opened_ns = peer->opened_ns;
		(void) peer_place(peer, lane, &socket->peer);
	}
}

static void look_for(struct fab_worker *worker, struct look *look,
		     struct fab_peer *peer)
{
	struct fab_place theirs;

	for (uint32_t i = 0; i < worker->lane_count; i++) {
		if (!peer_place(peer, i, &theirs))
			peer_add_socket(peer, &theirs, i); /* if we connect */
		for (uint32_t j = 0; j < peer->socket_count; j++) {
			struct fab_peer_socket *known = &peer->sockets[j];
			struct fab_socket *socket = NULL;

			if (known->lane == i || known->lane == FAB_ANY_LANE)
				socket = look_find(look, i, peer, known);
			if (!socket)
				continue;
			look_mark(peer, i, socket);
			peer->found |= 1ull << i;
			if (known->lane == i &&
			    peer->state == FAB_PEER_ATTACHED &&
			    !(peer->told >> i & 1))
				peer_tell(worker, peer, i, &socket->local);
		}
	}
}

/* Whether a peer lives of which not all sockets were found. */
static int peer_misses(const struct fab_worker *worker,
		       const struct fab_peer *peer)
{
	uint64_t all = UINT64_MAX >> (64 - worker->lane_count);

	return peer->state == FAB_PEER_OPEN ||
	       (peer->state == FAB_PEER_ATTACHED &&
		(peer->found | peer->down) != all);
}

/* Look for the sockets of all peers. 1 if a peer's were not all there. */
static int look_for_all(struct fab_worker *worker, struct look *look)
{
	int missing = 0;

	for (uint32_t i = 0; i < worker->peer_count; i++) {
		struct fab_peer *peer = worker->peers[i];

		if (peer->state != FAB_PEER_OPEN &&
		    peer->state != FAB_PEER_ATTACHED && !peer->silent)
			continue;
		look_for(worker, look, peer);
		missing |= peer->state == FAB_PEER_ATTACHED &&
			   peer_misses(worker, peer);
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

/* Whether a socket that nobody has named may be cut: it comes from a silent
 * peer's host, and cannot be that of a peer there which is still to be found. */
static int watch_means(const struct fab_worker *worker,
		       const struct fab_watch *watch,
		       const struct fab_place *place)
{
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		const struct fab_peer *peer = worker->peers[i];

		if (peer_misses(worker, peer) &&
		    peer_is_on(worker, peer, place))
			return 0;
	}
	for (uint32_t i = 0; i < watch->peer_count; i++) {
		if (host_is(&watch->peers[i], place))
			return 1;
	}
	return 0;
}

/* Whether it leads to a peer that lives, and not to a silent one's Fabric, which
 * may be about an old write. */
static int watch_excuses(const struct fab_watch *watch,
			 const struct fab_socket *socket)
{
	if (!socket->lives)
		return 0;
	for (uint32_t i = 0; i < watch->peer_count; i++) {
		if (!memcmp(&watch->peers[i], &socket->peer,
			    sizeof(socket->peer)))
			return socket->opened_ns > watch->lost_ns;
	}
	return 1;
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

			if (watch_excuses(watch, socket) ||
			    (watch->listed && !watch_has(watch, socket->inode)))
				continue;
			inodes[left++] = socket->inode;
			if (expired && !socket->lives &&
			    watch_means(worker, watch, &socket->remote))
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
			  uint64_t token, uint64_t lost_ns,
			  const void *addresses, uint32_t address_bytes,
			  uint32_t count)
{
	struct fab_watch *watch = fab_watch_alloc(token, lost_ns, addresses,
						  address_bytes, count);

	if (!watch || fab_engine_reserve(engine, 1ull << worker, 1)) {
		free(watch);
		return -FI_ENOMEM;
	}
	fab_engine_command(engine, worker, FAB_COMMAND_WATCH, FAB_NO_PEER,
			   watch);
	return 0;
}
