/* Connections: which socket of a lane leads to which peer, and the end of those
 * that lead to none.
 *
 * Where a connection carries writes (FAB_WRITES_LAST_CONNECTION), a peer that
 * fell silent in the midst of one may go on with it, into memory whose region
 * was closed. libfabric has no call that ends a connection, but takes a
 * shutdown(2) of its socket for the end. Who connects knows its own port only,
 * so each side tells the other (FAB_FRAME_PLACE).
 *
 * N1 a socket that leads to a peer which lives is never shut down. Those of a
 *    peer that falls silent are, at once: the very ones that were seen while it
 *    lived, since its ports may be another's by now.
 * N2 a watch ends when each socket that led to no living peer as it began has
 *    closed, or has turned out to lead to one. Where that is a silent peer's
 *    Fabric again, it must have been added after the loss: what it had sent
 *    before has arrived before its hello. It is begun after a region was
 *    closed: what connects later finds no key. After peer_timeout those that
 *    lead to the silent peers' hosts are shut down, unless a peer there lives
 *    whose sockets were not all found.
 * N3 nothing is concluded of a lane whose set was not found, or in which no
 *    connection was ever seen: the watch goes on for as long as the lane.
 * N4 sockets are read and shut down by the lock holder, who alone makes the
 *    provider close them: a number cannot mean another socket meanwhile.
 *
 * Sources: shutdown(2), tcp(7); libfabric, prov/tcp. */
#ifndef FAB_CONNECTIONS_H
#define FAB_CONNECTIONS_H

#include "frame.h"
#include "list.h"

#include <stdint.h>

struct fab_peer;
struct fab_worker;

/* A socket of ours that leads to a peer. */
struct fab_peer_socket {
	struct fab_place remote;
	uint64_t inode; /* 0: it was not seen yet */
	uint32_t lane;  /* of ours, or FAB_ANY_LANE: the peer has connected */
};

/* Owned by the loop until it is handed over, then by the worker. */
struct fab_watch {
	struct fab_link link; /* in worker->watches */
	uint64_t token;
	uint64_t began_ns;
	uint64_t lost_ns; /* when the last of the silent peers was lost */
	uint64_t *inodes; /* owned: sockets that are waited for */
	uint32_t inode_count;
	uint32_t listed; /* 1: inodes are all that were there */
	uint32_t peer_count;
	struct fab_place peers[]; /* where the silent ones listen */
};

/* NULL when memory is out. `addresses` as in fab_peer_add. [any] */
struct fab_watch *fab_watch_alloc(uint64_t token, uint64_t lost_ns,
				  const void *addresses, uint32_t address_bytes,
				  uint32_t count);
void fab_watch_free(struct fab_watch *watch);

/* Begin; FAB_CONNECTIONS_ENDED follows. Takes it over. [worker] */
void fab_connections_watch(struct fab_worker *worker, struct fab_watch *watch);

/* The peer says where a socket of its leads to us from. 0, or -EPROTO.
 * [worker] */
int fab_connections_hear(struct fab_worker *worker, struct fab_peer *peer,
			 const struct fab_place *place);

/* A peer was attached, or has fallen silent: look with the next tick.
 * [worker] */
void fab_connections_expect(struct fab_worker *worker);

/* Look at once: shut down, end watches. 1 if a socket of some peer was not
 * there. [worker] */
int fab_connections_look(struct fab_worker *worker);

/* Time passed, `interval_ns` since the last. [worker] */
void fab_connections_tick(struct fab_worker *worker, uint64_t interval_ns);

#endif
